//! Records the machine, its programs and settings.

use std::collections::{BTreeMap, BTreeSet};

use headroom_lab_host::host::Host;
use headroom_lab_host::machine::Machine;
use headroom_lab_host::privileges::Privileges;
use headroom_lab_host::programs::Program;
use headroom_lab_host::testbed::{self, Processors};
use headroom_lab_results::schema::{Environment, HostRecord, PROCESSORS, ProgramRecord};

use super::bench::Bench;
use crate::plan::Plan;

/// Now, as RFC 3339 in UTC.
pub(super) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub(super) fn record(
    plan: &Plan,
    bench: &Bench<'_>,
    client_version: &str,
    started: String,
) -> Environment {
    let testbed = &bench.testbed;
    let mut programs = plan.programs();
    programs.sort();
    programs.dedup();
    let found = |host: &Host, program: Program, name: String| {
        let located = host.locate(program).ok()?;
        let version = host.version(program);
        let blake3 = match version {
            Some(_) => None,
            None => host.digest(&located.path).ok(),
        };
        Some(ProgramRecord {
            name,
            version: version.unwrap_or_default(),
            blake3,
            path: located.path.display().to_string(),
            origin: located.origin.name().to_owned(),
        })
    };
    let hosts = [&testbed.server, &testbed.client];
    let mut records: Vec<ProgramRecord> = Vec::new();
    for program in programs {
        if testbed.one_machine() {
            let name = || program.name.to_owned();
            records.extend(hosts.into_iter().find_map(|host| found(host, program, name())));
        } else {
            let name = |host: &Host| format!("{} on the {}", program.name, host.role);
            records.extend(hosts.into_iter().filter_map(|host| found(host, program, name(host))));
        }
    }
    records.push(ProgramRecord {
        name: "headroom fetch".to_owned(),
        version: client_version.to_owned(),
        blake3: None,
        path: "this program".to_owned(),
        origin: "built-in".to_owned(),
    });
    let stacks = plan.stacks.iter().map(|planned| {
        let facts = planned.stack.application.facts();
        let facts = facts.into_iter().map(|(name, value)| (name.to_owned(), value));
        let window = planned
            .stack
            .application
            .window()
            .map(|(_, words)| ("window".to_owned(), words.to_owned()));
        let layers = planned.stack.layers.iter().flat_map(|layer| {
            let named =
                move |(name, value): (&str, String)| (format!("{}: {name}", layer.name()), value);
            layer.facts().into_iter().map(named)
        });
        let mtu = bench.inner_mtus(&planned.stack.name);
        let congestion_control = planned
            .congestion_control
            .as_ref()
            .map(|name| ("congestion control".to_owned(), format!("{name} (by route, verified)")));
        let facts = facts.chain(window).chain(congestion_control).chain(layers).chain(mtu);
        (planned.stack.name.clone(), facts.collect())
    });
    let hosts = testbed.host_records().to_vec();
    let (files, buffers, metrics, offload) = if hosts.is_empty() {
        (
            format!("on {}", testbed.root_kind),
            "up to 16 MiB each way",
            if Privileges::of_this_process().is_root() {
                "not saved, flushed before each block"
            } else {
                "not saved"
            },
            plan.offload.name(),
        )
    } else {
        let of = |host: &HostRecord| format!("on {} at the {}", host.files, host.role);
        let files: Vec<String> = hosts.iter().map(of).collect();
        let default = "host default";
        (files.join(", "), "host default", "of the other host flushed before each block", default)
    };
    let settings = [
        ("run", testbed.id().to_owned()),
        (FILES, files),
        ("congestion control", testbed.congestion_control()),
        ("TCP buffers", buffers.to_owned()),
        ("TCP metrics", metrics.to_owned()),
        ("offload", offload.to_owned()),
        ("MTU", plan.mtu.to_string()),
    ];
    let pinned = headroom_lab_parts::entered().filter(|_| hosts.is_empty());
    let pinned = pinned.map(|name| (PINNED_PROGRAMS, name));
    let processors = testbed.processors().map(|processors| (PROCESSORS, processors.to_string()));
    let resolver = plan.resolver.map(|_| {
        let words = "silent: sshd asks it for each client's name, and it never answers";
        ("resolver", words.to_owned())
    });
    let privileges = hosts.is_empty().then(|| {
        [
            (PRIVILEGES, Privileges::of_this_process().to_string()),
            ("CPU time of a side", testbed::cpu_time().to_owned()),
        ]
    });
    let settings = settings
        .into_iter()
        .chain(pinned)
        .chain(processors)
        .chain(resolver)
        .chain(privileges.into_iter().flatten());
    let Machine { kernel, distribution, cpu, cores, memory_bytes } = match hosts.first() {
        None => {
            let this = Machine::this();
            // this thread has those of the link only
            let cores = testbed.processors().map_or(this.cores, Processors::count);
            Machine { cores, ..this }
        }
        Some(client) => Machine {
            kernel: client.kernel.clone(),
            distribution: client.distribution.clone(),
            cpu: client.cpu.clone(),
            cores: client.cores,
            memory_bytes: client.memory_bytes,
        },
    };
    Environment {
        started,
        finished: now(),
        headroom: env!("CARGO_PKG_VERSION").to_owned(),
        kernel,
        distribution,
        cpu,
        cores,
        memory_bytes,
        hosts,
        programs: records,
        stacks: stacks.collect(),
        settings: settings
            .map(|(name, value)| (name.to_owned(), value))
            .collect::<BTreeMap<_, _>>(),
    }
}

