//! The keys of one direction: packets are sealed in place, under numbers that are never used
//! twice, and opened in place once.

use super::header::OVERHEAD;
use super::header::{HEADER_LEN, Header, Number};
use super::keys::{Context, Derived, Keys, PacketKey, Refused};
use super::limits::{EPOCH_PACKETS, FORGED_PER_KEY, MAX_PACKET, TAG_LEN};
use super::measurement::Chunk;
use super::window::Window;

/// Seals what one end sends. Each [`EPOCH_PACKETS`] packets use one key.
#[derive(Debug)]
pub struct Sealer<K: Keys> {
    /// The context of the current epoch.
    context: Context,
    key: Derived<K::Key>,
    next: u64,
    longest: usize,
}

/// The packet numbers or keys of the direction are used up: another lane is needed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the lane's packet numbers or keys are used up: open another lane")]
pub struct KeyExhausted;

impl<K: Keys> Sealer<K> {
    /// Seals packets from the first number of the epoch in `context`.
    ///
    /// # Errors
    /// The connection gives no key.
    pub fn new(keys: &mut K, context: Context) -> Result<Self, Refused> {
        let key = keys.derive(&context)?;
        let next = u64::from(context.epoch) * EPOCH_PACKETS;
        Ok(Self { next, context, key, longest: MAX_PACKET })
    }

    /// Also accepts packets that carry chunks of this size.
    #[must_use]
    pub fn with_chunk(mut self, chunk: Option<Chunk>) -> Self {
        self.longest = longest(chunk);
        self
    }

    /// Returns the number of the next packet.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Seals `packet`, whose payload stands between space for the header and space for the tag.
    ///
    /// # Errors
    /// Numbers or keys are used up; the packet must not be sent.
    #[inline]
    pub fn seal(&mut self, keys: &mut K, packet: &mut [u8]) -> Result<Number, KeyExhausted> {
        self.seal_with(keys, packet, &[])
    }

    /// Seals `packet`, where the last bytes of the payload are `rest`, which is elsewhere in
    /// memory: `packet` has space for them.
    ///
    /// # Errors
    /// As those of [`Self::seal`].
    #[inline]
    pub fn seal_with(
        &mut self,
        keys: &mut K,
        packet: &mut [u8],
        rest: &[u8],
    ) -> Result<Number, KeyExhausted> {
        if !(OVERHEAD + rest.len()..=self.longest).contains(&packet.len()) {
            return Err(KeyExhausted);
        }
        let number = Number::new(self.next).ok_or(KeyExhausted)?;
        if number.epoch() != self.context.epoch {
            let context = Context { epoch: number.epoch(), ..self.context };
            self.key = keys.derive(&context).map_err(|Refused| KeyExhausted)?;
            self.context = context;
        }
        // incremented before it is used: whatever happens, it is not used again
        self.next += 1;
        let header = Header { lane: self.context.lane, number }.bytes();
        let (packet_bytes, text) = packet.split_at_mut(HEADER_LEN);
        packet_bytes.copy_from_slice(&header);
        let (key, nonce) = (&self.key.key, nonce(&self.key.iv, number));
        key.seal_with(nonce, &header, text, rest).map_err(|_| KeyExhausted)?;
        Ok(number)
    }

    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, next: u64) {
        self.next = next;
    }
}

/// Opens what one end receives.
#[derive(Debug)]
pub struct Opener<K: Keys> {
    /// The context, without its epoch.
    context: Context,
    /// The current epoch and its neighbours: packets may be reordered across epochs.
    epochs: Vec<Epoch<K::Key>>,
    window: Window,
    forged_limit: u64,
    longest: usize,
}

#[derive(Debug)]
struct Epoch<K> {
    epoch: u32,
    key: Derived<K>,
    forged: u64,
}

/// Why a packet is dropped.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Dropped {
    /// It is not a packet of a lane in this version.
    #[error("not a packet of a lane")]
    Malformed,
    /// It belongs to another lane.
    #[error("a packet of another lane")]
    OtherLane,
    /// It arrived before, or is too old to tell.
    #[error("a packet that came before, or is too old to tell")]
    Replayed,
    /// Its epoch is out of range: no keys are derived on a stranger's request.
    #[error("a packet of an epoch that is not due")]
    Epoch,
    /// Its tag is wrong.
    #[error("a forged packet")]
    Forged,
    /// Too many forged packets were tried with its key: the lane must end.
    #[error("too many forged packets: the lane must end")]
    KeyExhausted,
}

impl<K: Keys> Opener<K> {
    /// Opens packets of `context`, whose epoch is ignored.
    pub fn new(context: Context) -> Self {
        let (window, epochs) = (Window::default(), Vec::with_capacity(2));
        Self { context, epochs, window, forged_limit: FORGED_PER_KEY, longest: MAX_PACKET }
    }

    /// Also accepts packets that carry chunks of this size.
    #[must_use]
    pub fn with_chunk(mut self, chunk: Option<Chunk>) -> Self {
        self.longest = longest(chunk);
        self
    }

