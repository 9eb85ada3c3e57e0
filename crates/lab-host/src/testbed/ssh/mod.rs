//! Two real machines over ssh. This program is copied to each and spoken to over
//! that connection; nothing else is open but the applications' own ports. The link
//! between them is what it is: it is looked at, never shaped.

mod connection;
mod route;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use super::{Family, HOST_DEFAULT, Settings, TestbedSpec, prepare_folders};
use crate::agent::remote_capture::CaptureSpec;
use crate::command::{Command, Executor};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::hosts::{Machines, RealHost};
use crate::programs::IP;
use crate::remote_host::HostSetup;
use crate::role::Role;
use crate::scratch;

use connection::Ssh;
use headroom_lab_results::schema::{HostRecord, RoundTrips, SshHosts};
use route::{Device, Route, ip, one_of};

/// Two machines in use.
#[derive(Debug)]
pub(super) struct Pair {
    hosts: SshHosts,
    /// The client's interface towards the server, where the capture is.
    interface: String,
    /// Raised when the connection to one of them has ended.
    alarm: Arc<OnceLock<String>>,
    /// For the record.
    pub(super) records: Vec<HostRecord>,
    /// TCP congestion control of both, in words.
    pub(super) congestion_control: String,
    pub(super) id: String,
}

/// Copies this program to both hosts, starts their agents and opens the capture.
///
/// # Errors
/// Which host could not be reached, or what it lacks, in ssh's own words.
pub(super) fn up(
    spec: &TestbedSpec,
    hosts: &SshHosts,
    settings: &Settings,
    executor: &Arc<Executor>,
) -> Result<(Host, Host, Pair)> {
    if spec.link_backend.is_some() {
        let sentence = "the link between two real hosts is what it is: leave out --link-backend";
        return Err(Error::Plan(sentence.to_owned()));
    }
    let id = if executor.is_dry() { "00000000".into() } else { scratch::new_id() };
    let ssh = |role: Role, host| Ssh { role, host, command: &hosts.ssh, executor, settings };
    let (client, server) = (ssh(Role::Client, &hosts.client), ssh(Role::Server, &hosts.server));
    let mut pair = Pair::new(hosts, id);
    if executor.is_dry() {
        return Ok((
            client.rehearse(&pair, spec.family.unwrap_or(Family::Ipv6)),
            server.rehearse(&pair, spec.family.unwrap_or(Family::Ipv6)),
            pair,
        ));
    }
    let (mut client_agent, client_setup) = client.start(&pair)?;
    let (mut server_agent, server_setup) = server.start(&pair)?;
    let lacking = vec![
        client.look(&mut client_agent, &client_setup, spec)?,
        server.look(&mut server_agent, &server_setup, spec)?,
    ];
    Machines::Real(lacking).require(&spec.programs)?;
    let name = match &hosts.server_address {
        Some(address) => address.clone(),
        None => server.hostname()?,
    };
    let remote = one_of(&client_agent.addresses_of(&name)?, spec.family, &name, hosts)?;
    let route: Route = ip(&mut client_agent, &["-j", "route", "get", &remote.to_string()])?;
    let device: Device = ip(&mut client_agent, &["-j", "link", "show", "dev", &route.dev])?;
    let framing = device.framing(&route.dev, hosts)?;
    if device.mtu != spec.mtu {
        return Err(Error::Plan(format!(
            "the client's interface {} towards {remote} has an MTU of {}, and the plan says {}: write `mtu = {}`",
            route.dev, device.mtu, spec.mtu, device.mtu
        )));
    }
    client_agent.open(CaptureSpec {
        interface: route.dev.clone(),
        framing,
        client: route.prefsrc,
        server: remote,
        ports: hosts.all_ports(),
    })?;
    pair.interface = route.dev;
    let mut record = |ssh: &Ssh<'_>, setup: &HostSetup, address: IpAddr| {
        let machine = setup.machine.clone();
        pair.records.push(HostRecord {
            role: ssh.role.to_string(),
            host: ssh.host.to_owned(),
            address: address.to_string(),
            kernel: machine.kernel,
            distribution: machine.distribution,
            cpu: machine.cpu,
            cores: machine.cores,
            memory_bytes: machine.memory_bytes,
            files: setup.root_kind.clone(),
        });
    };
    record(&client, &client_setup, route.prefsrc);
    record(&server, &server_setup, remote);
    let client = client.host(route.prefsrc, client_setup, client_agent);
    let server = server.host(remote, server_setup, server_agent);
    prepare_folders(&client)?;
    prepare_folders(&server)?;
    pair.congestion_control = congestion_control(spec, &client, &server)?;
    Ok((client, server, pair))
}

