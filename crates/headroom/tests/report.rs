//! The report in a real browser: it draws everything it holds, needs no
//! network, and takes whatever stands in the results for text.

mod common;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::{Ground, array, parts, privileged, text};
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
    rename(&mut hostile, HOSTILE);
    for key in ["question", "name", "link"] {
        hostile["plan"][key] = json!(HOSTILE);
    }
    hostile["environment"]["cpu"] = json!(HOSTILE);
    hostile["remarks"] = json!([HOSTILE, "<b>bold</b>"]);
    for (index, sample) in list(&mut hostile, "samples").iter_mut().enumerate() {
        if index % 3 == 0 {
            sample["ok"] = json!(false);
            sample["error"] = json!(HOSTILE);
        }
        if index % 4 == 0 {
            sample["marked"] = json!(HOSTILE);
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

    // a machine that was busy at every large file has measured them all the same
    let mut busy = results.clone();
    for sample in list(&mut busy, "samples") {
        let large = sample["size_bytes"] == 16 << 20;
        sample["marked"] = if large { json!("foreign load 9.0 %") } else { Value::Null };
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
    let count = |name: &str| -> usize {
        let value = attribute(page, name).unwrap_or_else(|| panic!("no {name}"));
        value.parse().unwrap_or_else(|_| panic!("{name} is {value}"))
    };
    assert_eq!(attribute(page, "data-rendered").as_deref(), Some("ok"));
    assert_eq!(count("data-errors"), 0);
    // a line needs all of its figures, which noise can take away on a busy machine
    let costs = array(results, "portable");
    let complete = |name: &Value| {
        let row = costs.iter().find(|row| row["stack"] == *name);
        let keys = ["round_trips", "extra_bytes_per_mb", "fixed_s", "seconds_per_gb"];
        row.is_some_and(|row| keys.iter().all(|key| row[key].is_number()))
    };
    let lines = costs
        .iter()
        .filter(|row| !row["baseline"].is_null())
        .filter(|row| complete(&row["stack"]) && complete(&row["baseline"]))
        .count();
    assert_eq!(count("data-lines"), lines);
    assert_eq!(count("data-charts"), usize::from(lines > 0));
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
    for table in ["samples", "summary", "portable", "timelines"] {
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

/// The page of a folder's report as the browser has made it.
fn rendered(ground: &Ground, browser: &Path, folder: &str) -> String {
    let page = ground.path(folder).join("report.html");
    let home = ground.path(&format!("browser-{folder}"));
    std::fs::create_dir_all(&home).expect("a home for the browser");
    let mut command = ground.command(browser);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", home.join("profile").display()))
        .args(["--virtual-time-budget=10000", "--dump-dom"])
        .arg(format!("file://{}", page.display()))
        .env("HOME", &home)
        .stderr(Stdio::piped());
    let output = command.output().expect("the browser starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    String::from_utf8(output.stdout).expect("a page in UTF-8")
}

/// An attribute of the page's first element.
fn attribute(page: &str, name: &str) -> Option<String> {
    let html = &page[page.find("<html")?..];
    let tag = &html[..html.find('>')?];
    let value = &tag[tag.find(&format!(" {name}=\""))? + name.len() + 3..];
    Some(value[..value.find('"')?].to_owned())
}

fn title(page: &str) -> &str {
    let start = page.find("<title>").expect("a title") + "<title>".len();
    &page[start..start + page[start..].find("</title>").expect("its end")]
}

/// A Chromium of the system or of the cache. Where tests are required, none is
/// a failure.
fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join("chromium"))
        .chain([parts().join("bin/chromium")])
        .find(|path| path.is_file());
    if found.is_none() {
        let required = std::env::var_os("CI").is_some()
            || std::env::var("HEADROOM_TESTS").is_ok_and(|value| value == "required");
        let how = "no chromium: run scripts/fetch-parts --with-browser";
        assert!(!required, "{how}");
        eprintln!("skipped: {how}");
    }
    found
}

#[test]
fn an_attribute_is_found_in_the_first_element_only() {
    let page = "<!DOCTYPE html><html lang=\"en\" data-lines=\"2\"><body data-cells=\"9\">";
    assert_eq!(attribute(page, "data-lines").as_deref(), Some("2"));
    assert_eq!(attribute(page, "data-cells"), None);
    assert_eq!(text(&json!({ "a": "b" }), "a"), "b");
}
