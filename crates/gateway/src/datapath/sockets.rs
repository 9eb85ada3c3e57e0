//! The sockets that associations need.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use headroom_ipsec::Engine;
use headroom_ipsec::spec::Direction;
use headroom_netio::raw::Share;
use headroom_netio::udp;
use headroom_netio::{RawReceiver, UdpSocket};

use super::device::Receiver;
use super::settings::{IKE_PORT, NAT_PORT, Settings};

/// The UDP ports and IP protocols that must be open, by address family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Endpoints {
    /// Whether IPv6, and the local UDP port.
    ports: BTreeSet<(bool, u16)>,
    /// Whether IPv6, and the IP protocol.
    protocols: BTreeSet<(bool, u8)>,
}

impl Endpoints {
    /// Returns the endpoints that the associations of an engine need.
    pub(crate) fn of(engine: &Engine) -> Self {
        let mut endpoints = Self::default();
        for sa in engine.associations() {
            let spec = sa.spec();
            let v6 = spec.source.is_ipv6();
            match (spec.udp, spec.direction) {
                (Some(udp), Direction::In) => endpoints.ports.insert((v6, udp.destination)),
                (Some(udp), Direction::Out) => endpoints.ports.insert((v6, udp.source)),
                // also for outbound associations: without a socket the kernel answers packets
                // of the peer with "protocol unreachable"
                (None, _) => endpoints.protocols.insert((v6, spec.protection.protocol().number())),
            };
        }
        endpoints
    }

    /// Adds the ports of IKE.
    pub(crate) fn with_ike(mut self, settings: &Settings) -> Self {
        let families = settings.ike.as_ref().map_or([false; 2], |ike| ike.families);
        for v6 in [false, true].into_iter().filter(|v6| families[usize::from(*v6)]) {
            self.ports.extend([(v6, IKE_PORT), (v6, NAT_PORT)]);
        }
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ports.is_empty() && self.protocols.is_empty()
    }
}

/// Open sockets, one of each kind per queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sockets {
    endpoints: Endpoints,
    queues: Vec<Queue>,
}

#[derive(Debug, Clone, Default)]
struct Queue {
    udp: Vec<Arc<UdpSocket>>,
    raw: Vec<(Arc<RawReceiver>, u8)>,
}

/// Opens a socket for each queue on one port, which no other program has.
fn open_port(
    address: SocketAddr,
    queues: usize,
    options: &udp::Options,
) -> io::Result<Vec<UdpSocket>> {
    let mut open = vec![UdpSocket::bind(address, options)?];
    if queues > 1 {
        open[0].share_port()?;
        let options = udp::Options { join_port: true, ..*options };
        for _ in 1..queues {
            open.push(UdpSocket::bind(address, &options)?);
        }
    }
    Ok(open)
}

impl Sockets {
    pub(crate) fn open(
        endpoints: &Endpoints,
        queues: usize,
        settings: &Settings,
    ) -> io::Result<Self> {
        let mut sockets =
            Self { endpoints: endpoints.clone(), queues: vec![Queue::default(); queues] };
        let options = udp::Options { mark: Some(settings.mark), ..udp::Options::default() };
        for &(v6, port) in &endpoints.ports {
            let any: IpAddr =
                if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
            let address = SocketAddr::new(any, port);
            let open = open_port(address, queues, &options).map_err(|error| {
                let family = if v6 { "IPv6" } else { "IPv4" };
                let message = format!(
                    "cannot open UDP port {port} over {family}: {error}. An IKE daemon or another tunnel may use it"
                );
                io::Error::new(error.kind(), message)
            })?;
            if queues > 1 {
                udp::steer_by_spi(&open)?;
            }
            for (queue, socket) in sockets.queues.iter_mut().zip(open) {
                queue.udp.push(Arc::new(socket));
            }
        }
        for &(v6, protocol) in &endpoints.protocols {
            for (index, queue) in sockets.queues.iter_mut().enumerate() {
                let share = (queues > 1).then_some(Share {
                    offset: spi_offset(protocol),
                    of: queues as u32,
                    index: index as u32,
                });
                let socket = RawReceiver::open(protocol, v6, share).map_err(|error| {
                    let message =
                        format!("cannot open a raw socket for IP protocol {protocol}: {error}");
                    io::Error::new(error.kind(), message)
                })?;
                queue.raw.push((Arc::new(socket), protocol));
            }
        }
        Ok(sockets)
    }

    /// Returns the endpoints that are not open.
    pub(crate) fn missing(&self, endpoints: &Endpoints) -> Endpoints {
        Endpoints {
            ports: endpoints.ports.difference(&self.endpoints.ports).copied().collect(),
            protocols: endpoints.protocols.difference(&self.endpoints.protocols).copied().collect(),
        }
    }

    /// Returns these sockets and more.
    pub(crate) fn with(&self, more: &Self) -> Self {
        let mut all = self.clone();
        all.endpoints.ports.extend(&more.endpoints.ports);
        all.endpoints.protocols.extend(&more.endpoints.protocols);
        for (queue, more) in all.queues.iter_mut().zip(&more.queues) {
            queue.udp.extend(more.udp.iter().cloned());
            queue.raw.extend(more.raw.iter().cloned());
        }
        all
    }

    /// Returns the sockets from which a queue receives.
    pub(crate) fn arrivals(&self, queue: usize) -> Vec<Receiver> {
        let Some(queue) = self.queues.get(queue) else { return Vec::new() };
        let udp = queue.udp.iter().map(|socket| Receiver::Udp(Arc::clone(socket)));
        let raw =
            queue.raw.iter().map(|(socket, number)| Receiver::Ip(Arc::clone(socket), *number));
        udp.chain(raw).collect()
    }

    /// Returns the UDP socket of a queue and a port.
    pub(crate) fn udp(&self, queue: usize, v6: bool, port: u16) -> Option<&Arc<UdpSocket>> {
        let sockets = &self.queues.get(queue)?.udp;
        sockets.iter().find(|of| (of.local().is_ipv6(), of.local().port()) == (v6, port))
    }
}

/// Returns the offset of the SPI in the header of a protocol.
fn spi_offset(protocol: u8) -> u32 {
    match protocol {
        headroom_ipsec::spec::ESP => 0,
        headroom_ipsec::spec::AH => 4,
        _ => 8, // Q-ESP
    }
}