    /// Accepts fewer forged packets than [`FORGED_PER_KEY`].
    #[must_use]
    pub fn with_forged_limit(mut self, limit: u64) -> Self {
        self.forged_limit = limit.min(FORGED_PER_KEY);
        self
    }

    /// Returns which packets arrived.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Opens `packet` in place; returns its number and payload.
    ///
    /// # Errors
    /// It is not a packet, not new, or not authentic. Nothing changes then but the count of forged
    /// packets.
    #[inline]
    pub fn open<'p>(
        &mut self,
        keys: &mut K,
        packet: &'p mut [u8],
    ) -> Result<(Number, &'p mut [u8]), Dropped> {
        let header = Header::parse(packet).ok_or(Dropped::Malformed)?;
        if !(OVERHEAD..=self.longest).contains(&packet.len()) {
            return Err(Dropped::Malformed);
        }
        if header.lane != self.context.lane {
            return Err(Dropped::OtherLane);
        }
        let number = header.number;
        if !self.window.is_new(number) {
            return Err(Dropped::Replayed);
        }
        let limit = self.forged_limit;
        let epoch = self.epoch(keys, number.epoch())?;
        if epoch.forged >= limit {
            return Err(Dropped::KeyExhausted);
        }
        let (clear, text) = packet.split_at_mut(HEADER_LEN);
        let (text, tag) = text.split_last_chunk_mut::<TAG_LEN>().ok_or(Dropped::Malformed)?;
        if epoch.key.key.open(nonce(&epoch.key.iv, number), clear, text, tag).is_err() {
            epoch.forged += 1;
            return Err(Dropped::Forged);
        }
        self.window.accept(number);
        Ok((number, text))
    }

    /// Returns the key of `epoch`: the highest seen, the one before, or the next.
    fn epoch(&mut self, keys: &mut K, epoch: u32) -> Result<&mut Epoch<K::Key>, Dropped> {
        if let Some(known) = self.epochs.iter().position(|known| known.epoch == epoch) {
            return Ok(&mut self.epochs[known]);
        }
        let current = self.window.highest().map_or(0, Number::epoch);
        if epoch + 1 < current || epoch > current + 1 {
            return Err(Dropped::Epoch);
        }
        let key =
            keys.derive(&Context { epoch, ..self.context }).map_err(|Refused| Dropped::Epoch)?;
        // drops keys that are never needed again; the current one always is
        self.epochs.retain(|known| known.epoch + 1 >= current);
        self.epochs.push(Epoch { epoch, key, forged: 0 });
        let last = self.epochs.len() - 1;
        Ok(&mut self.epochs[last])
    }
}

/// Returns the longest packet of a lane, as UDP payload.
fn longest(chunk: Option<Chunk>) -> usize {
    chunk.map_or(MAX_PACKET, |chunk| chunk.packet().max(MAX_PACKET))
}

