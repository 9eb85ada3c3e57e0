//! Writes a cpio archive, the kernel's first file system.

use std::path::Path;

use anyhow::{Context, Result};

/// A cpio archive in the "new ASCII" format that the kernel unpacks
/// (Documentation/driver-api/early-userspace/buffer-format.rst).
#[derive(Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    inodes: usize,
}

impl Archive {
    pub(crate) fn folder(&mut self, name: &str) {
        self.entry(name, 0o040_755, (0, 0), &[]);
    }

    pub(crate) fn console(&mut self) {
        self.entry("dev/console", 0o020_600, (5, 1), &[]);
    }

    pub(crate) fn file(&mut self, name: &str, mode: usize, content: &[u8]) {
        self.entry(name, 0o100_000 | mode, (0, 0), content);
    }

    /// A symbolic link to `target`.
    pub(crate) fn link(&mut self, name: &str, target: &str) {
        self.entry(name, 0o120_777, (0, 0), target.as_bytes());
    }

    pub(crate) fn copy(&mut self, name: &str, path: &Path) -> Result<()> {
        let content = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        self.file(name, 0o755, &content);
        Ok(())
    }

    fn entry(&mut self, name: &str, mode: usize, device: (usize, usize), content: &[u8]) {
        self.inodes += 1;
        let fields = [
            self.inodes,
            mode,
            0,
            0,
            1,
            0,
            content.len(),
            0,
            0,
            device.0,
            device.1,
            name.len() + 1,
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_aligned_entries_and_an_end() {
        let mut archive = Archive::default();
        archive.file("a", 0o644, b"hello");
        let bytes = archive.finish();
        assert!(bytes.starts_with(b"07070100000001000081a4"));
        assert_eq!(&bytes[112..117], b"hello");
        assert_eq!(&bytes[120..126], b"070701");
        assert_eq!(bytes.len() % 4, 0);
        assert!(bytes.windows(10).any(|window| window == b"TRAILER!!!"));
    }
}
