//! What definitions say, and which mistakes are named.

use std::collections::BTreeSet;

use super::reference::{EXAMPLE, KEYS, PLACEHOLDERS};
use super::*;
use crate::plan::Plan;
use crate::stack::Stack;
use crate::workload::WorkloadKind;

const GOOD: &str = r#"
[application.dav]
about = "WebDAV: a server, curl"
secured = false
baseline = "http"
layers = ["relay", "esp"]
port = 8080
ready-line = "listening"
server = ["davd", "--listen={address}", "{files}", "{dir}/davd.conf"]
download = ["curl", "http://{address}/{file}", "-o", "{local}"]
[application.dav.programs]
davd = { version = ["-V"], package = "dav-server" }
curl = { version = ["--version"] }
[application.dav.server-files]
"davd.conf" = "user {{ root }}"

[layer.relay]
encrypts = false
server = ["socat", "TCP-LISTEN:{port}", "TCP:{to-address}"]
client = ["socat", "TCP-LISTEN:{port}", "TCP:{to-address}"]
programs = { socat = { version = ["-V"] } }
"#;

fn read(text: &str) -> Result<Custom, String> {
    let file: DefinitionsFile =
        toml::from_str(text).map_err(|error| toml_error::in_text(&error, text))?;
    let mut custom = Custom::default();
    custom.add(&file).map_err(|error| error.in_text(text))?;
    Ok(custom)
}

#[test]
fn definitions_stand_in_stacks_as_those_of_the_catalogues() {
    let custom = read(GOOD).expect("good definitions");
    let parse = |name| Stack::parse_with(name, &custom);
    let stack = parse("dav/relay/esp(udp)#2").expect("a stack");
    assert_eq!(stack.name, "dav/relay/esp(udp)#2");
    assert_eq!(stack.baselines(), ["dav/relay", "dav"]);
    assert_eq!(parse("dav").map(|stack| stack.baselines()), Ok(vec!["http".to_owned()]));
    assert!(stack.is_secured() && !parse("http/relay").expect("a stack").is_secured());
    let accepts = [WorkloadKind::Download, WorkloadKind::Sessions, WorkloadKind::Upload];
    assert_eq!(accepts.map(|kind| stack.accepts(kind)), [true, true, false]);
    let programs: Vec<_> =
        stack.programs().map(|program| (program.part(), program.only_on)).collect();
    use headroom_lab_host::role::Role;
    assert_eq!(
        programs[..3],
        [
            ("curl=curl".to_owned(), Some(Role::Client)),
            ("davd=dav-server".to_owned(), Some(Role::Server)),
            ("socat=socat".to_owned(), None),
        ]
    );
    for (name, why) in [
        ("dav(fast)", "`dav` takes no options"),
        ("dav/tls", "dav does not stand under `tls`: its definition allows the layers relay, esp"),
        ("ftp/relay", "data connections of its own, which `relay` cannot carry"),
        ("davv", "there is no application `davv` (did you mean `dav`?)"),
        ("http/rely", "there is no layer `rely` (did you mean `relay`?)"),
    ] {
        let error = parse(name).expect_err(name);
        assert!(error.contains(why), "{error}");
    }
    assert!(Stack::parse("dav").is_err(), "other plans do not know it");
}

#[test]
fn equal_definitions_are_kept_once() {
    let (one, other) = (read(GOOD).expect("good"), read(GOOD).expect("good"));
    assert!(std::ptr::eq(one.applications()[0], other.applications()[0]));
    let changed = read(&GOOD.replace("port = 8080", "port = 8081")).expect("good");
    assert!(!std::ptr::eq(one.applications()[0], changed.applications()[0]));
    assert!(std::ptr::eq(one.layers()[0], changed.layers()[0]));
    let renamed = read(&GOOD.replace("relay", "detour")).expect("good");
    assert_eq!(renamed.layers()[0].name, "detour");
}

#[test]
fn a_plan_with_definitions_comes_back_from_its_record() {
    let text = format!(
        "stacks = [\"http\", \"dav/relay\"]\nseed = 1\nfamily = \"ipv6\"\n[[workload]]\nkind = \"download\"\n{GOOD}"
    );
    let plan = Plan::from_toml(&text, "x").expect("a good plan");
    let record = plan.record();
    let names: Vec<_> = record.definitions.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["dav", "relay"]);
    let again = Plan::of_record(&record).expect("the same plan");
    assert_eq!(format!("{again:?}"), format!("{plan:?}"));
    assert_eq!(again.record(), record);
    assert!(plan.differences_from(&record).is_empty());
    let other = Plan::from_toml(&text.replace("8080", "8081"), "x").expect("a good plan");
    let differences = other.differences_from(&record);
    assert!(
        differences.len() == 1 && differences[0].starts_with("definitions: "),
        "{differences:?}"
    );
    // what no stack uses is not recorded, but what a definition mentions is
    let mut fewer = plan.clone();
    fewer.keep_only("http").expect("it is there");
    assert!(fewer.record().definitions.is_empty());
    let mut damaged = record;
    damaged.definitions[0].toml = "server = 1".to_owned();
    assert!(
        Plan::of_record(&damaged).is_err_and(|error| error.to_string().contains("cannot be run"))
    );
}