/// Looks at both hosts, and leaves them again.
pub(super) fn survey(
    spec: &TestbedSpec,
    hosts: &SshHosts,
    settings: &Settings,
    executor: &Arc<Executor>,
) -> [Result<RealHost>; 2] {
    let look = |role: Role, host: &str| -> Result<RealHost> {
        // one each: the alarm of the first is raised when it is left
        let pair = Pair::new(hosts, scratch::new_id());
        let ssh = Ssh { role, host, command: &hosts.ssh, executor, settings };
        let (mut agent, setup) = ssh.start(&pair)?;
        ssh.look(&mut agent, &setup, spec)
    };
    [look(Role::Client, &hosts.client), look(Role::Server, &hosts.server)]
}

impl Pair {
    fn new(hosts: &SshHosts, id: String) -> Self {
        Self {
            hosts: hosts.clone(),
            interface: String::new(),
            alarm: Arc::default(),
            records: Vec::new(),
            congestion_control: String::new(),
            id,
        }
    }

    pub(super) fn hosts(&self) -> &SshHosts {
        &self.hosts
    }

    /// # Errors
    /// The connection to a host has ended, with ssh's words.
    pub(super) fn require(&self) -> Result<()> {
        self.alarm.get().map_or(Ok(()), |why| Err(Error::Ended(why.clone())))
    }

    /// Describes the link; on one machine its backend's name stands there.
    pub(super) fn backend(&self) -> String {
        format!("real, {} to {} by {}", self.hosts.client, self.hosts.server, self.interface)
    }

    /// Times connections from the client to a port of the server on which nothing
    /// else listens; all by the client's clock.
    ///
    /// # Errors
    /// Nothing came through.
    pub(super) fn round_trips(&self, client: &Host, server: &Host) -> Result<RoundTrips> {
        const TIMES: u32 = 100;
        let address = SocketAddr::new(server.address, self.hosts.trial());
        server.agent()?.answer(address)?;
        let times = client.agent()?.round_trips(address, TIMES).map_err(|error| match error {
            why if why.is_failure() && self.alarm.get().is_none() => {
                let (ports, SshHosts { client, server, .. }) = (self.hosts.all_ports(), &self.hosts);
                Error::Link(format!(
                    "the client {client} cannot connect to {address} on the server {server} ({why}). The ports from \
                     {} to {} must be open between them; choose others with `ports` in [testbed]",
                    ports.start(),
                    ports.end()
                ))
            }
            error => error,
        })?;
        RoundTrips::of(times).ok_or_else(|| Error::Failed("no round trip was timed".into()))
    }

    /// Makes both hosts forget what TCP remembers of the other, and of nobody
    /// else.
    pub(super) fn forget_metrics(&self, client: &Host, server: &Host) -> Result<()> {
        for (host, other) in [(client, server.address), (server, client.address)] {
            host.run(&Command::words(IP, &format!("tcp_metrics flush address {other}")))?;
        }
        Ok(())
    }
}

/// Returns the congestion control of TCP on both hosts, if it is the plan's.
fn congestion_control(spec: &TestbedSpec, client: &Host, server: &Host) -> Result<String> {
    const DISCARD: u16 = 9; // RFC 863; nobody has to listen
    let of = |host: &Host, other: &Host| -> Result<String> {
        host.agent()?.congestion_control(SocketAddr::new(other.address, DISCARD))
    };
    let (near, far) = (of(client, server)?, of(server, client)?);
    let wanted = &spec.congestion_control;
    if wanted != HOST_DEFAULT && (near != *wanted || far != *wanted) {
        return Err(Error::Plan(format!(
            "TCP uses `{near}` on the client and `{far}` on the server, and the plan asks for `{wanted}`: the lab does \
             not change real hosts; leave out `congestion-control`, or set it there (sysctl \
             net.ipv4.tcp_congestion_control)"
        )));
    }
    Ok(format!("{near} on the client, {far} on the server (host default)"))
}