/// Computes the nonce (RFC 9001, section 5.3): the IV, XOR the number at its right end.
#[inline]
fn nonce(iv: &[u8; 12], number: Number) -> [u8; 12] {
    let mut nonce = *iv;
    for (byte, number) in nonce[4..].iter_mut().zip(number.get().to_be_bytes()) {
        *byte ^= number;
    }
    nonce
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::super::header::LaneId;
    use super::super::keys::Direction;
    use super::super::limits::EPOCHS;
    use super::super::testing::{Aes, Exporter, context};
    use super::*;

    struct Ends {
        keys: Exporter<Aes>,
        sealer: Sealer<Exporter<Aes>>,
        opener: Opener<Exporter<Aes>>,
    }

    impl Ends {
        fn new() -> Self {
            let mut keys = Exporter::default();
            let sealer = Sealer::new(&mut keys, context()).expect("a key");
            Self { keys, sealer, opener: Opener::new(context()) }
        }

        fn seal(&mut self, text: &[u8]) -> Vec<u8> {
            let mut packet = vec![0; OVERHEAD + text.len()];
            packet[HEADER_LEN..HEADER_LEN + text.len()].copy_from_slice(text);
            self.sealer.seal(&mut self.keys, &mut packet).expect("a number");
            packet
        }

        fn open(&mut self, mut packet: Vec<u8>) -> Result<Vec<u8>, Dropped> {
            self.opener.open(&mut self.keys, &mut packet).map(|(_, text)| text.to_vec())
        }
    }

    #[test]
    fn a_packet_is_opened_once() {
        let mut ends = Ends::new();
        let packet = ends.seal(b"secret");
        assert!(!packet.windows(6).any(|bytes| bytes == b"secret"));
        assert_eq!(ends.open(packet.clone()).as_deref(), Ok(&b"secret"[..]));
        assert_eq!(ends.open(packet), Err(Dropped::Replayed));
        assert_eq!(ends.open(vec![9; 10]), Err(Dropped::Malformed));
    }

    #[test]
    fn keys_change_with_the_epoch_and_packets_may_cross_its_border() {
        let mut ends = Ends::new();
        let first = ends.seal(b"epoch 0");
        ends.sealer.skip_to(EPOCH_PACKETS - 1);
        let [last, next] = [ends.seal(b"the last of epoch 0"), ends.seal(b"epoch 1")];
        assert_eq!(ends.sealer.next(), EPOCH_PACKETS + 1);
        assert!(ends.open(first).is_ok());
        assert_eq!(ends.open(next).as_deref(), Ok(&b"epoch 1"[..]));
        assert_eq!(ends.open(last).as_deref(), Ok(&b"the last of epoch 0"[..]));
        assert_eq!(ends.keys.derived.iter().filter(|context| context.epoch == 1).count(), 2);
        // every key was derived for a context of its own, once at each end
        let contexts: HashSet<_> = ends.keys.derived.iter().map(Context::bytes).collect();
        assert_eq!((contexts.len(), ends.keys.derived.len()), (2, 4));
        // through many epochs a few keys are kept
        for epoch in 2..10 {
            ends.sealer.skip_to(epoch * EPOCH_PACKETS);
            let packet = ends.seal(b"on");
            assert!(ends.open(packet).is_ok());
            assert!(ends.opener.epochs.len() <= 3);
        }
    }

    #[test]
    fn an_epoch_that_is_not_due_gets_no_key() {
        let mut ends = Ends::new();
        ends.sealer.skip_to(2 * EPOCH_PACKETS);
        let packet = ends.seal(b"too far");
        assert_eq!(ends.open(packet), Err(Dropped::Epoch));
        // somebody asks for the next one, again and again: it is derived once
        let before = ends.keys.derived.len();
        ends.sealer.skip_to(EPOCH_PACKETS);
        let mut packet = ends.seal(b"forged");
        packet[20] ^= 1;
        for _ in 0..10 {
            assert_eq!(ends.open(packet.clone()), Err(Dropped::Forged));
        }
        assert_eq!(ends.keys.derived.len(), before + 2, "one for each end");
    }

    #[test]
    fn the_last_number_is_used_once() {
        let mut ends = Ends::new();
        ends.sealer.skip_to(EPOCHS * EPOCH_PACKETS - 1);
        ends.seal(b"the last of all");
        let mut packet = vec![0; 100];
        assert_eq!(ends.sealer.seal(&mut ends.keys, &mut packet), Err(KeyExhausted));
        assert_eq!(packet, vec![0; 100], "nothing was sealed");
    }

    #[test]
    fn forged_packets_are_counted_for_each_key() {
        let mut ends = Ends::new();
        ends.opener = Opener::new(context()).with_forged_limit(3);
        let packet = ends.seal(b"secret");
        for at in 0..3 {
            let mut forged = packet.clone();
            forged[16 + at] ^= 1;
            assert_eq!(ends.open(forged), Err(Dropped::Forged));
        }
        assert_eq!(ends.open(packet), Err(Dropped::KeyExhausted));
        ends.sealer.skip_to(EPOCH_PACKETS);
        let next = ends.seal(b"with the next key");
        assert!(ends.open(next).is_ok());
    }

    #[test]
    fn packets_are_of_one_lane_one_direction_and_no_longer_than_the_limit() {
        let mut ends = Ends::new();
        let packet = ends.seal(b"secret");
        let direction = context().direction.reverse();
        assert_eq!(direction, Direction::ToClient);
        ends.opener = Opener::new(Context { direction, ..context() });
        assert_eq!(ends.open(packet.clone()), Err(Dropped::Forged), "sent back");
        ends.opener = Opener::new(Context { lane: LaneId(7), ..context() });
        assert_eq!(ends.open(packet), Err(Dropped::OtherLane));
        let mut long = vec![0; MAX_PACKET + 1];
        assert_eq!(ends.sealer.seal(&mut ends.keys, &mut long), Err(KeyExhausted));
        let chunk = Chunk::new(Chunk::MAX);
        let mut ends = Ends::new();
        ends.sealer = ends.sealer.with_chunk(chunk);
        assert!(ends.sealer.seal(&mut ends.keys, &mut long).is_ok());
        assert_eq!(ends.open(long.clone()), Err(Dropped::Malformed), "nobody agreed on it");
        ends.opener = ends.opener.with_chunk(chunk);
        assert!(ends.open(long).is_ok());
    }

    proptest! {
        #[test]
        fn every_bit_is_authenticated(text in proptest::collection::vec(any::<u8>(), 0..100), bit: usize) {
            let mut ends = Ends::new();
            let mut packet = ends.seal(&text);
            let bit = bit % (packet.len() * 8);
            packet[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(ends.open(packet).is_err());
        }

        #[test]
        fn any_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut ends = Ends::new();
            let mut packet = Header { lane: context().lane, number: Number::default() }.bytes().to_vec();
            packet.extend(&bytes);
            prop_assert!(ends.open(packet).is_err());
            prop_assert!(ends.open(bytes).is_err());
        }
    }
}
