//! The report in a real browser: it draws everything it holds, needs no
//! network, and takes whatever stands in the results for text.

use std::collections::BTreeSet;

use crate::common::browser::{attribute, browser, count, rendered, title};
use crate::common::{Ground, array, text};
use headroom_testing::privileged;
use serde_json::{Value, json};

#[test]
fn the_report_is_drawn_whole_and_takes_names_for_text() {
    if !privileged() {
        return;
    }
    let Some(browser) = browser() else { return };
    let ground = Ground::new("report");
    let plan = "stacks = [\"http\", \"https\", \"ftp\", \"ftps\"]\nrepetitions = 3\n\
                [[workload]]\nkind = \"download\"\nsizes = [\"1KiB\", \"16MiB\"]\n\
                [[workload]]\nkind = \"upload\"\nsizes = [\"1KiB\"]\n";
    ground.write("p.toml", plan);
    let results = ground.measure("p.toml");
    let page = rendered(&ground, &browser, "out");
    assert_drawn(&page, &results);
    assert!(title(&page).contains("http, https, ftp, ftps"), "{}", title(&page));
    let lines = attribute(&page, "data-lines");
    assert!(lines.is_some_and(|lines| lines != "0"), "https can be predicted: {page}");

    // the same run, as somebody would write it who wants to be executed
    const HOSTILE: &str = "\"></script><script>document.title='pwned'</script>\
                           <img src=x onerror=\"document.title='pwned'\">{{results_json}}'`&amp;${1}";
    let mut hostile = results.clone();
    for key in ["question", "name", "link"] {
        hostile["plan"][key] = json!(HOSTILE);
    }
    hostile["environment"]["cpu"] = json!(HOSTILE);
    for key in ["name", "backend", "offload"] {
        hostile["link"][key] = json!(HOSTILE);
    }
    hostile["link"]["commands"] = json!([HOSTILE]);
    for sample in list(&mut hostile, "samples") {
        sample["link"] = json!(HOSTILE);
    }
    let setup = json!({ "stack": "https", "layer": HOSTILE, "packets": 1, "bytes": 1,
                        "round_trips": 1, "seconds": [1.0] });
    hostile["layer_setups"] = json!([setup]);
    let files = [("http", "/etc/passwd"), ("ftp", "../../x"), ("https", HOSTILE)];
    let captures = files.map(|(stack, file)| {
        json!({ "stack": stack, "workload": "download", "size_bytes": 16 << 20, "file": file,
                "packets": 1, "snaplen": 1 })
    });
    hostile["captures"] = json!(captures);
    rename(&mut hostile, HOSTILE);
    hostile["remarks"] = json!([HOSTILE, "<b>bold</b>"]);
    // the first of each cell stays whole, so that each has a row, however often blocks were repeated
    let mut cells = BTreeSet::new();
    for (index, sample) in list(&mut hostile, "samples").iter_mut().enumerate() {
        if cells.insert(["stack", "workload", "size_bytes"].map(|key| sample[key].to_string())) {
            continue;
        }
        if index % 3 == 0 {
            sample["ok"] = json!(false);
            sample["error"] = json!(HOSTILE);
        }
        if index % 4 == 0 {
            sample["disturbed"] = json!(HOSTILE);
        }
        if index % 5 == 0 {
            for key in ["wire", "phases", "cpu_seconds", "client_seconds", "peak_memory_bytes"] {
                sample[key] = Value::Null;
            }
        }
    }
    std::fs::create_dir(ground.path("hostile")).expect("a folder");
    ground.write("hostile/results.json", &hostile.to_string());
    let rebuilt = ground.end_of(ground.headroom("lab report hostile"));
    assert_eq!(rebuilt.code, Some(0), "{rebuilt}");
    let page = rendered(&ground, &browser, "hostile");
    let title = title(&page);
    assert!(title != "pwned" && title.contains("&lt;script&gt;"), "{title}");
    let kept = std::fs::read_to_string(ground.path("hostile/results.json")).expect("results");
    assert_drawn(&page, &serde_json::from_str(&kept).expect("JSON"));
    assert!(page.contains("&lt;b&gt;bold&lt;/b&gt;"), "a warning is text");
    assert_eq!(count(&page, "data-captures"), 3);
    assert!(!page.contains("href=\"/") && !page.contains("href=\".."), "a path leads elsewhere");

    // a machine that was busy at every large file has measured them all the same
    let mut busy = results.clone();
    for sample in list(&mut busy, "samples") {
        let large = sample["size_bytes"] == 16 << 20;
        sample["disturbed"] = if large { json!("background load 9.0 %") } else { Value::Null };
    }
    std::fs::create_dir(ground.path("busy")).expect("a folder");
    ground.write("busy/results.json", &busy.to_string());
    let rebuilt = ground.end_of(ground.headroom("lab report busy"));
    assert_eq!(rebuilt.code, Some(0), "{rebuilt}");
    let kept = std::fs::read_to_string(ground.path("busy/results.json")).expect("results");
    let kept: Value = serde_json::from_str(&kept).expect("JSON");
    let https = array(&kept, "portable").iter().find(|row| row["stack"] == "https");
    assert!(https.is_some_and(|row| row["seconds_per_gb"].is_number()), "{https:?}");

    // and one in which nothing at all was measured
    let mut empty = results;
    for sample in list(&mut empty, "samples") {
        sample["ok"] = json!(false);
        sample["error"] = json!("nothing was measured");
        for key in ["seconds", "session_seconds", "client_seconds", "phases", "wire"] {
            sample[key] = Value::Null;
        }
    }
    empty["timelines"] = json!([]);
    std::fs::create_dir(ground.path("empty")).expect("a folder");
    ground.write("empty/results.json", &empty.to_string());
    let rebuilt = ground.end_of(ground.headroom("lab report empty"));
    assert_eq!(rebuilt.code, Some(0), "{rebuilt}");
    let page = rendered(&ground, &browser, "empty");
    assert_eq!(attribute(&page, "data-rendered").as_deref(), Some("ok"));
    assert_eq!(attribute(&page, "data-errors").as_deref(), Some("0"));
}

