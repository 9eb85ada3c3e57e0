//! One instance of a layer in a run: between which addresses, with which names,
//! and what layers do alike.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use headroom_lab_host::command::{Arg, Command};
use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::host::{Host, ServerSpec, last_lines};
use headroom_lab_host::programs::IP;
use headroom_lab_host::role::Role;
use headroom_lab_host::testbed::{Ends, Family};

use super::definition::{Instance, Layer, LayerKind, Place};
use crate::catalogue::Chosen;

/// The time limit for the start of a layer; it takes tens of milliseconds, on slow links
/// seconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// The time limit for its end: the kernel removes its interface first, which takes
/// milliseconds, and on an overloaded machine more than twenty seconds.
const PATIENCE_AT_END: Duration = Duration::from_secs(90);

/// The size of packets inside one layer of a stack, in bytes.
///
/// # Errors
/// A sentence: it leaves too little.
pub(crate) fn inner_mtu(
    layer: &Chosen<dyn Layer>,
    stack: &str,
    outer: u32,
    family: Family,
) -> std::result::Result<u32, String> {
    if !layer.kind().is_network() {
        return Ok(outer);
    }
    let (mtu, least) = (layer.inner_mtu(outer, family), family.smallest_mtu());
    if mtu < least {
        return Err(format!(
            "`{stack}`: packets inside the layer `{}` have at most {mtu} bytes, and {} needs {least}: leave out \
             layers, or choose a larger `mtu`",
            layer.name(),
            family.name(),
        ));
    }
    Ok(mtu)
}

impl Instance {
    /// The instance of `layer` with this number, the `nth` of its layer from 0,
    /// between `outer`; `port` is that of the application or of the stream inside.
    ///
    /// # Errors
    /// No packet fits through, or too many instances.
    pub(crate) fn new(
        layer: &Chosen<dyn Layer>,
        stack: &str,
        number: u16,
        nth: u16,
        outer: Ends,
        port: u16,
        congestion_control: &str,
    ) -> Result<Self> {
        const MAX_LAYERS: u16 = 250;
        if number > MAX_LAYERS {
            return Err(Error::Plan(format!("more than {MAX_LAYERS} layers in one plan")));
        }
        let family = family_of(outer.server);
        let mtu = inner_mtu(layer, stack, outer.mtu, family).map_err(Error::Plan)?;
        let inner = match (layer.kind(), family) {
            (LayerKind::Stream, _) => {
                let own = loopback(family);
                Ends { client: own, server: own, ..outer }
            }
            (LayerKind::InPlace, _) => Ends { mtu, ..outer },
            (LayerKind::Network, Family::Ipv4) => {
                let address = |host| IpAddr::from(Ipv4Addr::new(10, 78, number as u8, host));
                Ends { client: address(1), server: address(2), mtu, ..outer }
            }
            (LayerKind::Network, Family::Ipv6) => {
                let address =
                    |host| IpAddr::from(Ipv6Addr::new(0xfd78, number, 0, 0, 0, 0, 0, host));
                Ends { client: address(1), server: address(2), mtu, ..outer }
            }
        };
        Ok(Self {
            layer: layer.clone(),
            stack: stack.to_owned(),
            number,
            interface: layer.interface(number, nth),
            outer,
            inner,
            application: SocketAddr::new(inner.server, port),
            around: None,
            alike: 0,
            congestion_control: congestion_control.to_owned(),
        })
    }

    /// The port of its own on both hosts, where it needs one.
    pub(crate) fn port(&self) -> u16 {
        self.outer.port(self.number)
    }

    /// Returns the address on which a stream's server accepts connections.
    pub(crate) fn server(&self) -> SocketAddr {
        SocketAddr::new(self.outer.server, self.port())
    }

    /// Puts a stream into another, whose client accepts connections there.
    pub(crate) fn inside(self, around: Option<SocketAddr>) -> Self {
        Self { around, ..self }
    }

