//! Sends whole IP packets by a packet socket (packet(7)), straight to the neighbour. That costs
//! less than a raw socket (docs/datapath.md, "Sending raw packets"), which remains for destinations
//! whose neighbour is not known.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::mem::zeroed;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crate::raw::{RawSender, SendPackets, destination_of, malformed, send_all, source_of};
use crate::route::{Hop, Router};
use crate::socket;

/// How long the address of a neighbour is used. The first batch after that goes through the kernel,
/// which thereby confirms the address (RFC 4861, section 7.3) and follows changed routes.
const HOP_LIFETIME: Duration = Duration::from_secs(1);
/// The most remembered destinations; at the limit all are forgotten.
const MAX_DESTINATIONS: usize = 1024;

/// Sends directly to the neighbour's link address.
#[derive(Debug)]
pub struct LinkSender {
    socket: OwnedFd,
    raw: RawSender,
    router: Router,
    /// By source and destination.
    hops: HashMap<(IpAddr, IpAddr), (Instant, Option<Hop>)>,
}

impl LinkSender {
    /// Opens the sockets in the network namespace of the calling thread; packets are routed with
    /// this mark. Needs `CAP_NET_RAW`, and `CAP_NET_ADMIN` for a mark.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn open(mark: Option<u32>) -> io::Result<Self> {
        let socket = socket::open(libc::AF_PACKET, libc::SOCK_DGRAM, 0)?;
        if let Some(mark) = mark {
            socket::set_mark(&socket, mark)?;
        }
        socket::enlarge_buffers(&socket)?;
        socket::limit_wait(&socket)?;
        Ok(Self {
            socket,
            raw: RawSender::open(mark)?,
            router: Router::open(mark)?,
            hops: HashMap::new(),
        })
    }

    /// Returns the neighbour, if its address was looked up recently; otherwise looks it up for the
    /// next batch and returns `None`.
    fn cached_hop(&mut self, source: IpAddr, destination: IpAddr) -> Option<Hop> {
        let now = Instant::now();
        if let Some((asked, hop)) = self.hops.get(&(source, destination))
            && now.duration_since(*asked) < HOP_LIFETIME
        {
            return *hop;
        }
        if self.hops.len() >= MAX_DESTINATIONS {
            self.hops.clear();
        }
        // No route: the raw socket returns the kernel's error.
        let hop = self.router.next_hop(source, destination).unwrap_or(None);
        self.hops.insert((source, destination), (now, hop));
        None
    }
}

