//! Packets that wait while the association that they asked for is negotiated.

use std::collections::{HashSet, VecDeque};
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use headroom_mutex::lock;
use headroom_netio::Tun;
use headroom_packet::Offload;

use super::device::TunDevice;

/// The most packets or trains that wait, and their bytes. More are dropped, as without a queue.
const MAX_PACKETS: usize = 256;
const MAX_BYTES: usize = 1 << 20;
/// The age at which a packet is of no use any more.
const MAX_AGE: Duration = Duration::from_secs(10);

/// Packets that wait, by the policies that protect them.
#[derive(Debug, Default)]
pub(crate) struct Held(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    /// The policies whose packets wait.
    traps: HashSet<String>,
    packets: VecDeque<Packet>,
    bytes: usize,
}

#[derive(Debug)]
struct Packet {
    policy: String,
    /// As the TUN gave it.
    read: Vec<u8>,
    since: Instant,
}

impl Held {
    /// Replaces the policies whose packets wait.
    pub(crate) fn set_traps(&self, traps: HashSet<String>) {
        self.lock().traps = traps;
    }

    /// Keeps a packet that was read from the TUN, if its policy wants that and there is space.
    pub(crate) fn keep(&self, policy: &str, read: &[u8]) -> bool {
        let policy = base(policy);
        let mut queue = self.lock();
        let fits = queue.packets.len() < MAX_PACKETS && queue.bytes + read.len() <= MAX_BYTES;
        if !fits || !queue.traps.contains(policy) {
            return false;
        }
        queue.bytes += read.len();
        let (policy, since) = (policy.to_owned(), Instant::now());
        queue.packets.push_back(Packet { policy, read: read.to_vec(), since });
        true
    }

    /// Returns the policies for which packets wait.
    pub(crate) fn policies(&self) -> Vec<String> {
        let mut policies: Vec<String> = Vec::new();
        for packet in &self.lock().packets {
            if !policies.contains(&packet.policy) {
                policies.push(packet.policy.clone());
            }
        }
        policies
    }

    /// Takes out the packets of a policy, and the number of those that are too old.
    pub(crate) fn take(&self, policy: &str) -> (VecDeque<Vec<u8>>, usize) {
        let mut queue = self.lock();
        let (mine, others): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut queue.packets).into_iter().partition(|one| one.policy == policy);
        queue.bytes = others.iter().map(|one| one.read.len()).sum();
        queue.packets = others;
        let all = mine.len();
        let fresh = mine.into_iter().filter(|one| one.since.elapsed() < MAX_AGE);
        let fresh: VecDeque<_> = fresh.map(|one| one.read).collect();
        let old = all - fresh.len();
        (fresh, old)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.0)
    }
}

/// Returns the name of the configured policy of which this is a part: no name in a file has a slash.
fn base(policy: &str) -> &str {
    policy.split('/').next().unwrap_or(policy)
}

/// Reads packets that have waited, in place of the TUN.
pub(crate) struct Waited {
    pub(crate) packets: Mutex<VecDeque<Vec<u8>>>,
    pub(crate) tun: Arc<Tun>,
}

impl TunDevice for Waited {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let packet = lock(&self.packets).pop_front();
        let Some(packet) = packet else { return Ok(0) };
        let space = buffer.get_mut(..packet.len()).ok_or(io::ErrorKind::InvalidData)?;
        space.copy_from_slice(&packet);
        Ok(packet.len())
    }

    fn write(&self, offload: &Offload, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.tun.write(offload, parts)
    }

    fn takes_udp_trains(&self) -> bool {
        self.tun.takes_udp_trains()
    }

    fn wait_on(&self) -> Option<&dyn AsFd> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_a_bounded_number_of_packets_of_the_policies_that_want_it() {
        let held = Held::default();
        assert!(!held.keep("a", &[1]), "nobody wants it");
        held.set_traps(["a".to_owned(), "b".to_owned()].into());
        assert!(held.keep("a/2", &[1]) && held.keep("b", &[2]) && !held.keep("c", &[3]));
        assert!(!held.keep("a", &vec![0; MAX_BYTES]), "it is too long");
        assert_eq!(held.policies(), ["a", "b"]);
        assert_eq!(held.take("a"), ([vec![1]].into(), 0));
        assert_eq!(held.policies(), ["b"]);
        let kept = (0..1000).filter(|_| held.keep("a", &[0; 100])).count();
        assert_eq!(kept, MAX_PACKETS - 1);
        let kept = (0..1000).filter(|_| held.keep("b", &[0; 100])).count();
        assert_eq!(kept, 0);
        assert_eq!(held.take("a").0.len(), MAX_PACKETS - 1);
        let kept = (0..1000).filter(|_| held.keep("b", &[0; MAX_BYTES / 10])).count();
        assert_eq!(kept, 10);
    }
}
