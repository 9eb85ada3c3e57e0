//! A host that ssh reaches: an sshd of its own in a network namespace, and a client
//! on the same link.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use headroom_testing::{Host, address, link};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Ground, part, wait_for};

/// Two hosts; on the second runs an sshd, and its user's home is a folder.
pub(crate) struct OverSsh {
    pub(crate) ground: Ground,
    near: Host,
    far: Host,
    sshd: Child,
}

impl OverSsh {
    pub(crate) fn new(name: &str) -> Self {
        let ground = Ground::new(name);
        for folder in ["home", "bin", "far-tmp"] {
            fs::create_dir(ground.path(folder)).expect("a folder");
        }
        for key in ["key", "host_key"] {
            let mut keygen = part("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(ground.path(key));
            assert!(keygen.status().expect("ssh-keygen").success());
        }
        let [near, far] = link();
        let sshd = start_sshd(&ground, &far);
        ground.write("ssh_config", &client_config(&ground));
        let over_ssh = Self { ground, near, far, sshd };
        wait_for("sshd", || {
            let script = format!("exec 3<>/dev/tcp/{}/22", address(1, false));
            let mut try_it = Command::new("bash");
            try_it.args(["-c", &script]).stderr(Stdio::null());
            over_ssh.near.run(move || try_it.status()).expect("bash").success()
        });
        over_ssh
    }

    /// A command of the client, which is started in its namespace.
    pub(crate) fn start(&self, mut command: Command) -> Child {
        let ssh = part("ssh");
        let line = format!(
            "{} -F {}",
            ssh.get_program().display(),
            self.ground.path("ssh_config").display()
        );
        command.env("HOME", self.ground.path("near-home")).env_remove("XDG_CONFIG_HOME");
        command.env("HEADROOM_SSH", line);
        command.envs(ssh.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.near.run(move || command.spawn()).expect("it starts")
    }

    /// From now on no UDP reaches the far host, as behind a firewall that says nothing.
    pub(crate) fn block_udp(&self) {
        let script = "for v in -4 -6; do ip $v rule add pref 10 lookup local && ip $v rule del pref 0 && \
                      ip $v rule add pref 5 ipproto udp blackhole || exit 1; done";
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        assert!(self.far.run(move || command.status()).expect("sh").success());
    }

    /// Where the far user is at home.
    pub(crate) fn home(&self, name: &str) -> PathBuf {
        self.ground.path("home").join(name)
    }

    /// Commands that run on the far host, but for the sshd that listens.
    pub(crate) fn far_processes(&self) -> Vec<(Pid, String)> {
        let namespace = || fs::read_link("/proc/thread-self/ns/net").expect("a namespace");
        let far = self.far.run(namespace);
        let listener = i32::try_from(self.sshd.id()).expect("a process id");
        let entries = fs::read_dir("/proc").expect("/proc").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        // this very process has a thread there
        let own = i32::try_from(std::process::id()).expect("a process id");
        pids.filter(|pid| *pid != listener && *pid != own)
            .filter(|pid| fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|ns| ns == far))
            .map(|pid| {
                let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                (Pid::from_raw(pid), String::from_utf8_lossy(&line).replace('\0', " "))
            })
            .filter(|(_, line)| !line.is_empty())
            .collect()
    }

    /// Waits until nothing is left of a transfer on the far host.
    pub(crate) fn wait_until_nothing_is_left(&self) {
        let left = || {
            let named = |folder: &Path| {
                let entries = fs::read_dir(folder).expect("a folder").flatten();
                let names = entries.map(|entry| entry.path().display().to_string());
                names.filter(|name| name.contains("headroom-")).collect::<Vec<_>>()
            };
            // of the folders that others use, too, only what this host's processes made
            let processes = self.far_processes().into_iter().map(|(_, line)| line);
            processes.chain(named(&self.ground.path("far-tmp"))).collect::<Vec<_>>()
        };
        let mut last = Vec::new();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
        while std::time::Instant::now() < deadline {
            last = left();
            if last.is_empty() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("this is left: {last:?}");
    }
}

impl Drop for OverSsh {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
        for (pid, _) in self.far_processes() {
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
}

/// In namespaces of its own: it needs accounts, and `/run/sshd`.
fn start_sshd(ground: &Ground, far: &Host) -> Child {
    let path = |name: &str| ground.path(name).display().to_string();
    let config = format!(
        "Port 22\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nUseDNS no\nPidFile none\n\
         PermitRootLogin prohibit-password\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         SetEnv TMPDIR={} PATH={}:/usr/sbin:/usr/bin:/sbin:/bin\n",
        path("host_key"),
        path("key.pub"),
        path("far-tmp"),
        path("bin")
    );
    ground.write("sshd_config", &config);
    let accounts = format!(
        "root:x:0:0:root:{}:/bin/sh\nnobody:x:65534:65534::/:/bin/false\nsshd:x:110:65534::/:/bin/false\n",
        path("home")
    );
    ground.write("passwd", &accounts);
    ground.write("shadow", "root:*:19000:0:99999:7:::\nsshd:*:19000:0:99999:7:::\n");
    let script = format!(
        "set -e; mount -t tmpfs none /run; mkdir /run/sshd; mount --bind {} /etc/passwd; \
         mount --bind {} /etc/shadow; exec \"$0\" -D -e -f {} 2> {}",
        path("passwd"),
        path("shadow"),
        path("sshd_config"),
        path("log")
    );
    let sshd = part("sshd");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    command.arg(sshd.get_program());
    command.envs(sshd.get_envs().filter_map(|(name, value)| Some((name, value?))));
    far.run(move || command.spawn()).expect("unshare")
}

/// The host is known by two names, neither of which is its address.
fn client_config(ground: &Ground) -> String {
    format!(
        "Host *\n  User root\n  IdentityFile {}\n  IdentitiesOnly yes\n  IdentityAgent none\n  BatchMode yes\n  \
         StrictHostKeyChecking accept-new\n  UserKnownHostsFile {}\n  GlobalKnownHostsFile /dev/null\n\
         Host Far\n  HostName {}\nHost far6\n  HostName {}\nHost nobody\n  HostName {}\n  Port 23\n",
        ground.path("key").display(),
        ground.path("known").display(),
        address(1, false),
        address(1, true),
        address(1, false)
    )
}