#[test]
fn every_mistake_is_named_with_its_line() {
    let long = format!("\"{}\"", "x".repeat(5000));
    for (from, to, expected) in [
        ("secured = false\n", "", "2: missing field `secured`"),
        (
            "secured",
            "secure",
            "4: unknown field `secure` (did you mean `secured`?), expected one of",
        ),
        ("[application.dav]", "[application.Dav]", "2: `Dav`: a name has lower-case letters"),
        ("[application.dav]", "[application.\"../dav\"]", "2: `../dav`: a name has"),
        ("[layer.relay]", "[layer.tls]", "17: `tls` is built in: choose another name"),
        ("[layer.relay]", "[layer.dav]", "2: `dav` is defined twice"),
        (
            "baseline = \"http\"",
            "baseline = \"htp\"",
            "5: there is no application `htp` (did you mean `http`?)",
        ),
        (
            "baseline = \"http\"",
            "baseline = \"http/tsl\"",
            "5: there is no layer `tsl` (did you mean `tls`?)",
        ),
        (
            "baseline = \"http\"",
            "baseline = \"dav\"",
            "5: an application cannot be its own baseline",
        ),
        (
            "[\"relay\", \"esp\"]",
            "[\"rely\"]",
            "6: there is no layer `rely` (did you mean `relay`?)",
        ),
        ("port = 8080", "port = 0", "7: `port` is 0: it must be from 1 to 15000"),
        (
            "[\"davd\", \"--listen={address}\", \"{files}\", \"{dir}/davd.conf\"]",
            "\"davd\"",
            "9: `application.dav.server` is the text \"davd\", and must be a list, such as [\"x\", \"y\"]; \
             `headroom lab list --own-stacks`",
        ),
        (
            "davd = { version = [\"-V\"], package = \"dav-server\" }",
            "davd = [\"-V\"]",
            "12: `application.dav.programs.davd` is a list, and must be a table with the arguments that make",
        ),
        (
            "davd = { version = [\"-V\"], package = \"dav-server\" }",
            "davd = \"-V\"",
            "12: `application.dav.programs.davd` is the text \"-V\", and must be a table with the arguments",
        ),
        (
            "davd = { version = [\"-V\"]",
            "davd = { versoin = [\"-V\"]",
            "12: unknown field `versoin` (did you mean `version`?), expected `version` or `package`",
        ),
        (
            "curl = { version = [\"--version\"] }",
            "curl = {}",
            "13: missing field `version`; `headroom lab list --own-stacks`",
        ),
        ("port = 8080", "ready = \"tpc\"", "7: unknown variant `tpc` (did you mean `tcp`?)"),
        ("port = 8080", "ready = \"udp\"", "7: a server is ready by `ready` or by `ready-line`"),
        (
            "[\"davd\", \"--l",
            "[\"dadv\", \"--l",
            "9: `dadv` is none of the definition's `programs` (did you mean `davd`?)",
        ),
        (
            "{address}\", \"{files}",
            "{adress}\", \"{files}",
            "9: there is no placeholder `{adress}` here (did you mean `address`?)",
        ),
        ("\"{files}\"", "\"{local}\"", "9: there is no placeholder `{local}` here"),
        (
            "\"{files}\"",
            "\"{program:crul}\"",
            "9: `crul` is none of the definition's `programs` (did you mean `curl`?)",
        ),
        ("\"{files}\"", "\"--with={program:curl}\"", "9: `{program:NAME}` is a word of its own"),
        ("\"{files}\"", "\"{files\"", "9: a `{` stands alone"),
        ("\"{files}\"", &long, "9: a word has at most 4096 bytes"),
        ("\"{files}\"", "\"a\\u0000b\"", "9: a word has at most 4096 bytes, none of them zero"),
        (
            "download = [\"curl\", \"http://{address}/{file}\", \"-o\", \"{local}\"]",
            "download = []",
            "10: a command begins with its program",
        ),
        ("download = ", "download-tree = ", "10: there is no placeholder `{file}` here"),
        (
            "download = [\"curl\", \"http://{address}/{file}\", \"-o\", \"{local}\"]",
            "stream = [\"curl\", \"{seconds}\"]",
            "2: `dav` has no client that can be checked",
        ),
        ("davd = {", "\"a b\" = {", "12: `a b` is no program"),
        ("davd = {", "\"../davd\" = {", "12: `../davd` is no program"),
        (
            "curl = { version = [\"--version\"] }",
            "curl = { version = [] }",
            "13: `version` has the arguments",
        ),
        (
            "\"davd.conf\" = ",
            "\"../davd.conf\" = ",
            "15: `../davd.conf`: a file's name has letters",
        ),
        ("\"davd.conf\" = ", "\".conf\" = ", "15: `.conf`: a file's name has letters"),
        ("{{ root }}", "{ root }", "15: there is no placeholder `{ root }` here"),
        ("encrypts = false", "encrypts = false\noverhead = 9", "19: `overhead` is of a layer"),
        (
            "encrypts = false",
            "encrypts = false\nkind = \"network\"",
            "17: `relay` carries packets: say how many bytes",
        ),
        (
            "client = [\"socat\", \"TCP-LISTEN:{port}\"",
            "client = [\"socat\", \"{key}\"",
            "20: there is no placeholder `{key}` here",
        ),
    ] {
        let text = GOOD.replacen(from, to, 1).replacen("[application.Dav.", "[application.dav.", 9);
        assert_ne!(text, GOOD, "{from}");
        let text = match to.strip_prefix("[application.") {
            Some(rest) => {
                let name = rest.trim_end_matches(']');
                text.replace("[application.dav.", &format!("[application.{name}."))
            }
            None => text,
        };
        let error = read(&text).expect_err(expected);
        assert!(error.starts_with(expected), "{error:?} does not start with {expected:?}");
    }
}

