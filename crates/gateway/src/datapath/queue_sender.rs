//! The sockets with which one queue sends.

use std::io::{self, IoSlice};
use std::sync::Arc;

use headroom_netio::udp::Train;
use headroom_netio::{LinkSender, SendPackets};

use super::device::WireTx;
use super::shared::Shared;

/// Sends the packets of one queue.
#[derive(Debug)]
pub(crate) struct QueueSender {
    queue: usize,
    shared: Arc<Shared>,
    packets: LinkSender,
}

impl QueueSender {
    pub(crate) fn open(shared: Arc<Shared>, queue: usize) -> io::Result<Self> {
        let packets = LinkSender::open(Some(shared.settings.mark))?;
        Ok(Self { queue, shared, packets })
    }
}

impl WireTx for QueueSender {
    fn send_datagrams(&mut self, port: u16, train: &Train<'_>) -> Result<(), (usize, io::Error)> {
        let sockets = self.shared.sockets.load();
        match sockets.udp(self.queue, train.destination.is_ipv6(), port) {
            Some(socket) => socket.send(train),
            None => Err((0, io::Error::from(io::ErrorKind::NotConnected))),
        }
    }

    fn send_packets(&mut self, packets: &[IoSlice<'_>]) -> Result<(), (usize, io::Error)> {
        self.packets.send(packets)
    }
}
