//! Names of users and groups, each looked up once.

use std::collections::HashMap;

use headroom_transfer_proto::message::Owner;
use nix::unistd::{Gid, Group, Uid, User};

/// The most names or numbers that are remembered; a peer may invent them.
const MAX: usize = 1 << 12;

/// Users and groups of this machine.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    names: HashMap<(AccountKind, u32), String>,
    ids: HashMap<(AccountKind, String), Option<u32>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum AccountKind {
    User,
    Group,
}

impl Owners {
    /// Returns a user's name; empty if there is none.
    pub(crate) fn user(&mut self, id: u32) -> String {
        self.name(AccountKind::User, id)
    }

    /// Returns a group's name; empty if there is none.
    pub(crate) fn group(&mut self, id: u32) -> String {
        self.name(AccountKind::Group, id)
    }

    /// Maps a user to the number that its name has here, if any.
    pub(crate) fn set_user(&mut self, owner: &mut Owner) {
        self.set(AccountKind::User, owner);
    }

    /// Maps a group to the number that its name has here, if any.
    pub(crate) fn set_group(&mut self, owner: &mut Owner) {
        self.set(AccountKind::Group, owner);
    }

    fn name(&mut self, kind: AccountKind, id: u32) -> String {
        if self.names.len() >= MAX {
            self.names.clear();
        }
        let look_up = || match kind {
            AccountKind::User => User::from_uid(Uid::from_raw(id)).ok()?.map(|user| user.name),
            AccountKind::Group => Group::from_gid(Gid::from_raw(id)).ok()?.map(|group| group.name),
        };
        self.names.entry((kind, id)).or_insert_with(|| look_up().unwrap_or_default()).clone()
    }

    fn set(&mut self, kind: AccountKind, owner: &mut Owner) {
        // 0 is root everywhere, and no other name maps to it
        if owner.name.is_empty() || owner.id == 0 {
            return;
        }
        if self.ids.len() >= MAX {
            self.ids.clear();
        }
        let name = std::mem::take(&mut owner.name);
        let look_up = |name: &str| match kind {
            AccountKind::User => User::from_name(name).ok()?.map(|user| user.uid.as_raw()),
            AccountKind::Group => Group::from_name(name).ok()?.map(|group| group.gid.as_raw()),
        };
        let id = self.ids.entry((kind, name)).or_insert_with_key(|(_, name)| look_up(name));
        if let Some(id) = *id {
            owner.id = id;
        }
    }
}
