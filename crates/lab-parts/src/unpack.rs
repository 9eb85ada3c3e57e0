//! Unpacks Debian packages (deb(5)): an `ar` archive whose member `data.tar.xz` has the files.

use std::path::Path;

use lzma_rust2::XzReader;

use crate::error::{Error, Result};
use crate::lock::Package;

const MAGIC: &[u8] = b"!<arch>\n";
const HEADER: usize = 60;

/// Unpacks the files of a package into a folder: without owners, set-user-ID bits and scripts.
///
/// # Errors
/// It has another form, or the folder cannot be written.
pub(crate) fn unpack(package: &Package<'_>, content: &[u8], folder: &Path) -> Result<()> {
    let wrong = |what: String| Error::Package { package: package.name.to_owned(), what };
    let data =
        member(content, "data.tar.xz").ok_or_else(|| wrong("it has no data.tar.xz".to_owned()))?;
    let mut files = tar::Archive::new(XzReader::new(data, false));
    files.set_preserve_permissions(false); // the bits 0777 are kept
    files.set_preserve_mtime(false);
    files.set_overwrite(true);
    // it refuses names that lead out of the folder
    files.unpack(folder).map_err(|error| wrong(error.to_string()))
}

/// Finds a member of an `ar` archive: headers of 60 bytes, each with name and size in decimal
/// digits, ahead of contents that begin at even places.
fn member<'a>(archive: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut rest = archive.strip_prefix(MAGIC)?;
    while let Some((header, content)) = rest.split_at_checked(HEADER) {
        let field = |from: usize, to: usize| std::str::from_utf8(&header[from..to]).map(str::trim);
        let size: usize = field(48, 58).ok()?.parse().ok()?;
        let (content, after) = content.split_at_checked(size)?;
        if field(0, 16).ok()?.trim_end_matches('/') == name {
            return Some(content);
        }
        rest = after.get(size % 2..)?;
    }
    None
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;

    use lzma_rust2::{XzOptions, XzWriter};

    use super::*;

    /// Makes a package of files: path, mode and content.
    pub(crate) fn package_of(files: &[(&str, u32, &[u8])]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, mode, content) in files {
            if let Some(folder) = Path::new(path).parent() {
                let mut header = tar::Header::new_gnu();
                header.set_entry_type(tar::EntryType::Directory);
                header.set_mode(0o700);
                header.set_size(0);
                tar.append_data(&mut header, folder, &[][..]).expect("memory");
            }
            let mut header = tar::Header::new_gnu();
            header.set_mode(*mode);
            header.set_size(content.len() as u64);
            tar.append_data(&mut header, path, *content).expect("memory");
        }
        package_with(tar)
    }

    fn package_with(files: tar::Builder<Vec<u8>>) -> Vec<u8> {
        let mut xz = XzWriter::new(Vec::new(), XzOptions::default()).expect("memory");
        xz.write_all(&files.into_inner().expect("memory")).expect("memory");
        let data = xz.finish().expect("memory");
        archive(&[("debian-binary", b"2.0\n"), ("control.tar.xz", b""), ("data.tar.xz", &data)])
    }

    fn header(name: &str, size: &str) -> Vec<u8> {
        format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 644).into_bytes()
    }

    fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut archive = MAGIC.to_vec();
        for (name, content) in members {
            archive.extend(header(name, &content.len().to_string()));
            archive.extend(*content);
            archive.extend((content.len() % 2 == 1).then_some(b'\n'));
        }
        archive
    }

    #[test]
    fn finds_members_at_even_places() {
        let archive = archive(&[("debian-binary", b"2.0"), ("data.tar.xz", b"data")]);
        assert_eq!(member(&archive, "data.tar.xz"), Some(&b"data"[..]));
        assert_eq!(member(&archive, "control.tar.xz"), None);
    }

    #[test]
    fn what_is_cut_or_says_wrong_sizes_has_no_member() {
        let whole = archive(&[("debian-binary", b"2.0"), ("data.tar.xz", b"data")]);
        for length in 0..whole.len() {
            assert_eq!(member(&whole[..length], "data.tar.xz"), None, "{length}");
        }
        for size in ["-1", "99999999999999999999", "x", "", "18446744073709551615"] {
            let mut archive = MAGIC.to_vec();
            archive.extend(header("data.tar.xz", size));
            assert_eq!(member(&archive, "data.tar.xz"), None, "{size}");
        }
    }

    #[test]
    fn no_name_leads_out_of_the_folder() {
        let mut tar = tar::Builder::new(Vec::new());
        for name in ["../out", "usr/../../out", "/out"] {
            let mut header = tar::Header::new_gnu();
            header.as_gnu_mut().expect("its kind").name[..name.len()]
                .copy_from_slice(name.as_bytes());
            header.set_mode(0o644);
            header.set_size(1);
            header.set_cksum();
            tar.append(&header, &b"x"[..]).expect("memory");
        }
        let content = package_with(tar);
        let package = Package { name: "one", bytes: 0, sha256: "", place: "" };
        let outer = tempfile::tempdir().expect("a folder");
        let inner = outer.path().join("inner");
        std::fs::create_dir(&inner).expect("a folder");
        let _ = unpack(&package, &content, &inner);
        let names: Vec<_> = std::fs::read_dir(outer.path()).expect("a folder").collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn refuses_a_package_without_files() {
        let package = Package { name: "one", bytes: 0, sha256: "", place: "" };
        let folder = tempfile::tempdir().expect("a folder");
        for content in [&b""[..], &archive(&[]), &archive(&[("data.tar.xz", b"no xz")])] {
            let error = unpack(&package, content, folder.path()).expect_err("no package");
            assert!(error.to_string().starts_with("cannot unpack one: "), "{error}");
        }
    }
}
