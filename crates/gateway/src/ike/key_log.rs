//! A log of negotiated keys as tables of Wireshark, which decrypts IKE and ESP with them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use headroom_ike::crypto::{IkeKeys, Spis};
use headroom_ipsec::SaSpec;

use crate::wireshark::{ESP_TABLE, IKE_TABLE, esp_line, ike_line};

/// An open log.
#[derive(Debug)]
pub struct KeyLog {
    ike: File,
    esp: File,
}

impl KeyLog {
    /// Opens the tables in `folder`, which is made if it is not there. Lines are appended.
    ///
    /// # Errors
    /// The folder or a file cannot be written.
    pub fn open(folder: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let open =
            |name| OpenOptions::new().append(true).create(true).mode(0o600).open(folder.join(name));
        Ok(Self { ike: open(IKE_TABLE)?, esp: open(ESP_TABLE)? })
    }

    /// Adds the keys of an IKE SA. Wireshark has no name for ChaCha20-Poly1305 in IKE.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add_ike(&mut self, spis: Spis, keys: &IkeKeys) -> io::Result<()> {
        match ike_line(spis, keys) {
            Some(line) => self.ike.write_all(line.as_bytes()),
            None => Ok(()),
        }
    }

    /// Adds the keys of associations of ESP and Q-ESP.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add_children(&mut self, specs: &[SaSpec]) -> io::Result<()> {
        let mut lines = specs.iter().filter_map(esp_line);
        lines.try_for_each(|line| self.esp.write_all(line.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_for_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        drop(KeyLog::open(folder.path()).expect("a log"));
        let mode = |table| {
            let file = std::fs::metadata(folder.path().join(table)).expect("a file");
            file.permissions().mode() & 0o777
        };
        assert_eq!([IKE_TABLE, ESP_TABLE].map(mode), [0o600; 2]);
    }
}
