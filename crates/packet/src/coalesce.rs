//! Joins received packets of one flow to a train, like the kernel's generic receive offload, for
//! one write to a TUN device.
//!
//! The checksum of a train is left unfinished, which tells the kernel that it was verified. The
//! checksums of each packet are therefore verified before it is joined. Other packets pass
//! unchanged.

use std::io::IoSlice;

use crate::Offload;

mod simple_packet;
mod train_head;

use simple_packet::{Classified, SimplePacket};

/// The most flows joined at a time.
const MAX_FLOWS: usize = 16;
/// The most packets of a train: Linux's limit for UDP.
const MAX_PACKETS: usize = 64;
/// The most bytes of a train that the length fields of both IP versions can hold.
const MAX_TRAIN_LEN: usize = 65_535;

/// Joins the packets of one batch. Each consists of a head, which is copied, and a payload, which
/// must stay in place until the batch is finished. The headers may continue into the payload. The
/// order within a flow is kept.
///
/// `sink` receives one train or packet at a time: its offload settings for the kernel, and its
/// bytes.
#[derive(Debug)]
#[must_use = "packets are held back until `finish`"]
pub struct Coalescer<'a, S> {
    sink: S,
    joins_udp: bool,
    flows: Vec<Flow<'a>>,
    /// The payloads of all flows, one list per flow.
    parts: Vec<Part<'a>>,
}

/// The joined packets of one flow.
#[derive(Debug)]
struct Flow<'a> {
    first: SimplePacket<'a>,
    /// Whether the first packet's checksums were verified.
    is_verified: bool,
    packets: usize,
    data_len: usize,
    /// PSH of the last packet.
    push: bool,
    first_part: usize,
    last_part: usize,
}

#[derive(Debug)]
struct Part<'a> {
    data: &'a [u8],
    next: Option<usize>,
}

impl<'a, S: FnMut(Offload, &[IoSlice<'_>])> Coalescer<'a, S> {
    /// Joins UDP datagrams besides TCP segments if `joins_udp`: only for a kernel that segments
    /// them again (a TUN device with USO, Linux 6.2).
    pub fn new(joins_udp: bool, sink: S) -> Self {
        Self { sink, joins_udp, flows: Vec::new(), parts: Vec::new() }
    }

    /// Adds the IP packet `head ++ payload`.
    pub fn push(&mut self, head: &[u8], payload: &'a [u8]) {
        match SimplePacket::read(head, payload, self.joins_udp) {
            Classified::Joinable(packet) => self.join(head, payload, packet),
            Classified::Single(flow) => {
                self.flush_flow(&flow);
                self.pass(head, payload);
            }
            Classified::Unknown => {
                self.flush();
                self.pass(head, payload);
            }
        }
    }

    /// Passes all remaining packets to `sink`.
    pub fn finish(mut self) {
        self.flush();
    }

    fn join(&mut self, head: &[u8], payload: &'a [u8], packet: SimplePacket<'a>) {
        let Some(index) = self.flows.iter().position(|flow| flow.first.is_same_flow(&packet))
        else {
            return self.begin(head, payload, packet, false);
        };
        let flow = &mut self.flows[index];
        if !flow.takes(&packet) {
            self.emit(index);
            return self.begin(head, payload, packet, false);
        }
        if !packet.is_checksum_right() {
            self.emit(index);
            return self.pass(head, payload);
        }
        if !flow.is_verified && !flow.first.is_checksum_right() {
            self.emit(index);
            return self.begin(head, payload, packet, true);
        }
        flow.is_verified = true;
        let part = self.parts.len();
        self.parts.push(Part { data: packet.data, next: None });
        self.parts[flow.last_part].next = Some(part);
        flow.add(&packet, part);
        if flow.is_complete() {
            self.emit(index);
        }
    }

    /// Begins a flow with `packet`, or passes it on if no packet can be joined to it.
    fn begin(
        &mut self,
        head: &[u8],
        payload: &'a [u8],
        packet: SimplePacket<'a>,
        is_verified: bool,
    ) {
        if packet.push {
            return self.pass(head, payload);
        }
        if self.flows.len() == MAX_FLOWS {
            self.emit(0);
        }
        let part = self.parts.len();
        self.parts.push(Part { data: packet.data, next: None });
        self.flows.push(Flow {
            is_verified,
            packets: 1,
            data_len: packet.data.len(),
            push: false,
            first_part: part,
            last_part: part,
            first: packet,
        });
    }

    fn flush_flow(&mut self, packet: &SimplePacket<'a>) {
        if let Some(index) = self.flows.iter().position(|flow| flow.first.is_same_flow(packet)) {
            self.emit(index);
        }
    }

    fn flush(&mut self) {
        while !self.flows.is_empty() {
            self.emit(0);
        }
    }

    fn pass(&mut self, head: &[u8], payload: &[u8]) {
        (self.sink)(Offload::default(), &[IoSlice::new(head), IoSlice::new(payload)]);
    }

    /// Passes flow `index` to `sink`.
    fn emit(&mut self, index: usize) {
        let mut flow = self.flows.remove(index);
        let offload = match flow.packets {
            1 => Offload::default(),
            _ => flow.first.make_train(flow.data_len, flow.push),
        };
        let mut slices = [IoSlice::new(&[]); MAX_PACKETS + 1];
        slices[0] = IoSlice::new(flow.first.header());
        let mut next = Some(flow.first_part);
        for slice in &mut slices[1..=flow.packets] {
            let Some(part) = next.map(|part| &self.parts[part]) else { break };
            *slice = IoSlice::new(part.data);
            next = part.next;
        }
        (self.sink)(offload, &slices[..=flow.packets]);
        if self.flows.is_empty() {
            self.parts.clear();
        }
    }
}

impl<'a> Flow<'a> {
    /// Checks whether `packet` of the same flow can be joined.
    fn takes(&self, packet: &SimplePacket<'a>) -> bool {
        let first = &self.first;
        packet.data.len() <= first.data.len()
            && first.header().len() + self.data_len + packet.data.len() <= MAX_TRAIN_LEN
            && first.headers_match(packet)
            && first.is_followed_by_id(packet, self.packets)
            && first.sequence().is_none_or(|sequence| {
                packet.sequence() == Some(sequence.wrapping_add(self.data_len as u32))
            })
    }

    fn add(&mut self, packet: &SimplePacket<'a>, part: usize) {
        self.packets += 1;
        self.data_len += packet.data.len();
        self.push = packet.push;
        self.last_part = part;
    }

    /// Whether the train is complete: after a PSH or a shorter segment, or when it is full.
    fn is_complete(&self) -> bool {
        self.push
            || self.packets == MAX_PACKETS
            || self.data_len < self.packets * self.first.data.len()
    }
}

#[cfg(test)]
mod tests;
