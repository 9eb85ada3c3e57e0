//! Handles timers: lifetimes, keepalives, path MTUs, dummy packets.

use std::collections::{HashMap, HashSet};
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use headroom_ipsec::spec::Direction;
use headroom_ipsec::{Bundle, Event, Policy};
use headroom_netio::udp::Train;
use headroom_netio::{Stop, wait_readable};

use super::device::WireTx;
use super::outbox::{Outbox, transmit_of};
use super::queue_sender::QueueSender;
use super::shared::Shared;

/// The interval of lifetime checks.
const TICK: Duration = Duration::from_secs(1);
/// The interval of path MTU queries.
const QUERY_INTERVAL: Duration = Duration::from_secs(10);
/// RFC 3948, section 2.3.
const KEEPALIVE: [u8; 1] = [0xff];

/// Runs until `stop` is set.
pub(crate) fn run(shared: &Arc<Shared>, stop: &Stop, on_event: impl Fn(Event)) -> io::Result<()> {
    let now = Instant::now();
    let mut wire = QueueSender::open(Arc::clone(shared), 0)?;
    let mut dummies = Dummies::default();
    let (mut tick, mut ask, mut keepalive) = (now, now, now);
    while !stop.is_set() {
        let now = Instant::now();
        if now >= tick {
            shared.engine.load().tick(shared.now()).into_iter().for_each(&on_event);
            tick = now + TICK;
        }
        if now >= ask {
            shared.paths.query_all();
            ask = now + QUERY_INTERVAL;
        }
        if !shared.settings.keepalive.is_zero() && now >= keepalive {
            send_keepalives(shared, &mut wire);
            keepalive = now + shared.settings.keepalive;
        }
        let dummy = dummies.send_due(shared, now, &mut wire);
        let next = [Some(tick), Some(ask), dummy].into_iter().flatten().min().unwrap_or(tick);
        // one millisecond more, so that no timer is checked too early
        let pause = next.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        wait_readable(&[stop], Some(pause))?;
    }
    Ok(())
}

/// Sends one byte on each UDP path, which refreshes the mappings of NATs (RFC 3948, section 4).
pub(super) fn send_keepalives(shared: &Shared, wire: &mut impl WireTx) {
    let engine = shared.engine.load();
    let mut done: HashSet<(IpAddr, SocketAddr, u16)> = HashSet::new();
    for sa in engine.associations() {
        let spec = sa.spec();
        let Some(ports) = spec.udp.filter(|_| spec.direction == Direction::Out) else { continue };
        let destination = sa.remote();
        let path = (spec.source, destination, ports.source);
        if !done.insert(path) {
            continue;
        }
        let source = Some(spec.source);
        let datagrams = [IoSlice::new(&KEEPALIVE)];
        let train =
            Train { destination, source, tos: 0, dont_fragment: false, datagrams: &datagrams };
        // the next keepalive tries again
        let _ = wire.send_datagrams(ports.source, &train);
    }
}

/// Schedules dummy packets (RFC 4303, section 2.6) of idle associations.
#[derive(Debug, Default)]
struct Dummies {
    /// When the next packet is due, and the packets sent at the last check.
    due: HashMap<String, (Instant, u64)>,
    outbox: Option<Outbox>,
}

impl Dummies {
    /// Sends the packets that are due. Returns the time of the next check.
    fn send_due(
        &mut self,
        shared: &Shared,
        now: Instant,
        wire: &mut QueueSender,
    ) -> Option<Instant> {
        let engine = shared.engine.load();
        let wanted = &shared.settings.dummies_per_second;
        let bundles = engine.policies().iter().flat_map(Policy::bundles);
        let mut earliest = None;
        let mut looked_at: Vec<&str> = Vec::new();
        for bundle in bundles.take_while(|_| !wanted.is_empty()) {
            let Some(sa) = bundle.associations().next() else { continue };
            let name = sa.spec().name.as_str();
            let rate = wanted.iter().find(|(of, _)| of == name).map_or(0, |(_, rate)| *rate);
            if rate == 0 || looked_at.contains(&name) {
                continue;
            }
            looked_at.push(name);
            let gap = Duration::from_secs(1) / rate;
            let (due, before) = self.due.entry(name.to_owned()).or_insert((now, sa.packets()));
            if now >= *due {
                let silent = sa.packets() == *before;
                *due = now + gap;
                if silent {
                    let outbox = self.outbox.get_or_insert_with(Outbox::new);
                    send_dummy(shared, bundle, outbox, wire);
                }
                *before = sa.packets();
            }
            earliest = Some(earliest.map_or(*due, |other: Instant| other.min(*due)));
        }
        earliest
    }
}

fn send_dummy(shared: &Shared, bundle: &Bundle, outbox: &mut Outbox, wire: &mut QueueSender) {
    /// The payload of a full packet on a usual link.
    const LEN: usize = 1200;
    let engine = shared.engine.load();
    let sealed = bundle.reserve(1, LEN as u64).and_then(|mut reservation| {
        let space = outbox.space(wire).map_err(|_| headroom_ipsec::Reason::SendFailed)?;
        let path_mtu = shared.paths.mtu(bundle.destination()).min(space.len());
        let len = LEN.min(bundle.inner_mtu(path_mtu, 0));
        let len = bundle.seal_dummy(&mut reservation, len, &mut space[..path_mtu])?;
        let transmit = transmit_of(bundle, reservation.destination(), &space[..len]);
        let sent = outbox.add(len, transmit, wire).and_then(|()| outbox.flush(wire));
        sent.map_err(|_| headroom_ipsec::Reason::SendFailed)
    });
    if let Err(reason) = sealed {
        engine.counters().add(reason, 1);
    }
}
