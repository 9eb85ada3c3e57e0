//! The privileges of this process, and how an ordinary user gets those that a run needs: in a
//! user namespace (user_namespaces(7)), whose root may make namespaces, links and captures.

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use headroom_netio::seccomp;
use nix::mount::MsFlags;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Pid, Uid, User, getegid, geteuid};

use crate::error::{Doing, Error, Result};

/// The hidden subcommand of this program that calls [`enter`].
pub const ENTER: &str = "lab-user-namespace";
/// The hidden subcommand of this program that starts a server for which setgroups(2) always
/// succeeds.
pub const WITHOUT_GROUPS: &str = "lab-without-groups";

/// The user that servers give up root for (`nobody`); mapped only where many ids are.
const NOBODY: u32 = 65534;
/// Ids that a user namespace gets where the user has so many: 0 to 65535.
const IDS: u32 = 65536;

/// The privileges of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privileges {
    /// Root of the machine.
    Root,
    /// Root of a user namespace.
    UserNamespace {
        /// The user outside of it.
        user: u32,
        /// Whether it has a single user id, so that no server can change its user.
        one_id: bool,
    },
    /// An ordinary user.
    None,
}

impl Privileges {
    /// Returns those of this process.
    pub fn of_this_process() -> Self {
        if !geteuid().is_root() {
            return Self::None;
        }
        let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}"));
        // Without these files the kernel has no user namespaces.
        let (Ok(users), Ok(groups)) = (read("uid_map"), read("gid_map")) else {
            return Self::Root;
        };
        let may_set_groups = read("setgroups").is_ok_and(|text| text.trim() == "allow");
        of_maps(&users, &groups, may_set_groups)
    }

    /// Whether no server can change its user.
    pub fn one_id(self) -> bool {
        matches!(self, Self::UserNamespace { one_id: true, .. })
    }

    /// Whether this is root of the machine.
    pub fn is_root(self) -> bool {
        self == Self::Root
    }
}

impl fmt::Display for Privileges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("root"),
            Self::UserNamespace { user, one_id: true } => {
                write!(f, "user namespace of user {user}, one user id")
            }
            Self::UserNamespace { user, one_id: false } => {
                write!(f, "user namespace of user {user}, many user ids")
            }
            Self::None => f.write_str("ordinary user"),
        }
    }
}

/// Reads what `/proc/PID/uid_map` and its sibling say about a process with user id 0.
fn of_maps(users: &str, groups: &str, may_set_groups: bool) -> Privileges {
    let parse = |text: &str| -> Vec<[u64; 3]> {
        let lines = text.lines().filter_map(|line| {
            let numbers: Vec<u64> =
                line.split_whitespace().map_while(|word| word.parse().ok()).collect();
            numbers.try_into().ok()
        });
        lines.collect()
    };
    let (users, groups) = (parse(users), parse(groups));
    if users.first().is_none_or(|[inside, outside, count]| {
        (*inside, *outside, *count) == (0, 0, u64::from(u32::MAX))
    }) {
        return Privileges::Root;
    }
    let has_nobody = |map: &[[u64; 3]]| {
        map.iter().any(|[inside, _, count]| {
            (*inside..inside.saturating_add(*count)).contains(&u64::from(NOBODY))
        })
    };
    let own = users.iter().find(|[inside, _, _]| *inside == 0);
    Privileges::UserNamespace {
        user: own.and_then(|[_, outside, _]| u32::try_from(*outside).ok()).unwrap_or_default(),
        one_id: !(has_nobody(&users) && has_nobody(&groups) && may_set_groups),
    }
}

/// Takes this process, which must have one thread, into a user namespace whose root it is, and
/// into a network namespace of that: `ip netns add` returns to where it came from, which the
/// kernel allows to the root of that network alone. The user namespace gets 65536 ids where `/etc/subuid`, `/etc/subgid` and newuidmap(1) give them
/// to this user, else this one.
///
/// # Errors
/// [`Error::Missing`]: the kernel refuses it; what forbids it, and what to do.
pub fn enter() -> Result<()> {
    let (user, group) = (geteuid(), getegid());
    let mapper = Mapper::start(user);
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|error| refused("making one", error))?;
    if !mapper.is_some_and(Mapper::map) {
        map_own(user, group).map_err(|error| refused("mapping the user to its root", error))?;
    }
    unshare(CloneFlags::CLONE_NEWNET)
        .map_err(|error| refused("making a network namespace inside", error))
}

