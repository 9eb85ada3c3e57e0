//! `lab doctor`: checks what this machine has, and what missing parts prevent.

use std::collections::BTreeSet;

use headroom_lab_host::command::Executor;
use headroom_lab_host::error::Result;
use headroom_lab_host::privileges::{self, Privileges};
use headroom_lab_host::programs::{self, Program, SearchPath};
use headroom_lab_host::resources::cgroup;
use headroom_lab_host::testbed;
use headroom_lab_parts::Tree;
use headroom_units as units;

use crate::application;
use crate::congestion_control;
use crate::layer;
use crate::plan::{Plan, PlannedStack};
use crate::run::{self, Options, Progress};

/// One check.
#[derive(Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// The subject of the check.
    pub what: String,
    /// Whether it passed.
    pub good: bool,
    /// The result, or the consequence of its absence and the remedy.
    pub says: String,
    /// Whether no run works without it.
    pub vital: bool,
}

/// A client with longer idle gaps sleeps, and its times are useless.
const LONGEST_GAP_S: f64 = 0.150;
/// Transfers that are searched for such gaps.
const TRIALS: u32 = 20;

/// Checks everything; runs 20 small FTPS transfers if it can.
pub fn examine(options: &Options, progress: &dyn Progress) -> Vec<Finding> {
    let search_path = SearchPath::from_environment();
    let mut findings = vec![privileges(options), control_groups(), tun(), pinned(&search_path)];
    findings.extend(programs(&search_path, users()));
    let executor = Executor::real(search_path);
    if Privileges::of_this_process() != Privileges::None {
        findings.extend(links(testbed::Kernel::probe(&executor)));
        findings.extend(kernel_crypto());
        findings.push(client(options, progress));
    }
    findings
}

/// Checks what plans need, on the machines that they name: what several need once.
pub fn examine_for(plans: &[Plan], options: &Options, progress: &dyn Progress) -> Vec<Finding> {
    let (here, there): (Vec<&Plan>, Vec<&Plan>) =
        plans.iter().partition(|plan| plan.hosts.is_none());
    let mut findings = if here.is_empty() { Vec::new() } else { examine_here(&here, options) };
    let stacks = plans.iter().flat_map(|plan| &plan.stacks);
    findings.extend(stacks.filter_map(|planned| {
        lack(planned, planned.stack.require_commands(options.lacking_commands))
    }));
    findings.extend(there.into_iter().flat_map(|plan| examine_hosts(plan, options, progress)));
    let mut once: Vec<Finding> = Vec::new();
    for finding in findings {
        if !once.contains(&finding) {
            once.push(finding);
        }
    }
    once
}

/// Checks what plans of this machine need.
fn examine_here(plans: &[&Plan], options: &Options) -> Vec<Finding> {
    let search_path = SearchPath::from_environment();
    let mut findings = vec![privileges(options), control_groups(), tun(), pinned(&search_path)];
    let wanted: Vec<Program> = plans.iter().flat_map(|plan| plan.programs()).collect();
    let found = programs(&search_path, users_with(plans));
    findings.extend(found.into_iter().filter_map(|finding| {
        let needed = wanted.iter().any(|program| program.name == finding.what);
        needed.then_some(Finding { vital: true, ..finding })
    }));
    // a run that measures the pinned programs asks those; the kernel is the same
    let is_pinned = search_path.pinned_tree().is_current();
    let stacks = plans.iter().flat_map(|plan| &plan.stacks);
    findings.extend(stacks.filter_map(|planned| {
        let stack = &planned.stack;
        lack(planned, if is_pinned { stack.require_kernel() } else { stack.require() })
    }));
    let controls: BTreeSet<&str> =
        plans.iter().flat_map(|plan| plan.congestion_controls()).collect();
    findings.extend(controls.into_iter().map(of_congestion_control));
    findings.extend(links(testbed::Kernel::probe(&Executor::real(search_path))));
    findings
}

/// Checks two real hosts, and what is between them.
fn examine_hosts(plan: &Plan, options: &Options, progress: &dyn Progress) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (what, host) in run::look_at_hosts(plan, options) {
        let (good, says) = match host {
            Ok(host) => host.says(),
            Err(error) => (false, error.to_string()),
        };
        findings.push(Finding { what, good, says, vital: true });
    }
    // what must be there before anything can be tried between them
    if findings.iter().all(|finding| finding.good) {
        let (good, says) = match run::try_link(plan, options, progress) {
            Ok(found) => (true, found),
            Err(error) => (false, error.to_string()),
        };
        findings.push(Finding { what: "the link between them".into(), good, says, vital: true });
    }
    findings
}

/// Says what is lacking for a stack beside programs; none: nothing.
fn lack(planned: &PlannedStack, required: Result<()>) -> Option<Finding> {
    let says = required.err()?.to_string();
    Some(Finding { what: planned.stack.name.clone(), good: false, says, vital: true })
}