    /// Puts it into others, of which so many are of the same layer.
    pub(crate) fn inside_alike(self, alike: usize) -> Self {
        Self { alike, ..self }
    }

    /// Returns the address to which a stream's client connects.
    pub(crate) fn far_end(&self) -> SocketAddr {
        self.around.unwrap_or(self.server())
    }

    /// Returns the address on which a stream's client accepts connections.
    pub(crate) fn client(&self) -> SocketAddr {
        SocketAddr::new(self.inner.client, self.port() + 1000)
    }

    /// The name of its daemons on either host, which no other instance has.
    pub(crate) fn daemon(&self) -> String {
        let (name, stack) = (self.layer.name(), &self.stack);
        match self.alike {
            0 => format!("{name} of {stack}"),
            alike => format!("{name} number {} of {stack}", alike + 1),
        }
    }
}

/// The loopback address of a family.
pub(crate) fn loopback(family: Family) -> IpAddr {
    match family {
        Family::Ipv4 => Ipv4Addr::LOCALHOST.into(),
        Family::Ipv6 => Ipv6Addr::LOCALHOST.into(),
    }
}

pub(super) fn family_of(address: IpAddr) -> Family {
    if address.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 }
}

impl Place<'_> {
    pub(crate) fn hosts(&self) -> [&Host; 2] {
        [self.client, self.server]
    }

    /// Outer and inner address of a host, and the inner address of the other.
    pub(crate) fn seen_from(&self, host: &Host) -> Seen {
        let (outer, inner) = (self.at.outer, self.at.inner);
        match host.role {
            Role::Client => Seen {
                outer: outer.client,
                inner: inner.client,
                far_outer: outer.server,
                far_inner: inner.server,
            },
            Role::Server => Seen {
                outer: outer.server,
                inner: inner.server,
                far_outer: outer.client,
                far_inner: inner.client,
            },
        }
    }

    /// This instance's folder on a host.
    pub(crate) fn dir(&self, host: &Host) -> PathBuf {
        let name = format!("{}-{}", self.at.number, self.at.layer.name());
        host.root.join("layers").join(name).join(host.role.to_string())
    }

    /// Path of a file in that folder.
    pub(crate) fn path(&self, host: &Host, name: &str) -> String {
        self.dir(host).join(name).display().to_string()
    }

    /// Writes a file into that folder and returns its path.
    pub(crate) fn write(&self, host: &Host, name: &str, content: &str) -> Result<String> {
        host.write(&self.dir(host).join(name), content)?;
        Ok(self.path(host, name))
    }

    /// Runs a command on a host.
    pub(crate) fn run<I>(
        &self,
        host: &Host,
        program: impl Into<Arg>,
        arguments: I,
    ) -> Result<String>
    where
        I: IntoIterator,
        I::Item: Into<Arg>,
    {
        host.run(&Command::new(program, arguments))
    }

    /// Starts this layer's daemon on a host. Its `/run` is `run` in its folder,
    /// so that commands can reach its sockets.
    pub(crate) fn start(&self, host: &Host, command: Command) -> Result<()> {
        let run = self.dir(host).join("run");
        host.make_folders(std::slice::from_ref(&run))?;
        let private_files = vec![
            (run, "/run"),
            (host.root.join("credentials").join("resolv.conf"), "/etc/resolv.conf"),
        ];
        let spec = ServerSpec { private_files, ..ServerSpec::new(command) };
        host.start(&self.at.daemon(), &spec)
    }

    /// Waits until something is so on a host, while the daemon there runs.
    ///
    /// # Errors
    /// It ended, or it is not so within the time that it may take; with the
    /// daemon's words.
    pub(crate) fn until(
        &self,
        host: &Host,
        what: &str,
        mut so: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        host.really(|| self.until_some(host, what, || Ok(so()?.then_some(())))).map(drop)
    }

    /// Waits until there is something on a host, while the daemon there runs.
    ///
    /// # Errors
    /// As [`Place::until`].
    pub(crate) fn until_some<T>(
        &self,
        host: &Host,
        what: &str,
        there: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        self.wait(host, what, PATIENCE, there)
    }

    fn wait<T>(
        &self,
        host: &Host,
        what: &str,
        patience: Duration,
        mut there: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(found) = there()? {
                return Ok(found);
            }
            self.require_alive(host)?;
            if Instant::now() > deadline {
                let log = match self.at.layer.has_daemon() {
                    true => host.server(&self.at.daemon(), 0)?.log,
                    false => Vec::new(),
                };
                return Err(Error::Failed(format!(
                    "{} on the {}: {what} did not happen within {} s. It said: {}",
                    self.at.daemon(),
                    host.role,
                    patience.as_secs(),
                    last_lines(&log)
                )));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether this layer's daemon still runs on a host.
    ///
    /// # Errors
    /// It ended: how, and its last words.
    pub(crate) fn require_alive(&self, host: &Host) -> Result<()> {
        if !self.at.layer.has_daemon() {
            return Ok(());
        }
        let state = host.server(&self.at.daemon(), 0)?;
        match state.ended {
            None => Ok(()),
            Some(ended) => Err(Error::Ended(format!(
                "{} on the {} ended ({ended}). It last said: {}",
                self.at.daemon(),
                host.role,
                last_lines(&state.log)
            ))),
        }
    }

    /// Waits until this layer's daemon on a host, which was told to end, has ended.
    ///
    /// # Errors
    /// It does not within the time that it may take; with its words.
    pub(crate) fn until_ended(&self, host: &Host) -> Result<()> {
        host.really(|| self.wait_for_end(host)).map(drop)
    }

    fn wait_for_end(&self, host: &Host) -> Result<()> {
        let deadline = Instant::now() + PATIENCE_AT_END;
        loop {
            let state = host.server(&self.at.daemon(), 0)?;
            if state.ended.is_some() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Error::Failed(format!(
                    "{} on the {} was told to end and did not within {} s. It last said: {}",
                    self.at.daemon(),
                    host.role,
                    PATIENCE_AT_END.as_secs(),
                    last_lines(&state.log)
                )));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until the inner interface on a host is gone, while the daemon there runs.
    ///
    /// # Errors
    /// As [`Place::until`].
    pub(crate) fn until_gone(&self, host: &Host) -> Result<()> {
        let gone = || Ok((!self.has_interface(host)).then_some(()));
        self.wait(host, "an end of its interface", PATIENCE_AT_END, gone)
    }

    /// Whether a network interface is there.
    pub(crate) fn has_interface(&self, host: &Host) -> bool {
        self.run(host, IP, ["link", "show", "dev", &self.at.interface]).is_ok()
    }

    /// Gives the inner interface its address, its MTU and a route to the other
    /// end, quietly and with the plan's congestion control.
    pub(crate) fn configure_interface(&self, host: &Host) -> Result<()> {
        let (interface, seen) = (&self.at.interface, self.seen_from(host));
        let (bits, nodad) = if seen.inner.is_ipv4() { (32, "") } else { (128, " nodad") };
        let (own, far, mtu) = (seen.inner, seen.far_inner, self.at.inner.mtu);
        let congestion = &self.at.congestion_control;
        let lines = [
            format!("link set {interface} multicast off"),
            format!("link set {interface} mtu {mtu} up"),
            format!("addr add {own}/{bits} dev {interface}{nodad}"),
            format!("route replace {far}/{bits} dev {interface} src {own} congctl {congestion}"),
        ];
        lines.iter().try_for_each(|line| host.run(&Command::words(IP, line)).map(drop))
    }
}

/// The addresses of an instance, from one end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) outer: IpAddr,
    pub(crate) inner: IpAddr,
    pub(crate) far_outer: IpAddr,
    pub(crate) far_inner: IpAddr,
}