#[test]
fn a_definition_is_bounded() {
    let many: String = (0..=MAX_DEFINITIONS)
        .map(|n| {
            format!(
                "[layer.l{n}]\nencrypts = false\nserver = [\"a\"]\nclient = [\"a\"]\nprograms = {{ a = {{ version = [\"v\"] }} }}\n"
            )
        })
        .collect();
    assert!(read(&many).is_err_and(|error| error.contains("more than 100 definitions")));
    let words = vec!["\"x\""; 300].join(", ");
    let long = GOOD.replace("\"{files}\"", &words);
    assert!(read(&long).is_err_and(|error| error.contains("a command has at most 256 words")));
    let folder = std::env::temp_dir();
    let error = Custom::read(&folder).expect_err("a folder");
    assert!(error.contains("it is no file of at most"), "{error}");
    let plan =
        "stacks = [\"http\"]\ninclude = [\"/nowhere/x.toml\"]\n[[workload]]\nkind = \"download\"\n";
    let error = Plan::from_toml(plan, "x").expect_err("no folder");
    assert!(error.starts_with("2: only a plan that is a file"), "{error}");
}

#[test]
fn damaged_definitions_are_refused_or_come_back_from_their_record() {
    let head = "stacks = [\"http\", \"dav/relay\"]\nseed = 1\nfamily = \"ipv6\"\n[[workload]]\nkind = \"download\"\n";
    let good = format!("{head}{GOOD}").into_bytes();
    let mut state = 1_u64;
    let mut next = |most: usize| {
        // Knuth's constants (MMIX)
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % most
    };
    let mut accepted = 0;
    for _ in 0..500 {
        let mut text = good.clone();
        for _ in 0..=next(2) {
            let at = next(text.len());
            match next(3) {
                0 => text[at] = b"{}\"[]=.,\\ a0"[next(12)],
                1 => drop(text.remove(at)),
                _ => text.insert(at, b"{}\"[]=.,\\ a0"[next(12)]),
            }
        }
        let Ok(text) = String::from_utf8(text) else { continue };
        let Ok(plan) = Plan::from_toml(&text, "x") else { continue };
        accepted += 1;
        let record = plan.record();
        let again = Plan::of_record(&record).expect(&text);
        assert_eq!(again.differences_from(&record), Vec::<String>::new(), "{text}");
    }
    assert!(accepted > 0, "some damage changes only words");
}

/// The example's definitions, after a change.
fn example(change: impl Fn(&mut Table)) -> Result<Custom, String> {
    let mut plan: Table = EXAMPLE.parse().expect("TOML");
    let mut definitions = Table::new();
    for sort in [APPLICATION, LAYER] {
        definitions.insert(sort.to_owned(), plan.remove(sort).expect("it is there"));
    }
    change(&mut definitions);
    read(&definitions.to_string())
}

/// The tables of one sort in definitions.
fn each<'a>(definitions: &'a mut Table, of: &str) -> Vec<&'a mut Table> {
    let tables = |table: &'a mut Table, sort: &str| -> Vec<&'a mut Table> {
        let all = table.get_mut(sort).and_then(toml::Value::as_table_mut).expect("a table");
        all.iter_mut().filter_map(|(_, one)| one.as_table_mut()).collect()
    };
    match of {
        "program" => {
            let applications = tables(definitions, APPLICATION).into_iter();
            applications.flat_map(|one| tables(one, "programs")).collect()
        }
        of => tables(definitions, of),
    }
}