/// The setting that says whether files are in memory or on a disk.
const FILES: &str = "files";

/// The setting that names the tree that all programs were of, if they were.
pub(super) const PINNED_PROGRAMS: &str = "pinned programs";

/// The setting that says whether the lab was root.
const PRIVILEGES: &str = "privileges";

/// Lists the differences of machine and programs to the recorded ones, as `name: value
/// instead of value`.
pub(super) fn changes(before: &Environment, now: &Environment) -> Vec<String> {
    let facts = |environment: &Environment, other: &Environment| {
        let mut facts = BTreeMap::from([
            ("headroom".to_owned(), environment.headroom.clone()),
            ("kernel".to_owned(), environment.kernel.clone()),
            ("distribution".to_owned(), environment.distribution.clone()),
            ("cpu".to_owned(), environment.cpu.clone()),
            ("cores".to_owned(), environment.cores.to_string()),
        ]);
        let root = || Privileges::Root.to_string();
        let privileges = environment.settings.get(PRIVILEGES).cloned().unwrap_or_else(root);
        facts.insert(PRIVILEGES.to_owned(), privileges);
        for name in [FILES, PINNED_PROGRAMS] {
            let setting = environment.settings.get(name);
            facts.extend(setting.map(|value| (name.to_owned(), value.clone())));
        }
        for host in &environment.hosts {
            facts.insert(format!("kernel of the {}", host.role), host.kernel.clone());
            facts.insert(format!("cpu of the {}", host.role), host.cpu.clone());
            facts.insert(format!("cores of the {}", host.role), host.cores.to_string());
        }
        facts.extend(environment.builds(other));
        facts
    };
    let (before, now) = (facts(before, now), facts(now, before));
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let value = |of: &BTreeMap<String, String>, name: &String| {
        of.get(name).map_or_else(|| "none".to_owned(), |value| format!("`{value}`"))
    };
    names
        .into_iter()
        .filter(|name| before.get(*name) != now.get(*name))
        .map(|name| format!("{name}: {} instead of {}", value(&now, name), value(&before, name)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(settings: &[(&str, &str)]) -> Environment {
        Environment {
            started: String::new(),
            finished: String::new(),
            headroom: "1".into(),
            kernel: "6".into(),
            distribution: String::new(),
            cpu: String::new(),
            cores: 2,
            memory_bytes: 0,
            hosts: Vec::new(),
            programs: Vec::new(),
            stacks: BTreeMap::new(),
            settings: settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        }
    }

    #[test]
    fn another_build_of_a_program_without_a_version_is_a_change() {
        let of = |digest: &str| {
            let program = ProgramRecord {
                name: "uftp".to_owned(),
                version: String::new(),
                blake3: Some(digest.to_owned()),
                path: "/usr/bin/uftp".to_owned(),
                origin: "system".to_owned(),
            };
            Environment { programs: vec![program], ..with(&[]) }
        };
        let (before, now) = (of("0123456789abcdef"), of("fedcba9876543210"));
        assert_eq!(changes(&before, &before), [""; 0]);
        let expected = ["uftp: `BLAKE3 fedcba987654` instead of `BLAKE3 0123456789ab`"];
        assert_eq!(changes(&before, &now), expected);
        let earlier = with(&[]);
        assert_eq!(changes(&earlier, &now), [""; 0], "earlier runs did not record such programs");
        assert_eq!(now.programs_under_test(), [""; 0], "texts name programs by their versions");
    }

    #[test]
    fn files_elsewhere_and_other_builds_of_the_same_versions_are_changes() {
        let before = with(&[(FILES, "on tmpfs"), (PINNED_PROGRAMS, "debian-1"), ("run", "a")]);
        let same = with(&[(FILES, "on tmpfs"), (PINNED_PROGRAMS, "debian-1"), ("run", "b")]);
        assert_eq!(changes(&before, &same), [""; 0], "each process has a name of its own");
        let found = changes(&before, &with(&[(FILES, "on disk")]));
        let expected = [
            "files: `on disk` instead of `on tmpfs`",
            "pinned programs: none instead of `debian-1`",
        ];
        assert_eq!(found, expected);
    }
}
