//! Collects modules of an unpacked kernel, with their dependencies.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A module's name and its ELF file, not compressed.
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
}

/// Collects the modules `wanted` from the folder of one kernel, and their dependencies, in an order
/// that loads: each module lists its dependencies in its `.modinfo`, so no `depmod` is needed.
/// A built-in module has no file, which is no error. `busybox` is a path;
/// it decompresses modules.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn closure(folder: &Path, wanted: &[&str], busybox: &Path) -> Result<Vec<Module>> {
    let mut files = Vec::new();
    find(folder, &mut files)
        .with_context(|| format!("reading the kernel's modules in {}", folder.display()))?;
    let mut ordered = Vec::new();
    for module in wanted {
        add(module, &files, busybox, &mut ordered)?;
    }
    Ok(ordered)
}

fn add(name: &str, files: &[PathBuf], busybox: &Path, ordered: &mut Vec<Module>) -> Result<()> {
    // file names have dashes where module names have underscores, or not
    let plain = |name: &str| name.replace('-', "_");
    if ordered.iter().any(|other| other.name == plain(name)) {
        return Ok(());
    }
    let named = |path: &&PathBuf| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        file.split('.').next().is_some_and(|stem| plain(stem) == plain(name))
    };
    let Some(path) = files.iter().find(named) else { return Ok(()) };
    let content = read(path, busybox)?;
    for needed in dependencies(&content) {
        add(&needed, files, busybox, ordered)?;
    }
    ordered.push(Module { name: plain(name), content });
    Ok(())
}

/// Finds a module's file. Debian compresses modules from release 13 on.
fn read(path: &Path, busybox: &Path) -> Result<Vec<u8>> {
    let reading = || format!("reading {}", path.display());
    if path.extension().is_none_or(|extension| extension != "xz") {
        return std::fs::read(path).with_context(reading);
    }
    let output = Command::new(busybox).arg("xzcat").arg(path).output().with_context(reading)?;
    ensure!(output.status.success(), "{} is no xz file", path.display());
    Ok(output.stdout)
}

/// Reads `depends=` among a module's NUL-terminated `.modinfo` strings.
fn dependencies(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let value = module[at + KEY.len()..].split(|&octet| octet == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(value).into_owned();
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            find(&entry.path(), files)?;
        } else if name.ends_with(".ko") || name.ends_with(".ko.xz") {
            files.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_says_what_it_needs() {
        let module = b"\x7fELF\0license=GPL\0depends=xfrm_algo,libdes\0name=x\0";
        assert_eq!(dependencies(module), ["xfrm_algo", "libdes"]);
        assert_eq!(dependencies(b"\0depends=\0name=y\0"), [""; 0]);
    }
}