/// The keys that one sort of table accepts, by what is said of one that it does not.
fn accepted(of: &str) -> BTreeSet<String> {
    let error = example(|definitions| {
        for table in each(definitions, of) {
            table.insert("no-such-key".to_owned(), true.into());
        }
    });
    let error = error.expect_err("an unknown key");
    let (_, known) = error.split_once(", expected ").expect("the known keys");
    let (known, _) = known.split_once("; ").expect("the command that lists them");
    known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_reference_has_the_keys_that_are_accepted() {
    let of = |wanted: &[&str]| -> BTreeSet<String> {
        let groups = KEYS.iter().filter(|keys| wanted.contains(&keys.of));
        groups.flat_map(|keys| keys.keys).map(|key| key.name.to_owned()).collect()
    };
    assert_eq!(accepted(APPLICATION), of(&["both", APPLICATION]));
    assert_eq!(accepted(LAYER), of(&["both", LAYER]));
    assert_eq!(accepted("program"), of(&["program"]));
    for keys in &KEYS {
        let sorts: &[&str] = match keys.of {
            "both" => &[APPLICATION, LAYER],
            "application" => &[APPLICATION],
            "layer" => &[LAYER],
            _ => &["program"],
        };
        for (key, sort) in keys.keys.iter().flat_map(|key| sorts.iter().map(move |s| (key, *s))) {
            let without = example(|definitions| {
                for table in each(definitions, sort) {
                    table.remove(key.name);
                }
            });
            let missing = format!("missing field `{}`; `headroom lab list --own-stacks`", key.name);
            let is_missing = without.is_err_and(|error| error.contains(&missing));
            assert_eq!(is_missing, key.required, "{sort}: {}", key.name);
        }
    }
}

#[test]
fn the_example_is_a_whole_plan() {
    let plan = Plan::from_toml(EXAMPLE, "own").expect("a good plan");
    let baselines: Vec<_> = plan.stacks.iter().map(|one| one.baseline.as_deref()).collect();
    assert_eq!(baselines, [None, Some("http"), Some("my-http")]);
    assert_eq!(plan.record().definitions.len(), 2);
}

/// The placeholders that a command accepts, by what is said of one that it does not.
fn placeholders(of: &str, key: &str, more: &[(&str, toml::Value)]) -> BTreeSet<String> {
    let program = if of == APPLICATION { "curl" } else { "socat" };
    let error = example(|definitions| {
        for table in each(definitions, of) {
            for (key, value) in more {
                table.insert((*key).to_owned(), value.clone());
            }
            let words = [program, "{no-such-thing}"].map(toml::Value::from).to_vec();
            table.insert(key.to_owned(), words.into());
        }
    });
    let error = error.expect_err("an unknown placeholder");
    let (_, known) = error.split_once("; there are ").expect("the known placeholders");
    let (known, _) = known.split_once(" (a brace").expect("their end");
    known.split(", ").map(str::to_owned).collect()
}

#[test]
fn the_reference_has_the_placeholders_that_are_accepted() {
    let clients = ["download", "upload", "download-tree", "shell", "stream", "stream-file"];
    let network: [(&str, toml::Value); 2] = [("kind", "network".into()), ("overhead", 48.into())];
    let of_servers = [
        ("server of an application", placeholders(APPLICATION, "server", &[])),
        ("server of a layer", placeholders(LAYER, "server", &[])),
        ("server of a network layer", placeholders(LAYER, "server", &network)),
    ];
    let of_layers = [
        ("client of a layer", placeholders(LAYER, "client", &[])),
        ("client of a network layer", placeholders(LAYER, "client", &network)),
    ];
    let of_clients = clients.map(|key| (key, placeholders(APPLICATION, key, &[])));
    for (command, known) in of_servers.into_iter().chain(of_layers).chain(of_clients) {
        let is_of_layer = command.ends_with("layer");
        let stands = |of: &str| match of {
            "everywhere" => true,
            "server" => command.starts_with("server"),
            "application" => !is_of_layer,
            "layer" => is_of_layer,
            "network layer" => command.ends_with("network layer"),
            // a word of its own, and not replaced inside of others
            "commands" => false,
            of => of.split(", ").any(|of| of == command),
        };
        let rows = PLACEHOLDERS.iter().filter(|row| stands(row.of));
        let described: BTreeSet<String> =
            rows.flat_map(|row| row.names).map(|name| (*name).to_owned()).collect();
        assert_eq!(known, described, "{command}");
    }
}
