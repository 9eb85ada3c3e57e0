//! Ends a partial file: verifies and renames it, or removes it.

use headroom_transfer_proto::message::Attributes;
use nix::fcntl::renameat;
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::{Partial, State};
use crate::files::disk::change::change;
use crate::files::disk::open::leads_to;
use crate::files::disk::replace::{complete, replaceable, sync_directory};
use crate::files::error::{Error, ErrorKind};
use crate::files::offer::{Seal, Stored};

impl Partial {
    /// Verifies the complete file, sets its attributes, and renames it, replacing the file or link
    /// of that name.
    ///
    /// # Errors
    /// Spans are missing: the data stays. The hash is wrong: the data is removed. The name now
    /// belongs to something that is not replaced, or the disk refuses: the data stays.
    pub fn finish_with(
        &self,
        seal: &Seal,
        attributes: Option<&Attributes>,
    ) -> Result<Stored, Error> {
        self.seal(seal, attributes).map_err(|kind| self.error("stored", kind))
    }

    /// Removes the data.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn abandon(&self) -> Result<(), Error> {
        self.remove().map_err(|kind| self.error("removed", kind))
    }

    fn seal(&self, seal: &Seal, attributes: Option<&Attributes>) -> Result<Stored, ErrorKind> {
        let root = self.progress().root()?;
        if root != seal.root {
            self.remove()?;
            return Err(ErrorKind::Mismatch);
        }
        let mut state = self.state();
        if *state == State::Ended {
            return Err(ErrorKind::Moved);
        }
        complete(&self.file, seal, attributes)?;
        // somebody with write access could have put something else there
        if !leads_to(&self.directory, &self.temporary, self.identity)? {
            return Err(ErrorKind::Moved);
        }
        let replaced = replaceable(&self.directory, self.path.name())?.is_some();
        change(&self.directory, || {
            renameat(&self.directory, &*self.temporary, &self.directory, self.path.name())
        })?;
        *state = State::Ended;
        if seal.fsync {
            sync_directory(&self.directory)?;
        }
        Ok(Stored { replaced })
    }

    fn remove(&self) -> Result<(), ErrorKind> {
        let mut state = self.state();
        if *state != State::Ended && leads_to(&self.directory, &self.temporary, self.identity)? {
            change(&self.directory, || {
                unlinkat(&self.directory, &*self.temporary, UnlinkatFlags::NoRemoveDir)
            })?;
        }
        *state = State::Ended;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if *self.state() == State::Untouched {
            // a remaining empty file is harmless
            let _ = self.remove();
        }
    }
}
