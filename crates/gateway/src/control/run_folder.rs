//! The run folder, `/run/headroom`: sockets, state files and locks of this host's tunnels.

use std::fs::Permissions;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;

use headroom_file_lock::LockedFile;
use serde::{Deserialize, Serialize};

use super::error::{Doing, Error, path};
use crate::host::Step;
use crate::ledger;

/// The default folder.
const DEFAULT_FOLDER: &str = "/run/headroom";
/// The environment variable that names another folder.
pub const RUN_DIR_VARIABLE: &str = "HEADROOM_RUN_DIR";
/// The longest state file in bytes.
const MAX_STATE: u64 = 64 << 20;

/// The run folder.
#[derive(Debug, Clone)]
pub struct RunFolder(PathBuf);

/// The changes that a tunnel made on the host, so that another process can undo them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    /// The gateway's process.
    pub(super) pid: u32,
    /// Its configuration.
    pub(super) config: PathBuf,
    /// Changes that outlive the gateway.
    pub(super) before: Vec<Step>,
    /// Changes that vanish with the interface.
    pub(super) after: Vec<Step>,
}

impl Default for RunFolder {
    fn default() -> Self {
        let said = std::env::var_os(RUN_DIR_VARIABLE).filter(|value| !value.is_empty());
        Self(said.map_or_else(|| DEFAULT_FOLDER.into(), PathBuf::from))
    }
}

impl RunFolder {
    /// Uses another folder.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Returns the path of a tunnel's control socket.
    pub fn socket(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.sock"))
    }

    /// Returns the path of the log of a gateway in the background.
    pub fn log(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.log"))
    }

    /// Creates the folder, accessible to its owner only.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make(&self) -> Result<(), Error> {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0);
        made.and_then(|()| std::fs::set_permissions(&self.0, Permissions::from_mode(0o700)))
            .doing(|| path("make the folder", &self.0))
    }

    /// Lists the tunnels with a socket or a state file.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let name = name.strip_suffix(".sock").or_else(|| name.strip_suffix(".json"))?;
                Some(name.to_owned())
            })
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// Returns the name, or that of the only tunnel.
    ///
    /// # Errors
    /// There is no tunnel, or more than one.
    pub fn choose(&self, name: Option<&str>) -> Result<String, Error> {
        if let Some(name) = name {
            // the name becomes part of a path
            let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
            if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
                return Err(Error::NotRunning(format!("`{name}` is not a valid name of a tunnel")));
            }
            return Ok(name.to_owned());
        }
        let mut names = self.names();
        match names.len() {
            1 => Ok(names.remove(0)),
            0 => Err(Error::NotRunning(format!("no tunnel is up ({} is empty)", self.0.display()))),
            _ => Err(Error::NotRunning(format!(
                "more than one tunnel is up; choose one of {}",
                names.join(", ")
            ))),
        }
    }

    /// Takes the lock of a tunnel, which its gateway holds as long as it lives.
    ///
    /// # Errors
    /// Another gateway holds it.
    pub(super) fn lock(&self, name: &str) -> Result<LockedFile, Error> {
        let beside = self.0.join(format!("{name}.lock"));
        let lock = ledger::try_lock(&beside).doing(|| path("lock", &beside))?;
        lock.ok_or_else(|| {
            let advice = format!(
                "`headroom tunnel down {name}` takes it down, `headroom tunnel reload {name}` reloads its configuration"
            );
            Error::Refused(format!("the tunnel `{name}` is up already: {advice}"))
        })
    }

    fn state(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.json"))
    }

    /// Reads the state that an earlier gateway left; none if there is none.
    pub(super) fn read_state(&self, name: &str) -> Result<Option<State>, Error> {
        let file = self.state(name);
        let text = match std::fs::metadata(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Ok(about) if about.len() > MAX_STATE => Err(std::io::Error::other("it is too long")),
            Ok(_) => std::fs::read_to_string(&file),
            Err(error) => Err(error),
        };
        let text = text.doing(|| path("read", &file))?;
        serde_json::from_str(&text).map(Some).map_err(|error| {
            Error::Refused(format!(
                "the state file {} is damaged ({error}): inspect `ip rule`, `ip route show table all` and `nft list \
                 tables`, undo the tunnel's changes by hand, then remove the file",
                file.display()
            ))
        })
    }

    /// Writes the changes that must be undone.
    pub(super) fn write_state(&self, name: &str, state: &State) -> Result<(), Error> {
        let file = self.state(name);
        let text = serde_json::to_vec_pretty(state).map_err(std::io::Error::other);
        text.and_then(|text| headroom_atomic_file::replace(&file, &text, 0o600))
            .doing(|| path("write", &file))
    }

    /// Removes a tunnel's socket and state file.
    pub(super) fn forget(&self, name: &str) {
        for file in [self.socket(name), self.state(name)] {
            let _ = std::fs::remove_file(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Command;

    #[test]
    fn chooses_the_only_tunnel_and_rejects_names_that_are_paths() {
        let ground = tempfile::tempdir().expect("a folder");
        let folder = ground.path().join("run");
        let run = RunFolder::at(folder.clone());
        assert!(run.choose(None).is_err());
        run.make().expect("a folder");
        assert_eq!(
            std::fs::metadata(&folder).expect("a folder").permissions().mode() & 0o777,
            0o700
        );
        let step = Step {
            make: Command::words("true"),
            undo: Some(Command::words("false")),
            optional: false,
        };
        let state =
            State { pid: 7, config: "/etc/hr0.toml".into(), before: vec![step], after: Vec::new() };
        run.write_state("hr0", &state).expect("a state");
        assert_eq!(run.read_state("hr0").expect("a state"), Some(state.clone()));
        assert_eq!(run.choose(None).expect("the only one"), "hr0");
        run.write_state("hr1", &state).expect("a state");
        let error = run.choose(None).expect_err("two").to_string();
        assert!(error.contains("hr0, hr1"), "{error}");
        for name in ["", "../hr0", ".hr0", "a/b"] {
            assert!(run.choose(Some(name)).is_err(), "{name}");
        }
        std::fs::write(run.state("hr1"), "{").expect("damaged");
        let error = run.read_state("hr1").expect_err("damaged").to_string();
        assert!(error.contains("by hand"), "{error}");
        run.forget("hr0");
        run.forget("hr1");
        assert!(run.names().is_empty());
    }

    #[test]
    fn only_one_gateway_holds_the_lock() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = RunFolder::at(folder.path().to_owned());
        let held = run.lock("hr0").expect("free");
        assert!(run.lock("hr0").expect_err("held").to_string().contains("is up already"));
        drop(held);
        run.lock("hr0").expect("free again");
    }
}