/// Whether the kernel has a congestion control that a plan asks for.
fn of_congestion_control(name: &str) -> Finding {
    let (good, says) = match congestion_control::require(name) {
        Ok(()) => (true, "the kernel has it".to_owned()),
        Err(error) => (false, error.to_string()),
    };
    Finding { what: format!("congestion control {name}"), good, says, vital: true }
}

/// The link backends of this machine, in order of preference.
fn links(kernel: testbed::Kernel) -> [Finding; 4] {
    let finding = |what: &str, good: bool, says: &str| Finding {
        what: what.to_owned(),
        good,
        says: says.to_owned(),
        vital: false,
    };
    let htb = if kernel.htb {
        "links with a rate (link backend shaper)"
    } else {
        "missing (sch_htb): the emulator makes links with a rate"
    };
    let netem = if kernel.netem {
        "links with delay, jitter or loss (link backend netem)"
    } else {
        "missing (sch_netem): the emulator makes links with delay, jitter or loss"
    };
    let emulator =
        "any link (link backend emulator), if the kernel has no netem; uses part of a core";
    let veth = if kernel.veth {
        "virtual Ethernet for the testbed"
    } else {
        "missing (veth), prevents every run: load the module, or use a kernel that has it"
    };
    [
        Finding { vital: true, ..finding("kernel: veth", kernel.veth, veth) },
        finding("kernel: htb", kernel.htb, htb),
        finding("kernel: netem", kernel.netem, netem),
        finding("link emulator (built in)", true, emulator),
    ]
}

/// What the kernel can encrypt by itself, beside IPsec and WireGuard.
fn kernel_crypto() -> [Finding; 2] {
    let finding = |what: &str, good: bool, has: &str, lacks: &str| {
        let says = if good { has } else { lacks };
        Finding { what: what.to_owned(), good, says: says.to_owned(), vital: false }
    };
    [
        finding(
            "kernel: tls",
            application::kernel_encrypts_tls(),
            "encrypts TLS records: https(ktls)",
            "missing (tls), prevents https(ktls): load the module as root, or use a kernel that has it",
        ),
        finding(
            "kernel: macsec",
            layer::kernel_has_macsec(),
            "encrypts Ethernet frames: the layer macsec",
            "missing (macsec), prevents the layer macsec: load the module, use a kernel that has it, or run as root",
        ),
    ]
}

fn privileges(options: &Options) -> Finding {
    let (good, says) = match Privileges::of_this_process() {
        Privileges::Root => (true, "root: may create namespaces, links and captures".to_owned()),
        within @ Privileges::UserNamespace { one_id, .. } => {
            let better = if one_id {
                ". Servers keep this user's id. To let them change it, as they do under root: install \
                 newuidmap (Debian: uidmap), and give this user 65536 ids in /etc/subuid and /etc/subgid"
            } else {
                ""
            };
            (
                true,
                format!(
                    "no root, but a {within}: may create namespaces, links and captures{better}"
                ),
            )
        }
        Privileges::None => {
            let why = privileges::probe(&options.headroom).err();
            let why = why.map_or_else(|| "Use sudo".to_owned(), |why| format!("Why: {why}"));
            let works = "`list`, `report`, `compare` and `run --dry-run`";
            (false, format!("not root: only {works} work. {why}"))
        }
    };
    Finding { what: "privileges".into(), good, says, vital: true }
}

fn control_groups() -> Finding {
    let kernel =
        std::fs::read_to_string("/proc/filesystems").is_ok_and(|text| text.contains("cgroup2"));
    let has = cgroup::mounted().is_some() || kernel;
    let within = matches!(Privileges::of_this_process(), Privileges::UserNamespace { .. });
    let (good, says) = match (has, within && cgroup::parent().is_none()) {
        (_, true) => (
            true,
            "none is delegated to this user: CPU time is measured by processes, less finely for servers. \
             Better: `systemd-run --user --scope -p Delegate=yes headroom lab run ...`",
        ),
        (true, false) => (true, "CPU time is measured for each side"),
        (false, false) => (false, "missing: CPU time cannot be measured"),
    };
    Finding { what: "control groups (cgroup v2)".into(), good, says: says.into(), vital: true }
}

/// Checks the device of the layers that make interfaces of their own.
fn tun() -> Finding {
    const DEVICE: &str = "/dev/net/tun";
    let opened = std::fs::File::options().read(true).write(true).open(DEVICE);
    let says = match &opened {
        Ok(_) => "may be opened: layers that carry packets in user space work".to_owned(),
        Err(error) => format!(
            "cannot be opened ({error}), prevents layers that carry packets in user space (esp, ah, qesp, openvpn, \
             dtls; wireguard and strongswan where the kernel has neither): load the module tun, or have it \
             opened to this user, as udev does (mode 0666)"
        ),
    };
    Finding { what: DEVICE.into(), good: opened.is_ok(), says, vital: false }
}

