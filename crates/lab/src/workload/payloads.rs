//! The files of a run, made at their first use.

use std::collections::BTreeMap;

use headroom_lab_host::content::{Content, ContentKind};
use headroom_lab_host::error::Result;
use headroom_lab_host::host::Host;
use headroom_lab_host::role::Role;

/// The files of a run, in the folder `files` of each host that needs them.
#[derive(Debug)]
pub(crate) struct Payloads {
    seed: u64,
    made: BTreeMap<(Role, u64, ContentKind), Content>,
    trees: BTreeMap<(u64, u32), Vec<Content>>,
}

impl Payloads {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, made: BTreeMap::new(), trees: BTreeMap::new() }
    }

    /// The name of the file of this size and content on this host; made at the first
    /// call.
    pub(super) fn file(
        &mut self,
        host: &Host,
        size: u64,
        kind: ContentKind,
    ) -> Result<(String, Content)> {
        let name = match kind {
            ContentKind::Random => format!("f{size}"),
            other => format!("f{size}-{}", other.name()),
        };
        if let Some(&content) = self.made.get(&(host.role, size, kind)) {
            return Ok((name, content));
        }
        let path = host.root.join("files").join(&name);
        let content = host.make_file(&path, size, self.seed ^ size, kind)?;
        self.made.insert((host.role, size, kind), content);
        Ok((name, content))
    }

    /// The name of a folder of `count` files of this size; made at the first call.
    pub(super) fn tree(
        &mut self,
        host: &Host,
        size: u64,
        count: u32,
    ) -> Result<(String, Vec<Content>)> {
        let name = format!("tree{size}x{count}");
        if let Some(contents) = self.trees.get(&(size, count)) {
            return Ok((name, contents.clone()));
        }
        let folder = host.root.join("files").join(&name);
        let seeds = (0..u64::from(count)).map(|i| self.seed ^ size ^ (i << 32)).collect();
        let contents = host.make_tree(&folder, size, seeds)?;
        self.trees.insert((size, count), contents.clone());
        Ok((name, contents))
    }
}