impl SendPackets for LinkSender {
    // A batch has one destination, the first packet's.
    fn send(&mut self, packets: &[IoSlice<'_>]) -> Result<(), (usize, io::Error)> {
        let ends = |packet: &IoSlice<'_>| Some((source_of(packet)?, destination_of(packet)?));
        let Some((source, destination)) = packets.first().and_then(ends) else {
            return if packets.is_empty() { Ok(()) } else { Err((0, malformed())) };
        };
        let Some(hop) = self.cached_hop(source, destination) else { return self.raw.send(packets) };
        let ethertype = if destination.is_ipv4() { libc::ETH_P_IP } else { libc::ETH_P_IPV6 };
        // SAFETY: all-zero bytes are a valid `sockaddr_ll`.
        let mut name: libc::sockaddr_ll = unsafe { zeroed() };
        name.sll_family = libc::AF_PACKET as u16;
        name.sll_protocol = (ethertype as u16).to_be();
        name.sll_ifindex = hop.interface;
        name.sll_halen = hop.address_len;
        name.sll_addr = hop.address;
        // SAFETY: a `sockaddr_ll` consists of numbers without padding and lives until the call
        // returns.
        let bytes = unsafe {
            std::slice::from_raw_parts((&raw const name).cast::<u8>(), size_of_val(&name))
        };
        send_all(&self.socket, bytes, packets).or_else(|(sent, error)| {
            match error.raw_os_error() {
                // The interface is gone or down: the kernel may have another route.
                Some(libc::ENXIO | libc::ENODEV | libc::ENETDOWN) => {
                    self.hops.remove(&(source, destination));
                    self.raw.send(&packets[sent..]).map_err(|(more, error)| (sent + more, error))
                }
                _ => Err((sent, error)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::Inbox;
    use crate::raw::RawReceiver;
    use crate::testing::{await_readable, own_namespace, run};
    use nix::sched::{CloneFlags, setns};
    use std::fs::File;

    /// Returns a packet of 120 bytes from 192.0.2.1 to 192.0.2.2, with its checksum.
    fn packet() -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 120, 0, 1, 0x40, 0, 64, 253, 0, 0];
        packet.extend([192, 0, 2, 1, 192, 0, 2, 2]);
        let sum: u32 = packet.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.resize(120, 9);
        packet
    }

    #[test]
    fn packets_arrive_by_either_way_also_when_the_neighbour_changes_its_address() {
        let Some(_peer) = own_namespace() else { return };
        let peer = File::open("/proc/thread-self/ns/net").expect("the peer's namespace");
        run("ip link add hr-b type veth peer name hr-a");
        let receiver = RawReceiver::open(253, false, None).expect("a socket of the peer");
        // The other end moves to its own namespace.
        let (tell, told) = std::sync::mpsc::channel();
        let (done, end) = std::sync::mpsc::channel::<()>();
        let holder = std::thread::spawn(move || {
            let _host = own_namespace();
            tell.send(File::open("/proc/thread-self/ns/net").expect("a namespace")).ok();
            end.recv().ok();
        });
        let host = told.recv().expect("the host's namespace");
        use std::os::fd::AsRawFd;
        run(&format!(
            "ip link set hr-a netns /proc/{}/fd/{}",
            std::process::id(),
            host.as_raw_fd()
        ));
        run("ip addr add 192.0.2.2/24 dev hr-b");
        run("ip link set hr-b address 02:00:00:00:00:22 up");
        setns(&host, CloneFlags::CLONE_NEWNET).expect("in the host");
        run("ip addr add 192.0.2.1/24 dev hr-a");
        run("ip link set hr-a up");
        let mut sender = LinkSender::open(None).expect("sockets that send");
        let packet = packet();
        let mut inbox = Inbox::new(64);
        let mut arrived = |sender: &mut LinkSender| {
            sender.send(&[IoSlice::new(&packet), IoSlice::new(&packet)]).expect("packets");
            let mut got = 0;
            while got < 2 {
                await_readable(&receiver);
                let count = receiver.receive(&mut inbox).expect("packets");
                assert!(inbox.packets().all(|got| [got.header, &*got.body].concat() == packet));
                got += count;
            }
        };
        let ends = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
        let ends = (ends[0], ends[1]);
        arrived(&mut sender); // by the kernel, which asks for the address
        assert_eq!(sender.hops[&ends].1, None);
        sender.hops.clear();
        arrived(&mut sender); // by the kernel again, which has the answer now
        let hop = sender.hops[&ends].1.expect("the neighbour is known");
        assert_eq!(hop.address[..6], [2, 0, 0, 0, 0, 0x22]);
        arrived(&mut sender); // directly
        setns(&peer, CloneFlags::CLONE_NEWNET).expect("in the peer");
        run("ip link set hr-b address 02:00:00:00:00:33");
        setns(&host, CloneFlags::CLONE_NEWNET).expect("in the host");
        run("ip neigh replace 192.0.2.2 lladdr 02:00:00:00:00:33 dev hr-a");
        for (asked, _) in sender.hops.values_mut() {
            *asked -= HOP_LIFETIME; // as if a second had passed
        }
        arrived(&mut sender);
        arrived(&mut sender);
        assert_eq!(sender.hops[&ends].1.map(|hop| hop.address[5]), Some(0x33));
        done.send(()).ok();
        holder.join().expect("the thread that holds the namespace");
    }
}