/// Says whether runs measure the pinned programs in the place of this machine's, which follow.
fn pinned(search_path: &SearchPath) -> Finding {
    let tree = search_path.pinned_tree();
    let (packages, bytes) = Tree::size();
    let (good, name, folder) = (tree.is_current(), Tree::name(), tree.path().display());
    let says = if good {
        format!(
            "{name} in {folder}: `lab run` measures it instead of the programs below, if it has all that a plan \
             needs and --host-programs is not given"
        )
    } else {
        format!(
            "not fetched: `headroom lab parts` fetches {name}, {packages} packages, {}: the same servers on every \
             Linux, without root, in place of the programs below; either is enough. Until then those below are measured",
            units::size(bytes)
        )
    };
    Finding { what: "pinned programs".into(), good, says, vital: false }
}

/// The programs of the testbed, and of applications and layers with the names of those.
fn users() -> Vec<(Program, Vec<&'static str>)> {
    let mut users: Vec<(Program, Vec<&str>)> =
        programs::TESTBED.iter().map(|&program| (program, Vec::new())).collect();
    let applications = application::ALL.entries.iter().map(|entry| {
        let needed = entry.by_default().map(|application| application.needs(entry.programs));
        (entry.name, needed.unwrap_or(entry.programs))
    });
    let layers = layer::ALL.entries.iter().map(|entry| {
        let needed = entry.by_default().map(|layer| layer.needs(entry.programs));
        (entry.name, needed.unwrap_or(entry.programs))
    });
    for (name, programs) in applications.chain(layers) {
        programs.iter().for_each(|program| add_user(&mut users, *program, name));
    }
    users
}

/// The same with what the stacks of plans need beside that, by options and definitions of their
/// own.
fn users_with(plans: &[&Plan]) -> Vec<(Program, Vec<&'static str>)> {
    let mut users = users();
    for planned in plans.iter().flat_map(|plan| &plan.stacks) {
        let application = &planned.stack.application;
        let needed = application.needs(application.entry.programs);
        needed.iter().for_each(|program| add_user(&mut users, *program, application.name()));
        for layer in &planned.stack.layers {
            let needed = layer.needs(layer.entry.programs);
            needed.iter().for_each(|program| add_user(&mut users, *program, layer.name()));
        }
    }
    users
}

fn add_user(users: &mut Vec<(Program, Vec<&'static str>)>, program: Program, name: &'static str) {
    match users.iter_mut().find(|(known, _)| *known == program) {
        Some((_, names)) if names.contains(&name) => {}
        Some((_, names)) => names.push(name),
        None => users.push((program, vec![name])),
    }
}

fn programs(search_path: &SearchPath, users: Vec<(Program, Vec<&'static str>)>) -> Vec<Finding> {
    let tree = search_path.pinned_tree();
    users
        .into_iter()
        .map(|(program, names)| {
            let vital = programs::TESTBED.contains(&program);
            let prevents = if vital { "every run".to_owned() } else { names.join(", ") };
            let (good, says) = match search_path.locate(program) {
                Ok(located) => {
                    let version = search_path.version(program).unwrap_or_default();
                    (true, format!("{} ({}) {version}", located.path.display(), located.origin.name()))
                }
                Err(_) if tree.is_current() && tree.has(program.name) => {
                    (true, format!("of the pinned programs alone: {}", Tree::name()))
                }
                Err(_) => (
                    false,
                    format!(
                        "missing, prevents {prevents}: run scripts/fetch-parts {} of the source tree, or install the package {}",
                        program.part(), program.package
                    ),
                ),
            };
            Finding { what: program.name.to_owned(), good, says, vital }
        })
        .collect()
}

/// Checks whether the FTP client sleeps inside FTPS, as some do for whole seconds.
fn client(options: &Options, progress: &dyn Progress) -> Finding {
    let what = "FTP and HTTP client (built in)".to_owned();
    match longest_gap(options, progress) {
        Ok(Some(gap)) => {
            let good = gap < LONGEST_GAP_S;
            let verdict = if good { "good" } else { "too long: this client sleeps" };
            let says = format!(
                "{}; longest idle gap in {TRIALS} FTPS transfers of 1 KiB: {:.0} ms, {verdict}",
                options.client_version,
                gap * 1e3
            );
            Finding { what, good, says, vital: false }
        }
        Ok(None) => {
            Finding { what, good: false, says: "the capture has no transfer".into(), vital: false }
        }
        Err(error) => {
            Finding { what, good: false, says: format!("not tested: {error}"), vital: false }
        }
    }
}

fn longest_gap(options: &Options, progress: &dyn Progress) -> Result<Option<f64>> {
    let text = "stacks = [\"ftps\"]\nrepetitions = 2\n[[workload]]\nkind = \"download\"\nsizes = [\"1KiB\"]\n";
    let plan = Plan::from_toml(text, "doctor").map_err(crate::Error::Plan)?;
    run::longest_gap(&plan, options, TRIALS, progress)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_makes_links_with_and_without_the_kernel() {
        let kernel = |has: bool| testbed::Kernel { veth: has, htb: has, netem: has };
        let shown = [true, false].map(|has| {
            links(kernel(has)).map(|one| format!("{}: {}\n", one.what, one.says)).concat()
        });
        insta::assert_snapshot!(shown.join("\n"));
    }
}
