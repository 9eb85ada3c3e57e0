//! The IDs of a client's lanes.
//!
//! A server with one port chooses the engine of a lane by its ID ([`engine_of`]). Random IDs of a
//! few lanes often choose one engine twice: four lanes have four of eight engines in 41 % of cases.
//! So the lanes that a process has open to one server get IDs that are consecutive modulo
//! [`CYCLE`], from a random beginning; the other bits of an ID are random.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Mutex;

use headroom_mutex::lock;
use headroom_transfer_proto::lane::LaneId;

/// The least common multiple of 1 to 8, the numbers of engines that a server may have: IDs that are
/// consecutive modulo this are so modulo each of them.
const CYCLE: u32 = 840;

/// The places of lanes that are open, by the servers that they lead to.
static OPEN: Mutex<BTreeMap<SocketAddr, Places>> = Mutex::new(BTreeMap::new());

/// Returns which of a server's `engines` has a lane: by the low 32 bits, as in the kernel's
/// program.
pub(super) const fn engine_of(lane: LaneId, engines: usize) -> usize {
    lane.0 as u32 as usize % engines
}

/// The ID of a client's lane. Its place is free for another lane when this is dropped.
#[derive(Debug)]
pub(super) struct OwnId {
    id: LaneId,
    server: SocketAddr,
    place: u32,
}

impl OwnId {
    /// Draws an ID for a lane to a server; `None` if the system has no random numbers.
    pub(super) fn draw(server: SocketAddr) -> Option<Self> {
        let (mut random, mut beginning) = ([0; 8], [0; 4]);
        aws_lc_rs::rand::fill(&mut random).ok()?;
        aws_lc_rs::rand::fill(&mut beginning).ok()?;
        let mut open = lock(&OPEN);
        let places = open.entry(server).or_insert_with(|| Places {
            beginning: u32::from_be_bytes(beginning) % CYCLE,
            taken: BTreeSet::new(),
        });
        let place = places.take();
        let remainder = (places.beginning + place % CYCLE) % CYCLE;
        let id = with_remainder(u64::from_be_bytes(random), remainder);
        Some(Self { id, server, place })
    }

    /// Returns the ID.
    pub(super) const fn id(&self) -> LaneId {
        self.id
    }
}

impl Drop for OwnId {
    fn drop(&mut self) {
        let mut open = lock(&OPEN);
        if let Some(places) = open.get_mut(&self.server) {
            places.taken.remove(&self.place);
            if places.taken.is_empty() {
                open.remove(&self.server);
            }
        }
    }
}

/// The places of the lanes to one server.
#[derive(Debug)]
struct Places {
    /// The remainder of the ID at place 0, by [`CYCLE`].
    beginning: u32,
    taken: BTreeSet<u32>,
}

impl Places {
    /// Takes the first place that is free.
    fn take(&mut self) -> u32 {
        let all_before = self.taken.len() as u32;
        let gap = self.taken.iter().zip(0_u32..).find(|(taken, place)| **taken != *place);
        let place = gap.map_or(all_before, |(_, place)| place);
        self.taken.insert(place);
        place
    }
}

/// Makes an ID of random bits whose low 32 bits have this remainder by [`CYCLE`]. More than 54 of
/// its bits are random.
const fn with_remainder(random: u64, remainder: u32) -> LaneId {
    // the last cycle is not complete
    let cycle = random as u32 / CYCLE % (u32::MAX / CYCLE);
    let low = cycle * CYCLE + remainder;
    LaneId((random >> 32 << 32) | low as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most engines of a server.
    const ENGINES: usize = 8;

    fn server(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 4860))
    }

    fn draw(last: u8, count: usize) -> Vec<OwnId> {
        (0..count).map(|_| OwnId::draw(server(last)).expect("random numbers")).collect()
    }

    fn engines(ids: &[OwnId], count: usize) -> BTreeSet<usize> {
        ids.iter().map(|id| engine_of(id.id(), count)).collect()
    }

    #[test]
    fn lanes_that_are_open_to_one_server_have_different_engines() {
        for count in 1..=ENGINES {
            // those to another server change nothing
            let (others, ids) = (draw(1, 3), draw(2, count));
            for of in 1..=ENGINES {
                assert_eq!(engines(&ids, of).len(), count.min(of), "{count} lanes, {of} engines");
            }
            drop(others);
        }
    }

    #[test]
    fn a_lane_takes_the_place_of_one_that_has_ended() {
        let mut ids = draw(3, 4);
        for n in [2, 0, 3, 1] {
            ids.remove(n);
            ids.extend(draw(3, 1));
            assert_eq!(engines(&ids, ENGINES).len(), 4);
        }
    }

    #[test]
    fn all_but_the_remainder_is_random() {
        for random in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
            for remainder in [0, 1, CYCLE - 1] {
                let LaneId(id) = with_remainder(random, remainder);
                assert_eq!(id >> 32, random >> 32, "{random:x}");
                assert_eq!(id as u32 % CYCLE, remainder, "{random:x}");
            }
        }
        let LaneId(id) = with_remainder(0x89ab_cdef, 5);
        assert_eq!(id as u32 / CYCLE, 0x89ab_cdef / CYCLE);
    }
}
