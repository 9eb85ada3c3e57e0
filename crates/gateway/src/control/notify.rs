//! Tells systemd how it stands (sd_notify(3)): one datagram, no library.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// What is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// It does its work.
    Ready,
    /// It reads its settings again.
    Reloading,
    /// It is about to end.
    Stopping,
}

/// Tells whoever started this process, if it wants to know. That it cannot be
/// told is its own loss.
pub fn tell(news: News) {
    let Some(to) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match to.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path)),
    };
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        let _ = socket.send_to_addr(words(news).as_bytes(), &address);
    }
}

fn words(news: News) -> String {
    match news {
        News::Ready => "READY=1\n".into(),
        News::Reloading => {
            let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
            let now = now.map_or(0, |now| now.tv_sec() * 1_000_000 + now.tv_nsec() / 1000);
            format!("RELOADING=1\nMONOTONIC_USEC={now}\n")
        }
        News::Stopping => "STOPPING=1\n".into(),
    }
}
