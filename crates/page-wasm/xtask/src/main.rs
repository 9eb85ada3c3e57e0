//! Makes the WebAssembly module of the page, which is checked in; with `--check`, makes it
//! elsewhere and reports whether the one that is checked in is the same.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, bail, ensure};
use wasm_bindgen_cli_support::Bindgen;

/// What is made.
const FILES: [&str; 2] = ["protocol.js", "protocol_bg.wasm"];

fn main() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize()?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let target = target.join("page-wasm");
    let made = target.join("made");
    compile(&root, &target)?;
    fs::create_dir_all(&made)?;
    Bindgen::new()
        .input_path(target.join("wasm32-unknown-unknown/release/headroom_page_wasm.wasm"))
        .out_name("protocol")
        .web(true)?
        .typescript(false)
        .remove_name_section(true)
        .remove_producers_section(true)
        .omit_default_module_path(false)
        .generate(&made)?;
    let kept = root.join("crates/page/web");
    let check = env::args().nth(1).as_deref() == Some("--check");
    for name in FILES {
        let new = fs::read(made.join(name)).with_context(|| format!("{name} was not made"))?;
        if check {
            let old = fs::read(kept.join(name)).unwrap_or_default();
            if old != new {
                bail!("crates/page/web/{name} is not current: run `make page-wasm`, and commit it");
            }
        } else {
            fs::write(kept.join(name), new)?;
        }
    }
    Ok(())
}

/// Compiles for a browser, so that the result is the same on every machine: with the toolchain and
/// the dependencies that the repository pins, and without paths of this machine.
fn compile(root: &Path, target: &Path) -> anyhow::Result<()> {
    let cargo_home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")))
        .context("cannot tell where cargo keeps sources")?;
    let sources = fs::read_dir(cargo_home.join("registry/src"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .map(|path| format!("--remap-path-prefix={}=/registry", path.display()));
    let flags: Vec<_> = ["-Ctarget-feature=+simd128".to_owned()]
        .into_iter()
        .chain([format!("--remap-path-prefix={}=/source", root.display())])
        .chain(sources)
        .collect();
    let status = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()))
        .current_dir(root)
        .args(["build", "--release", "--locked", "--quiet", "--target", "wasm32-unknown-unknown"])
        .args(["-p", "headroom-page-wasm", "--lib", "--target-dir"])
        .arg(target)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env("CARGO_PROFILE_RELEASE_LTO", "true")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_INCREMENTAL", "0")
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the module does not compile");
    Ok(())
}
