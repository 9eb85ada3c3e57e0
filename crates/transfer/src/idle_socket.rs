//! A server's QUIC socket that sends single packets while no transfer runs: quinn keeps a
//! buffer for a whole train, 13 kB, for every connection that ever sent one.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Runtime, TokioRuntime, UdpPoller};

/// Whether any transfer runs on a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct ActivityFlag(Arc<AtomicBool>);

impl ActivityFlag {
    pub(crate) fn set(&self, activity: bool) {
        self.0.store(activity, Ordering::Relaxed);
    }
}

/// The socket.
#[derive(Debug)]
pub(crate) struct IdleAwareSocket {
    socket: Arc<dyn AsyncUdpSocket>,
    activity: ActivityFlag,
}

impl IdleAwareSocket {
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The runtime does not accept the socket.
    pub(crate) fn new(socket: std::net::UdpSocket, activity: ActivityFlag) -> io::Result<Self> {
        Ok(Self { socket: TokioRuntime.wrap_udp_socket(socket)?, activity })
    }
}

impl AsyncUdpSocket for IdleAwareSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.socket).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.socket.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_recv(cx, bufs, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        if self.activity.0.load(Ordering::Relaxed) {
            self.socket.max_transmit_segments()
        } else {
            1
        }
    }

    fn max_receive_segments(&self) -> usize {
        self.socket.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.socket.may_fragment()
    }
}