/// Does what a run begins with, to see whether the namespace that [`enter`] entered is of use.
///
/// # Errors
/// [`Error::Missing`]: as [`enter`].
pub fn try_out() -> Result<()> {
    let (none, private) = (None::<&str>, MsFlags::MS_PRIVATE | MsFlags::MS_REC);
    unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| nix::mount::mount(none, "/", none, private, none))
        .and_then(|()| {
            let options = Some("mode=755");
            nix::mount::mount(Some("none"), "/run", Some("tmpfs"), MsFlags::empty(), options)
        })
        .map_err(|error| refused("mounting inside", error))
}

/// Tells whether an ordinary user can enter a user namespace here: lets `program`, which is
/// this one, try it.
///
/// # Errors
/// [`Error::Missing`]: what forbids it, and what to do.
pub fn probe(program: &Path) -> Result<()> {
    let output = Command::new(program)
        .arg(ENTER)
        .stdin(Stdio::null())
        .output()
        .doing(|| format!("start {}", program.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().trim_start_matches("headroom: ");
    Err(Error::Missing(if said.is_empty() {
        format!("`headroom {ENTER}` ended ({})", output.status)
    } else {
        said.to_owned()
    }))
}

/// Makes setgroups(2) succeed without effect for this thread and what it becomes.
///
/// # Errors
/// The kernel has no filters of system calls.
pub fn ignore_setgroups() -> Result<()> {
    seccomp::ignore_setgroups().doing(|| "filter system calls (seccomp)".into())
}

/// Makes the user the only one of this process's new namespace. A map is written once: what
/// newgidmap(1) wrote before newuidmap(1) failed stays.
fn map_own(user: Uid, group: Gid) -> std::io::Result<()> {
    let is_empty = |map: &str| std::fs::read_to_string(map).map(|text| text.trim().is_empty());
    if is_empty("/proc/self/gid_map")? {
        // An ordinary user may map groups only where they cannot be changed.
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/gid_map", format!("0 {group} 1"))?;
    }
    if is_empty("/proc/self/uid_map")? {
        std::fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    }
    Ok(())
}

/// A process outside of the new namespace, which waits to map ids into it.
struct Mapper(Child);

impl Mapper {
    /// Starts it where this user has ids to map and the programs that may.
    fn start(user: Uid) -> Option<Self> {
        let name = User::from_uid(user).ok().flatten().map(|user| user.name);
        let range = |file: &str| {
            let text = std::fs::read_to_string(file).ok()?;
            subordinate(&text, user.as_raw(), name.as_deref())
        };
        let (users, groups) = (range("/etc/subuid")?, range("/etc/subgid")?);
        let (newuidmap, newgidmap) = (in_path("newuidmap")?, in_path("newgidmap")?);
        const SCRIPT: &str =
            r#"read _ && "$1" "$2" 0 "$3" 1 1 "$4" "$5" && "$6" "$2" 0 "$7" 1 1 "$8" "$5""#;
        let (pid, count) = (Pid::this().to_string(), (IDS - 1).to_string());
        let child = Command::new("sh")
            .args(["-c", SCRIPT, "sh"])
            .arg(newgidmap)
            .args([&pid, &getegid().to_string(), &groups.to_string(), &count])
            .arg(newuidmap)
            .args([&user.to_string(), &users.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        child.ok().map(Self)
    }

    /// Lets it map, and tells whether it did.
    fn map(mut self) -> bool {
        let told = self.0.stdin.take().is_some_and(|mut stdin| stdin.write_all(b"\n").is_ok());
        self.0.wait().is_ok_and(|status| status.success()) && told
    }
}

/// Finds the first id of a range of 65535 that a user has (subuid(5)).
fn subordinate(text: &str, user: u32, name: Option<&str>) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut words = line.split(':');
        let whose = words.next()?;
        let (first, count): (u32, u32) =
            (words.next()?.parse().ok()?, words.next()?.trim().parse().ok()?);
        let is_own = Some(whose) == name || whose.parse() == Ok(user);
        (is_own && count >= IDS - 1).then_some(first)
    })
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let usual = ["/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(usual)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// Says what forbids a user namespace, and what to do.
fn refused(step: &str, error: impl fmt::Display) -> Error {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/{name}")).ok();
    let found = forbidden_by(|name| read(name).map(|text| text.trim().to_owned()));
    Error::Missing(format!(
        "the lab makes network namespaces, which an ordinary user can do in a user namespace, and \
         {step} failed ({error}). {found} Or run it with sudo, or see what it would do with --dry-run"
    ))
}

/// Names the setting that forbids user namespaces, and the remedy.
fn forbidden_by(setting: impl Fn(&str) -> Option<String>) -> String {
    const APPARMOR: &str = "kernel/apparmor_restrict_unprivileged_userns";
    const DEBIAN: &str = "kernel/unprivileged_userns_clone";
    const MAX: &str = "user/max_user_namespaces";
    let dotted = |name: &str| name.replace('/', ".");
    let is = |name: &str, value: &str| setting(name).is_some_and(|found| found == value);
    if is(MAX, "0") {
        let name = dotted(MAX);
        format!("Found {name} = 0: allow them with `sudo sysctl -w {name}=15000`.")
    } else if is(DEBIAN, "0") {
        let name = dotted(DEBIAN);
        format!("Found {name} = 0: allow them with `sudo sysctl -w {name}=1`.")
    } else if is(APPARMOR, "1") {
        let name = dotted(APPARMOR);
        format!(
            "Found {name} = 1 (AppArmor, as in Ubuntu since 23.10): allow them for all programs with \
             `sudo sysctl -w {name}=0`, or for this one with a profile that has the rule `userns,`."
        )
    } else if setting(MAX).is_none() {
        "This kernel has none (CONFIG_USER_NS).".to_owned()
    } else {
        "No setting of the kernel was found that forbids it: in a container, its manager does (seccomp, \
         AppArmor or capabilities), and must allow unshare(2) and mount(2)."
            .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_root_from_a_user_namespace_with_one_id_and_with_many() {
        let all = "         0          0 4294967295\n";
        assert_eq!(of_maps(all, all, true), Privileges::Root);
        let one = "0 1000 1\n";
        let single = Privileges::UserNamespace { user: 1000, one_id: true };
        assert_eq!(of_maps(one, one, false), single);
        let many = "0 1000 1\n1 100000 65535\n";
        let several = Privileges::UserNamespace { user: 1000, one_id: false };
        assert_eq!(of_maps(many, many, true), several);
        // users were mapped and groups were not
        assert_eq!(of_maps(many, one, false), single);
        assert_eq!(of_maps(many, many, false), single);
    }

    #[test]
    fn finds_subordinate_ids_by_name_and_by_number() {
        let text = "alice:100000:65536\n1001:165536:65536\nbob:1:5\nbroken\n";
        assert_eq!(subordinate(text, 1000, Some("alice")), Some(100_000));
        assert_eq!(subordinate(text, 1001, Some("carol")), Some(165_536));
        assert_eq!(subordinate(text, 1002, Some("bob")), None, "too few");
        assert_eq!(subordinate(text, 1003, None), None);
    }

    #[test]
    fn names_the_setting_that_forbids_and_the_remedy() {
        let with = |name: &'static str, value: &'static str| {
            forbidden_by(move |asked| match asked {
                "user/max_user_namespaces" if name != asked => Some("96365".to_owned()),
                asked => (asked == name).then(|| value.to_owned()),
            })
        };
        let said = [
            (with("kernel/apparmor_restrict_unprivileged_userns", "1"), "AppArmor"),
            (with("kernel/unprivileged_userns_clone", "0"), "kernel.unprivileged_userns_clone=1"),
            (with("user/max_user_namespaces", "0"), "user.max_user_namespaces=15000"),
            (with("none", "0"), "in a container"),
            (forbidden_by(|_| None), "CONFIG_USER_NS"),
        ];
        for (sentence, words) in said {
            assert!(sentence.contains(words), "{sentence}");
        }
    }
}