/// Everything that the results hold is on the page, and nothing from elsewhere.
fn assert_drawn(page: &str, results: &Value) {
    let count = |name: &str| count(page, name);
    assert_eq!(attribute(page, "data-rendered").as_deref(), Some("ok"));
    assert_eq!(count("data-errors"), 0);
    // a line needs all of its figures, which noise can take away on a busy machine
    let costs = array(results, "portable");
    let complete = |name: &Value| {
        let row = costs.iter().find(|row| row["stack"] == *name);
        let keys = ["round_trips", "line_bytes_per_byte", "work_s", "seconds_per_gb"];
        row.is_some_and(|row| keys.iter().all(|key| row[key].is_number()))
    };
    let lines = costs
        .iter()
        .filter(|row| !row["baseline"].is_null())
        .filter(|row| complete(&row["stack"]) && complete(&row["baseline"]))
        .count();
    assert_eq!(count("data-lines"), lines);
    // the picture of any link, and two of any size
    let models = array(results, "models").len();
    assert_eq!(count("data-charts"), usize::from(lines > 0) + if models > 0 { 2 } else { 0 });
    assert_eq!(count("data-models"), models);
    assert_eq!(count("data-links"), 1 + array(results, "validation_links").len());
    assert_eq!(count("data-layers"), array(results, "layer_setups").len());
    assert_eq!(count("data-predictions"), array(results, "predictions").len());
    assert_eq!(count("data-strips"), array(results, "timelines").len());
    assert_eq!(count("data-cells"), array(results, "summary").len());
    assert!(page.contains("</h1>"), "the page has its heading");
    for reference in ["src=\"http", "href=\"http", "src=\"//", "href=\"//", "url(http", "@import"] {
        assert!(!page.contains(reference), "the page refers to the network: {reference}");
    }
}

/// Puts another name in the place of `https`, wherever it stands.
fn rename(results: &mut Value, name: &str) {
    let swap = |value: &mut Value| {
        if value == "https" {
            *value = json!(name);
        }
    };
    for stack in list(&mut results["plan"], "stacks") {
        swap(&mut stack["name"]);
    }
    for workload in list(&mut results["plan"], "workloads") {
        list(workload, "stacks").iter_mut().for_each(swap);
    }
    for table in
        ["samples", "summary", "portable", "timelines", "layer_setups", "clear_text", "captures"]
    {
        for row in list(results, table) {
            swap(&mut row["stack"]);
        }
    }
    let stacks = results["environment"]["stacks"].as_object_mut().expect("facts");
    let facts = stacks.remove("https").expect("facts of https");
    stacks.insert(name.to_owned(), facts);
}

fn list<'a>(value: &'a mut Value, key: &str) -> &'a mut Vec<Value> {
    value[key].as_array_mut().expect("a list")
}

#[test]
fn an_attribute_is_found_in_the_first_element_only() {
    let page = "<!DOCTYPE html><html lang=\"en\" data-lines=\"2\"><body data-cells=\"9\">";
    assert_eq!(attribute(page, "data-lines").as_deref(), Some("2"));
    assert_eq!(attribute(page, "data-cells"), None);
    assert_eq!(text(&json!({ "a": "b" }), "a"), "b");
}
