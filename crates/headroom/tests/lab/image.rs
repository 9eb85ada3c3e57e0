//! The recipe of an image, `contrib/Containerfile`, against the files that `make image-root` lays
//! out and the options that exist. Needs no container engine.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::common::{Ended, Ground, HEADROOM};
use nix::unistd::geteuid;

/// Lays out the files of the image.
pub(super) const LAYOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/image-root");
const RECIPE: &str = include_str!("../../../../contrib/Containerfile");
pub(super) const MAKEFILE: &str = include_str!("../../../../Makefile");

/// Lays out the files of the image of a program.
pub(super) fn lay_out(ground: &Ground, program: impl AsRef<OsStr>) -> PathBuf {
    let root = ground.path("image");
    let mut command = ground.command(LAYOUT);
    command.arg(program).arg(&root);
    let ended = ground.end_of(command);
    assert_eq!(ended.code, Some(0), "{ended}");
    root
}

/// The arguments of an instruction that the recipe has once.
fn instruction(name: &str) -> &'static str {
    let mut of_it = RECIPE.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let found = of_it.next().unwrap_or_else(|| panic!("no {name}"));
    assert_eq!(of_it.next(), None, "{name} twice");
    found
}

/// The same, of one text in a list.
fn only_one_of(name: &str) -> &'static str {
    instruction(name).trim_matches(|c: char| "[]\"".contains(c))
}

fn inside(root: &Path, path: &str) -> PathBuf {
    root.join(path.strip_prefix('/').expect("a full path"))
}

#[test]
fn image_has_what_its_recipe_names() {
    let ground = Ground::new("image");
    let root = lay_out(&ground, HEADROOM);
    assert_eq!((instruction("FROM"), instruction("COPY")), ("scratch", ". /"));
    let cache = only_one_of("VOLUME");
    assert_eq!(instruction("ENV"), format!("HEADROOM_PARTS={cache}"));
    for folder in [cache, instruction("WORKDIR"), "/run", "/tmp"] {
        assert!(inside(&root, folder).is_dir(), "{folder}");
    }
    assert!(inside(&root, only_one_of("ENTRYPOINT")).is_file());
    let licence = format!("licenses=\"{}\"", env!("CARGO_PKG_LICENSE"));
    assert!(RECIPE.contains(&licence), "{licence}");
}

#[test]
fn the_program_starts_with_the_files_of_the_image_alone() {
    let ground = Ground::new("image-start");
    let root = lay_out(&ground, HEADROOM);
    let started = |arguments: &[&str]| -> Ended {
        let mut command = ground.command("unshare");
        if !geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(arguments);
        ground.end_of(command)
    };
    let probe = started(&["true"]);
    if probe.code != Some(0) {
        eprintln!("skipped: this kernel refuses user namespaces: {probe}");
        return;
    }
    let root = format!("--root={}", root.display());
    let ended = started(&[root.as_str(), only_one_of("ENTRYPOINT"), "--version"]);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(ended.stdout.starts_with("headroom "), "{ended}");
}

#[test]
fn commands_in_the_recipe_have_options_that_exist() {
    let ground = Ground::new("image-options");
    let root = lay_out(&ground, HEADROOM);
    let typed: Vec<&str> =
        RECIPE.lines().filter_map(|line| line.strip_prefix("#   ")).map(str::trim).collect();
    let typed = typed.join("\n").replace("\\\n", "");
    let (mut made, mut built, mut run) = (0, 0, 0);
    for line in typed.lines() {
        if let Some(target) = line.strip_prefix("make ") {
            made += 1;
            let rule = format!("{target}:");
            assert!(MAKEFILE.lines().any(|line| line.starts_with(&rule)), "{line}");
        } else if line.starts_with("podman build ") {
            built += 1;
            assert!(line.contains(" --file contrib/Containerfile "), "{line}");
            let folder = line.rsplit(' ').next().and_then(|path| path.strip_prefix("target/"));
            let folder = folder.expect("a folder of the build");
            let layout =
                format!("scripts/image-root $(STATIC_HEADROOM) $(CARGO_TARGET_DIR)/{folder}");
            assert!(MAKEFILE.contains(&layout), "{layout}");
        } else if let Some(engine) = line.strip_prefix("podman run ") {
            run += 1;
            let (engine, ours) = engine.split_once(" headroom ").expect("the name of the image");
            assert_mounts(&root, engine);
            assert_options(&ground, ours);
        } else {
            panic!("neither built nor run: {line}");
        }
    }
    assert!(made == 1 && built == 1 && run > 1, "{typed}");
}

/// Volumes are mounted on folders of the image.
fn assert_mounts(root: &Path, engine: &str) {
    let words: Vec<&str> = engine.split(' ').collect();
    for pair in words.windows(2).filter(|pair| pair[0] == "-v") {
        let (_, folder) = pair[1].trim_matches('"').rsplit_once(':').expect("where it is mounted");
        assert!(inside(root, folder).is_dir(), "{engine}");
    }
}

/// The help of a subcommand has the options that it is given.
fn assert_options(ground: &Ground, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_option = |word: &&&str| word.starts_with("--");
    let mut command = ground.command(HEADROOM);
    command.args(words.iter().take_while(|word| !is_option(word))).arg("--help");
    let help = ground.end_of(command);
    assert_eq!(help.code, Some(0), "{help}");
    for option in words.iter().filter(is_option) {
        assert!(help.stdout.contains(*option), "{line}: no {option} in {help}");
    }
}
