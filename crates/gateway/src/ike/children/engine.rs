//! Puts CHILD SAs into the engine.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use headroom_ike::ChildId;
use headroom_ipsec::{Engine, PolicySpec, SaSpec, SpecError};

use super::{Children, Installed};
use crate::datapath::Datapath;

impl Children {
    /// Puts what has changed into the engine, onto `base` if that is another one that was made from
    /// the file. No packet is lost. Returns the CHILD SAs that cannot be used, for example because
    /// what they protect belongs to an earlier policy, and why; the others are in force.
    ///
    /// # Errors
    /// The kernel's error, or a sentence if the engine refuses what is not of a CHILD SA. Then nothing
    /// has changed, and the next call tries again.
    pub(in crate::ike) fn apply(
        &mut self,
        datapath: &Datapath,
        base: Option<&Engine>,
    ) -> io::Result<Vec<(ChildId, String)>> {
        let (present, now) = (datapath.engine(), datapath.now());
        self.put(&present, base, now, |engine| datapath.reload(engine))
    }

    pub(super) fn put(
        &mut self,
        present: &Engine,
        base: Option<&Engine>,
        now: Duration,
        reload: impl FnOnce(Engine) -> io::Result<()>,
    ) -> io::Result<Vec<(ChildId, String)>> {
        // what has come and gone since
        self.added.retain(|spec| !self.removed.contains(&spec.name));
        self.removed.retain(|name| present.association(name).is_some());
        let mut added: Vec<SaSpec> = self.added.iter().map(SaSpec::copy).collect();
        let (mut removed, mut refused) = (self.removed.clone(), Vec::new());
        for (id, child) in &mut self.installed {
            if child.selectors.is_empty() && !child.is_refused && !child.is_ending {
                child.is_refused = true;
                refused.push((*id, "no packet matches its traffic selectors".to_owned()));
            }
        }
        let made = loop {
            match self.engine(present, base, now, (&added, &removed)) {
                Ok((engine, covered)) => {
                    let policies = if covered.is_empty() { Vec::new() } else { self.policies() };
                    for error in &covered {
                        let policy = policies.iter().find(|one| one.name == error.name);
                        refused.extend(self.refuse(error, policy));
                    }
                    break Ok(engine);
                }
                // one peer's CHILD SA does not stop those of the others
                Err(error) => {
                    let is_moved = |spec: &SaSpec| {
                        spec.name == error.name && present.association(&spec.name).is_some()
                    };
                    if added.extract_if(.., |spec| is_moved(spec)).next().is_some() {
                        // it stays where it was
                        continue;
                    }
                    let culprits = self.refuse(&error, None);
                    if culprits.is_empty() {
                        break Err(io::Error::other(error.to_string()));
                    }
                    for child in culprits.iter().filter_map(|(id, _)| self.installed.get(id)) {
                        removed.extend([child.inbound.clone(), child.outbound.clone()]);
                    }
                    added.retain(|spec| !removed.contains(&spec.name));
                    refused.extend(culprits);
                }
            }
        };
        match made.and_then(reload) {
            Ok(()) => {
                self.added.clear();
                self.removed.clear();
                Ok(refused)
            }
            Err(error) => {
                for (id, _) in refused {
                    if let Some(child) = self.installed.get_mut(&id) {
                        child.is_refused = false;
                    }
                }
                self.is_changed = true;
                Err(error)
            }
        }
    }

    /// Makes the engine with these associations more and less, and what it says of policies.
    fn engine(
        &self,
        present: &Engine,
        base: Option<&Engine>,
        now: Duration,
        (added, removed): (&[SaSpec], &HashSet<String>),
    ) -> Result<(Engine, Vec<SpecError>), SpecError> {
        let new: HashSet<&str> = added.iter().map(|spec| spec.name.as_str()).collect();
        // one that is between other addresses replaces itself
        let stays =
            |spec: &SaSpec| !removed.contains(&spec.name) && !new.contains(spec.name.as_str());
        let (policies, added) = (self.policies(), added.iter().map(SaSpec::copy).collect());
        let (engine, covered) = match base {
            // no name in a file has a slash
            Some(base) => {
                let is_kept = |spec: &SaSpec| spec.name.contains('/') && stays(spec);
                base.join(present, is_kept, added, policies, now)?
            }
            None => present.update(stays, added, policies, now)?,
        };
        for sa in new.iter().filter_map(|name| engine.association(name)) {
            // The key was negotiated for this association and is nowhere else, so no earlier run
            // can have used its numbers, and the ledger has nothing to reserve.
            sa.sequence().grant(u64::MAX);
        }
        Ok((engine, covered))
    }

    /// Stops using the CHILD SAs of an association or a policy that cannot be used; if an earlier policy
    /// covers `covered`, those that have its selector. Others have only some packets in common with it.
    fn refuse(
        &mut self,
        error: &SpecError,
        covered: Option<&PolicySpec>,
    ) -> Vec<(ChildId, String)> {
        let mut parts = error.name.split('/');
        let name = parts.next().unwrap_or_default();
        let tenant = parts.next().and_then(|part| part.parse::<IpAddr>().ok());
        let is_association = error.kind == "association";
        let mut refused = Vec::new();
        for id in self.by_name.get(name).into_iter().flatten() {
            let is_meant = |child: &&mut Installed| {
                let is_of_error = match is_association {
                    true => [&child.inbound, &child.outbound].contains(&&error.name),
                    false => {
                        let has = |policy: &PolicySpec| child.selectors.contains(&policy.selector);
                        child.tenant == tenant && covered.is_none_or(has)
                    }
                };
                !child.is_refused && is_of_error
            };
            if let Some(child) = self.installed.get_mut(id).filter(is_meant) {
                child.is_refused = true;
                refused.push((*id, error.to_string()));
            }
        }
        refused
    }
}
