//! Looks up the kernel's route and the neighbour's link address of a destination (rtnetlink(7)),
//! and the path MTU.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use crate::control::field;
use crate::socket;

const HEADER: usize = 16; // struct nlmsghdr
const ROUTE: usize = 12; // struct rtmsg
const NEIGHBOUR: usize = 12; // struct ndmsg
/// Bytes of an answer: one route or one neighbour with all attributes.
const ANSWER: usize = 4096;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const RTA_MARK: u16 = 16;
const RTA_VIA: u16 = 18;
/// States of neighbours with a known address (linux/neighbour.h).
const KNOWN: u16 =
    libc::NUD_REACHABLE | libc::NUD_STALE | libc::NUD_DELAY | libc::NUD_PROBE | libc::NUD_PERMANENT;

/// The next hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// The index of its interface.
    pub interface: i32,
    /// Its link address: the first `address_len` bytes.
    pub address: [u8; 8],
    /// See `address`.
    pub address_len: u8,
}

/// Queries routes and neighbours.
#[derive(Debug)]
pub struct Router {
    socket: OwnedFd,
    mark: u32,
    sequence: u32,
}

impl Router {
    /// Opens a netlink socket in the network namespace of the calling thread; routes are looked up
    /// with this mark.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn open(mark: Option<u32>) -> io::Result<Self> {
        let socket = socket::open(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
        let limit = libc::timeval { tv_sec: 1, tv_usec: 0 };
        socket::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &limit)?;
        Ok(Self { socket, mark: mark.unwrap_or(0), sequence: 0 })
    }

    /// Returns the next hop from `source` to `destination`, if the interface has link addresses and
    /// the neighbour's is known.
    ///
    /// # Errors
    /// The error of the kernel: `ENETUNREACH` if there is no route or the source is not an address
    /// of this host.
    pub fn next_hop(&mut self, source: IpAddr, destination: IpAddr) -> io::Result<Option<Hop>> {
        let route = self.route(source, destination)?;
        let (Some(interface), libc::RTN_UNICAST) = (route.interface, route.kind) else {
            return Ok(None);
        };
        let neighbour = route.gateway.unwrap_or(destination);
        let family = socket::family_of(&neighbour) as u8;
        let mut body = vec![0; NEIGHBOUR];
        body[0] = family;
        body[4..8].copy_from_slice(&interface.to_ne_bytes());
        attribute(&mut body, NDA_DST, &address_bytes(neighbour));
        let answer = match self.ask(libc::RTM_GETNEIGH, &body) {
            Ok(answer) => answer,
            // The address is unknown, or the kernel (before 5.0) does not support the request.
            Err(error) => {
                return match error.raw_os_error() {
                    Some(libc::ENOENT | libc::EOPNOTSUPP | libc::EINVAL) => Ok(None),
                    _ => Err(error),
                };
            }
        };
        Ok(Hop::read(&answer, interface))
    }

    fn route(&mut self, source: IpAddr, destination: IpAddr) -> io::Result<Route> {
        let (bytes, from) = (address_bytes(destination), address_bytes(source));
        let mut body = vec![0; ROUTE];
        body[0] = socket::family_of(&destination) as u8;
        body[1] = (bytes.len() * 8) as u8;
        body[2] = (from.len() * 8) as u8;
        attribute(&mut body, libc::RTA_DST, &bytes);
        attribute(&mut body, libc::RTA_SRC, &from);
        attribute(&mut body, RTA_MARK, &self.mark.to_ne_bytes());
        self.ask(libc::RTM_GETROUTE, &body).map(|answer| Route::read(&answer))
    }

    /// Sends a request and returns the answer without its header.
    fn ask(&mut self, kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = Vec::with_capacity(HEADER + body.len());
        message.extend(((HEADER + body.len()) as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend(0u32.to_ne_bytes());
        message.extend(body);
        socket::retried(|| {
            // SAFETY: pointer and length describe `message`, which lives until the call returns.
            let sent = unsafe {
                libc::send(self.socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0)
            };
            if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        })?;
        loop {
            let mut answer = vec![0u8; ANSWER];
            let got = socket::retried(|| {
                // SAFETY: pointer and length describe `answer`, which lives until the call returns.
                let got = unsafe {
                    libc::recv(self.socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0)
                };
                usize::try_from(got).map_err(|_| io::Error::last_os_error())
            })?;
            answer.truncate(got);
            if let Some(body) = body_of(answer, self.sequence)? {
                return Ok(body);
            }
        }
    }
}

/// Returns the bytes after the header of an answer; None for an answer to an abandoned request.
pub(crate) fn body_of(mut answer: Vec<u8>, sequence: u32) -> io::Result<Option<Vec<u8>>> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let kind = field(&answer, 4).map(u16::from_ne_bytes).ok_or_else(malformed)?;
    if field(&answer, 8).map(u32::from_ne_bytes) != Some(sequence) {
        return Ok(None);
    }
    if libc::c_int::from(kind) == libc::NLMSG_ERROR {
        let code = field(&answer, HEADER).map(i32::from_ne_bytes).ok_or_else(malformed)?;
        return Err(io::Error::from_raw_os_error(code.saturating_neg()));
    }
    Ok(Some(answer.split_off(HEADER.min(answer.len()))))
}

