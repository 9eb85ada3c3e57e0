//! Plants violations in small workspaces and checks that they are found.

use std::path::Path;

use headroom_imports::check;

/// A workspace of these files under `crates/`, with `layers`.
fn problems(layers: &str, files: &[(&str, &str)]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |path: &Path, text: &str| {
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("create it");
        std::fs::write(path, text).expect("write");
    };
    write(&folder.path().join("layers.toml"), layers);
    for (path, text) in files {
        let whole = folder.path().join("crates").join(path);
        write(&whole, text);
        let krate = path.split('/').next().expect("a crate");
        let manifest = format!("[package]\nname = \"house-{krate}\"\n");
        write(&folder.path().join("crates").join(krate).join("Cargo.toml"), &manifest);
    }
    check(folder.path()).expect("a workspace")
}

const ONE: &str = "workspace = [[\"one\"]]";

#[track_caller]
fn assert_one(problems: &[String], parts: &[&str]) {
    assert_eq!(problems.len(), 1, "{problems:#?}");
    for part in parts {
        assert!(problems[0].contains(part), "`{part}` is not in: {}", problems[0]);
    }
}

#[test]
fn finds_a_circle_of_two_files() {
    let found = problems(
        ONE,
        &[
            ("one/src/lib.rs", "mod a;\nmod b;\n"),
            ("one/src/a.rs", "use crate::b::B;\npub struct A(B);\n"),
            ("one/src/b.rs", "pub struct B;\n\nfn make() -> super::a::A {\n    todo!()\n}\n"),
        ],
    );
    assert_one(
        &found,
        &[
            "crates/one/src/a.rs:1: `crate::b::B` is defined in crates/one/src/b.rs",
            "crates/one/src/b.rs:3: `super::a::A` is defined in crates/one/src/a.rs",
        ],
    );
}

#[test]
fn finds_a_circle_that_a_macro_or_an_alias_hides() {
    let found = problems(
        ONE,
        &[
            ("one/src/lib.rs", "mod a;\nmod b;\nmod c;\n"),
            ("one/src/a.rs", "use crate::b as other;\npub const A: u8 = other::B;\n"),
            ("one/src/b.rs", "pub const B: u8 = 1;\nfn f() { println!(\"{}\", crate::c::c()) }\n"),
            ("one/src/c.rs", "use crate::a::*;\npub fn c() -> u8 { A }\n"),
        ],
    );
    assert_one(&found, &["3 files", "a.rs:2: `other::B`", "b.rs:2: `crate::c::c`", "c.rs:2: `A`"]);
}

#[test]
fn accepts_a_child_that_uses_what_its_parent_defines() {
    let found = problems(
        ONE,
        &[
            ("one/src/lib.rs", "mod a;\nuse a::make;\npub struct A;\npub fn f() { make(); }\n"),
            ("one/src/a.rs", "use super::A;\npub fn make() -> A { A }\n"),
        ],
    );
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn finds_a_circle_by_way_of_anothers_child() {
    let found = problems(
        ONE,
        &[
            ("one/src/lib.rs", "mod a;\nmod b;\n"),
            (
                "one/src/a/mod.rs",
                "mod child;\npub use child::Child;\npub use crate::b::B as Own;\n",
            ),
            ("one/src/a/child.rs", "pub struct Child(super::Own);\n"),
            ("one/src/b.rs", "use crate::a::Child;\npub struct B;\n"),
        ],
    );
    assert_one(&found, &["2 files", "a/child.rs:1: `super::Own`", "b.rs:1: `crate::a::Child`"]);
}

#[test]
fn accepts_parents_that_re_export_and_children_that_import_by_way_of_them() {
    let found = problems(
        ONE,
        &[
            ("one/src/lib.rs", "mod a;\npub use a::{First, Second};\n"),
            (
                "one/src/a/mod.rs",
                "mod first;\nmod second;\npub use first::First;\npub use second::Second;\n",
            ),
            ("one/src/a/first.rs", "pub struct First;\n"),
            ("one/src/a/second.rs", "use super::First;\npub struct Second(First);\n"),
        ],
    );
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn accepts_tests_that_import_what_is_above() {
    let found = problems(
        ONE,
        &[
            ("one/src/lib.rs", "mod a;\nmod b;\n"),
            ("one/src/a.rs", "use crate::b::B;\npub struct A(B);\n"),
            ("one/src/b.rs", "pub struct B;\n#[cfg(test)]\nmod tests { use crate::a::A; }\n"),
        ],
    );
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn finds_an_upward_import_between_modules() {
    let found = problems(
        "workspace = [[\"one\"]]\none = [[\"high\"], [\"low\", \"beside\"]]",
        &[
            ("one/src/lib.rs", "mod beside;\nmod high;\nmod low;\n"),
            ("one/src/high.rs", "pub struct High;\n"),
            ("one/src/low.rs", "pub struct Low;\n\nuse crate::high::High;\n"),
            ("one/src/beside.rs", "type Same = crate::low::Low;\n"),
        ],
    );
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[1].contains("crates/one/src/low.rs:3: `crate::high::High`"), "{found:#?}");
    assert!(found[1].contains("`high` stands above `low` in [one]"), "{found:#?}");
    assert!(found[0].contains("`low` stands in the same row as `beside`"), "{found:#?}");
}

#[test]
fn finds_an_upward_import_between_crates() {
    let found = problems(
        "workspace = [[\"two\"], [\"one\"]]",
        &[
            ("one/src/lib.rs", "pub use house_two::inner::Two as Again;\nfn f(_: Again) {}\n"),
            ("two/src/lib.rs", "pub mod inner;\n"),
            ("two/src/inner.rs", "pub struct Two;\n"),
        ],
    );
    assert_one(&found, &["crates/one/src/lib.rs:2", "`two` stands above `one` in [workspace]"]);
}

#[test]
fn names_what_the_table_lacks_and_what_does_not_exist() {
    let found = problems(
        "workspace = [[\"one\", \"three\"]]\none = [[\"a\", \"a\"]]",
        &[("one/src/lib.rs", "mod a;\nmod b;\n"), ("one/src/a.rs", ""), ("one/src/b.rs", "")],
    );
    for part in ["[one] lacks `b`", "[one] has `a` twice", "[workspace] has `three`"] {
        assert!(found.iter().any(|problem| problem.contains(part)), "{part}: {found:#?}");
    }
    assert_eq!(found.len(), 3, "{found:#?}");
}
