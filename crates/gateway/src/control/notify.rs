//! Reports the service's state to systemd (sd_notify(3)): one datagram, no library.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The state of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceState {
    /// Ready.
    Ready,
    /// Reading its configuration again.
    Reloading,
    /// Stopping.
    Stopping,
}

/// Sends the state to the service manager, if one asked for it. Ignores errors.
pub fn notify(state: ServiceState) {
    let Some(to) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match to.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path)),
    };
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        let _ = socket.send_to_addr(words(state).as_bytes(), &address);
    }
}

fn words(state: ServiceState) -> String {
    match state {
        ServiceState::Ready => "READY=1\n".into(),
        ServiceState::Reloading => {
            let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
            let now = now.map_or(0, |now| now.tv_sec() * 1_000_000 + now.tv_nsec() / 1000);
            format!("RELOADING=1\nMONOTONIC_USEC={now}\n")
        }
        ServiceState::Stopping => "STOPPING=1\n".into(),
    }
}