/// Parses an answer about a route.
#[derive(Debug)]
pub(crate) struct Route {
    kind: u8,
    interface: Option<i32>,
    gateway: Option<IpAddr>,
}

impl Route {
    pub(crate) fn read(answer: &[u8]) -> Self {
        let kind = answer.get(7).copied().unwrap_or(0);
        let mut route = Self { kind, interface: None, gateway: None };
        for (kind, data) in attributes(answer.get(ROUTE..).unwrap_or_default()) {
            match kind {
                libc::RTA_OIF => route.interface = field(data, 0).map(i32::from_ne_bytes),
                libc::RTA_GATEWAY => route.gateway = address_of(data),
                RTA_VIA => route.gateway = data.get(2..).and_then(address_of),
                _ => {}
            }
        }
        route
    }
}

impl Hop {
    /// Parses an answer about a neighbour; None if its address is unknown.
    pub(crate) fn read(answer: &[u8], interface: i32) -> Option<Self> {
        let state = field(answer, 8).map_or(0, u16::from_ne_bytes);
        let link_address = attributes(answer.get(NEIGHBOUR..).unwrap_or_default())
            .find_map(|(kind, data)| (kind == NDA_LLADDR).then_some(data));
        let data = link_address.filter(|_| state & KNOWN != 0)?;
        let mut address = [0; 8];
        address.get_mut(..data.len())?.copy_from_slice(data);
        Some(Self { interface, address, address_len: data.len() as u8 })
    }
}

/// Returns the kernel's MTU of the path to `destination` in bytes: that of the interface or the
/// route, or one that a router reported.
///
/// # Errors
/// The error of the kernel: `ENETUNREACH` if there is no route.
pub fn path_mtu(destination: IpAddr, mark: Option<u32>) -> io::Result<usize> {
    let socket = connected(destination, mark)?;
    let (level, option) = match destination {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let mut mtu: libc::c_int = 0;
    let mut len = size_of_val(&mtu) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `mtu`.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw mut mtu).cast::<libc::c_void>(),
            &raw mut len,
        )
    };
    match usize::try_from(mtu) {
        Ok(mtu) if got == 0 => Ok(mtu),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the address from which the kernel sends to `destination`.
///
/// # Errors
/// The error of the kernel: `ENETUNREACH` if there is no route.
pub fn source_towards(destination: IpAddr, mark: Option<u32>) -> io::Result<IpAddr> {
    let socket = std::net::UdpSocket::from(connected(destination, mark)?);
    socket.local_addr().map(|address| address.ip())
}

/// Opens a UDP socket towards `destination`, from which nothing is sent.
fn connected(destination: IpAddr, mark: Option<u32>) -> io::Result<OwnedFd> {
    let socket = socket::open(socket::family_of(&destination), libc::SOCK_DGRAM, 0)?;
    if let Some(mark) = mark {
        socket::set_mark(&socket, mark)?;
    }
    let (name, len) = socket::to_storage(&SocketAddr::new(destination, 9));
    // SAFETY: `name` contains an address of `len` bytes and lives until the call returns.
    match unsafe { libc::connect(socket.as_raw_fd(), (&raw const name).cast(), len) } {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}

fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(field::<4>(bytes, 0)?).into()),
        16 => Some(Ipv6Addr::from(field::<16>(bytes, 0)?).into()),
        _ => None,
    }
}

