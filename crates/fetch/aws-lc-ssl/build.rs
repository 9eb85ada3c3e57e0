//! Compiles the libssl that is packaged, but not built, in `aws-lc-sys`.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    let (version, include) = libcrypto()?;
    let sources = libssl_sources(&version)?;
    // `BORINGSSL_IMPLEMENTATION` as in AWS-LC's own build. What libssl uses of C++ needs no
    // C++ runtime (ssl/internal.h, `PURE_VIRTUAL`), so none is linked.
    cc::Build::new()
        .cpp(true)
        .cpp_link_stdlib(None)
        .std("c++11")
        .define("BORINGSSL_IMPLEMENTATION", None)
        .flag("-fno-exceptions")
        .flag("-fno-rtti")
        .flag("-fvisibility=hidden")
        .include(&include)
        .files(sources)
        .warnings(false)
        .debug(false)
        .try_compile("aws_lc_ssl")?;
    // Read by curl-sys as DEP_OPENSSL_INCLUDE.
    println!("cargo::metadata=include={}", include.display());
    println!("cargo::rerun-if-changed=build.rs");
    Ok(())
}

/// The version of `aws-lc-sys` and the folder of its headers. Cargo passes both as
/// `DEP_AWS_LC_0_47_0_INCLUDE`: the version is a part of the name.
fn libcrypto() -> Result<(String, PathBuf), Box<dyn Error>> {
    env::vars()
        .find_map(|(name, value)| {
            let version = name.strip_prefix("DEP_AWS_LC_")?.strip_suffix("_INCLUDE")?;
            Some((version.replace('_', "."), PathBuf::from(value)))
        })
        .ok_or_else(|| "aws-lc-sys names no folder of headers (DEP_AWS_LC_…_INCLUDE)".into())
}

/// All source files of libssl but its tests.
fn libssl_sources(version: &str) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let folder = package_folder(version)?.join("aws-lc/ssl");
    let entries = std::fs::read_dir(&folder)
        .map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    let mut sources = entries
        .map(|entry| Ok(entry?.path()))
        .filter(|path| path.as_ref().map_or(true, |path| is_library_source(path)))
        .collect::<std::io::Result<Vec<PathBuf>>>()?;
    sources.sort(); // so that the archive is the same everywhere
    Ok(sources)
}

fn is_library_source(path: &Path) -> bool {
    let ends_with = |suffix: &str| path.to_string_lossy().ends_with(suffix);
    (ends_with(".cc") || ends_with(".c")) && !ends_with("_test.cc") && !ends_with("_test.c")
}

/// Where Cargo has unpacked this version of `aws-lc-sys`. Its build script does not tell,
/// `cargo metadata` does, also for vendored sources.
fn package_folder(version: &str) -> Result<PathBuf, Box<dyn Error>> {
    let output = Command::new(env::var("CARGO")?)
        .args(["metadata", "--format-version=1", "--locked"])
        .args(["--filter-platform", &env::var("TARGET")?])
        .current_dir(env::var("CARGO_MANIFEST_DIR")?)
        .output()?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let metadata = String::from_utf8(output.stdout)?;
    let package = format!(r#""name":"aws-lc-sys","version":"{version}""#);
    let manifest = metadata
        .split_once(&package)
        .and_then(|(_, rest)| rest.split_once(r#""manifest_path":""#))
        .and_then(|(_, rest)| rest.split_once('"'))
        .map(|(path, _)| Path::new(path));
    let folder = manifest.and_then(Path::parent);
    folder
        .map(Path::to_owned)
        .ok_or_else(|| format!("cargo metadata names no folder of aws-lc-sys {version}").into())
}
