//! The UDP sockets of a host, as the kernel lists them (proc_pid_net(5)): a probe that binds
//! the port itself would keep a server from it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::error::{Doing, Result};

/// Whether a UDP socket is bound to `address`, or to its port on every address.
pub(super) fn is_bound_for_udp(address: SocketAddr) -> Result<bool> {
    for path in ["/proc/self/net/udp", "/proc/self/net/udp6"] {
        let table = match std::fs::read_to_string(path) {
            Ok(table) => table,
            // a kernel without IPv6
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            error => error.doing(|| format!("read {path}"))?,
        };
        if is_in(&table, address) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_in(table: &str, address: SocketAddr) -> bool {
    let mut bound = table.lines().skip(1).filter_map(local_address);
    bound.any(|found| {
        let everywhere = found.ip().is_unspecified();
        // a socket of `::` takes what comes to IPv4 addresses as well, unless it refuses to
        let family = found.is_ipv6() || address.is_ipv4();
        found.port() == address.port() && (found.ip() == address.ip() || everywhere && family)
    })
}

/// Reads the second column of a row: `0100007F:0035`.
fn local_address(row: &str) -> Option<SocketAddr> {
    let (ip, port) = row.split_whitespace().nth(1)?.split_once(':')?;
    // each word of the address is printed as a number of this machine
    let word = |at: usize| u32::from_str_radix(ip.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match ip.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
            IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(words).ok()?))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_bound_port_is_found_and_a_free_one_is_not() {
        for own in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
            let Ok(socket) = UdpSocket::bind(own) else { continue };
            let bound = socket.local_addr().expect("its address");
            let asked = match bound.ip().is_unspecified() {
                true => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), bound.port()),
                false => bound,
            };
            // the kernel's table comes in pieces: a look misses rows that move while other tests close
            // their sockets, and callers look again
            let looks = |_| is_bound_for_udp(asked).expect("the kernel's tables");
            assert!((0..100).any(looks), "{bound}");
        }
    }

    #[test]
    fn rows_are_read_and_other_text_is_nothing() {
        let row = |address: &str| format!("  sl  local_address\n  0: {address} 00:0000 07\n");
        let number = |word: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(word));
        let v4 = number([127, 0, 0, 1]);
        let v6 = [[0xfd, 0, 0, 1], [0; 4], [0; 4], [0, 0, 0, 2]].map(number).concat();
        let is = |table: &str, address: &str| is_in(table, address.parse().expect("an address"));
        assert!(is(&row(&format!("{v4}:0035")), "127.0.0.1:53"));
        assert!(is(&row(&format!("{v6}:0045")), "[fd00:1::2]:69"));
        assert!(is(&row(&format!("{}:0045", "0".repeat(32))), "[fd00:1::2]:69"));
        assert!(is(&row(&format!("{}:0045", "0".repeat(32))), "10.0.0.1:69"));
        assert!(!is(&row(&format!("{}:0045", "0".repeat(8))), "[fd00:1::2]:69"));
        assert!(!is(&row(&format!("{v4}:0035")), "127.0.0.1:54"));
        for other in
            ["", "x", "0100007:0035", "zz00007F:0035", "0100007F", "0100007F:99999", "é0007F:1"]
        {
            assert!(!is(&row(other), "127.0.0.1:53"), "{other}");
        }
    }
}