/// Adds a `struct rtattr` with its data.
fn attribute(message: &mut Vec<u8>, kind: u16, data: &[u8]) {
    message.extend(((4 + data.len()) as u16).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(data);
    message.resize(message.len().next_multiple_of(4), 0);
}

/// Returns the attributes of an answer, up to the first with an invalid length.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(field(rest, 0)?));
        let kind = u16::from_ne_bytes(field(rest, 2)?);
        let data = rest.get(4..len)?;
        rest = &rest[len.next_multiple_of(4).min(rest.len())..];
        Some((kind, data))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{own_namespace, run};

    #[test]
    fn the_neighbour_of_a_route_is_found_and_followed() {
        let Some(_namespace) = own_namespace() else { return };
        run("ip link add hr-a type veth peer name hr-b");
        for address in ["192.0.2.1/24", "2001:db8::1/64 nodad"] {
            run(&format!("ip addr add {address} dev hr-a"));
        }
        run("ip link set hr-a mtu 1400 up");
        run("ip link set hr-b up");
        run("ip route add 198.51.100.0/24 via 192.0.2.2");
        run("ip rule add fwmark 5 prohibit pref 1");
        let (near, far) = ("192.0.2.2".parse().expect("an address"), [198, 51, 100, 9].into());
        let mut router = Router::open(None).expect("a netlink socket");
        let here = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(router.next_hop(here, near).expect("a route"), None, "an unknown neighbour");
        run("ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:07 nud permanent dev hr-a");
        for address in [near, far] {
            let hop = router.next_hop(here, address).expect("a route").expect("a neighbour");
            assert_eq!(hop.address[..usize::from(hop.address_len)], [2, 0, 0, 0, 0, 7]);
            assert!(hop.interface > 1);
        }
        run("ip neigh change 192.0.2.2 lladdr 02:00:00:00:00:08 nud reachable dev hr-a");
        let hop = router.next_hop(here, far).expect("a route").expect("a neighbour");
        assert_eq!(hop.address[5], 8);
        let v6 = "2001:db8::2".parse().expect("an address");
        run("ip neigh add 2001:db8::2 lladdr 02:00:00:00:00:09 nud permanent dev hr-a");
        let here_v6 = "2001:db8::1".parse().expect("an address");
        assert_eq!(
            router.next_hop(here_v6, v6).expect("a route").map(|hop| hop.address[5]),
            Some(9)
        );
        assert_eq!(path_mtu(far, None).expect("a path"), 1400);
        assert_eq!(path_mtu(v6, None).expect("a path"), 1400);
        let nowhere = router.next_hop(here, [203, 0, 113, 1].into()).expect_err("no route");
        assert_eq!(nowhere.raw_os_error(), Some(libc::ENETUNREACH));
        let marked = Router::open(Some(5)).expect("a netlink socket").next_hop(here, far);
        assert_eq!(marked.expect_err("prohibited").raw_os_error(), Some(libc::EACCES));
        let own = Router::open(None).expect("a netlink socket").next_hop(here, here);
        assert_eq!(own.expect("a local route"), None);
        assert!(router.next_hop(far, near).is_err(), "a source elsewhere");
        // A source with its own route.
        run("ip link add hr-c type veth peer name hr-d");
        run("ip addr add 203.0.113.5/32 dev hr-c");
        run("ip link set hr-c up");
        run("ip link set hr-d up");
        run("ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:0a nud permanent dev hr-c");
        run("ip route add 192.0.2.2 dev hr-c table 9");
        run("ip rule add from 203.0.113.5 lookup 9 pref 2");
        let own_way = router.next_hop([203, 0, 113, 5].into(), near).expect("a route");
        assert_eq!(own_way.map(|hop| hop.address[5]), Some(0x0a));
    }

    #[test]
    fn attributes_that_lie_about_their_length_end_the_list() {
        let mut good = Vec::new();
        attribute(&mut good, 3, &[1; 5]);
        attribute(&mut good, 4, &[2; 4]);
        assert_eq!(attributes(&good).count(), 2);
        for lie in [0u16, 3, 200, u16::MAX] {
            good[..2].copy_from_slice(&lie.to_ne_bytes());
            assert_eq!(attributes(&good).count(), 0, "{lie}");
        }
    }
}
