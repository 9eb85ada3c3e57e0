//! The reasons to drop a packet, and their counters.

use std::sync::atomic::{AtomicU64, Ordering};

/// Defines the enumeration, its names and its descriptions in one list.
macro_rules! reasons {
    ($($(#[$source:meta])* $variant:ident $name:literal $sentence:literal,)*) => {
        /// Why a packet was dropped: a name for programs and a description for people.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Reason {
            $($(#[$source])* #[doc = $sentence] $variant,)*
        }

        impl Reason {
            /// All reasons.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the name, in words joined by hyphens.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Returns the description, without a full stop.
            pub fn description(self) -> &'static str {
                match self { $(Self::$variant => $sentence,)* }
            }
        }
    };
}

reasons! {
    Malformed "malformed" "a header is truncated or contradicts itself",
    NoPolicy "no-policy" "no policy matches the packet",
    Discarded "discarded" "a policy discards the packet",
    NoAssociation "no-association" "the policy has no association for this class of traffic or address family",
    UnknownSpi "unknown-spi" "no SA has this SPI, protocol and destination",
    WrongEncapsulation "wrong-encapsulation" "it arrived in UDP but the association has no `udp`, or the reverse",
    Expired "expired" "the association's lifetime is over",
    SequenceExhausted "sequence-exhausted" "the association has no more sequence numbers",
    LedgerBehind "ledger-behind" "the ledger has not yet reserved further sequence numbers",
    NotSealed "not-sealed" "the cryptographic library refused to encrypt, or the system returned no random bytes",
    Replay "replay" "a packet with this sequence number was accepted before",
    Stale "stale" "its sequence number is left of the anti-replay window",
    Truncated "truncated" "it is shorter than its headers and check value",
    WrongLength "wrong-length" "its length is no multiple of the suite's block",
    Forged "forged" "the integrity check failed: the packet was altered, or the keys differ",
    /// Q-ESP covers addresses, as AH does.
    AddressChanged "address-changed" "an outer address differs from the association's: a NAT on the path changed it",
    BadPadding "bad-padding" "the padding is not 1, 2, 3, … (RFC 4303), although the integrity check passed",
    BadInner "bad-inner" "the protected data is not a packet of the stated address family",
    PortsMismatch "ports-mismatch" "the clear ports or protocol of Q-ESP differ from the packet's",
    ReservedNotZero "reserved-not-zero" "a reserved field is not zero",
    PolicyMismatch "policy-mismatch" "no policy allows this packet from this association",
    Dummy "dummy" "a dummy packet, which hides idle times",
    EcnDropped "ecn-dropped" "a router marked congestion, and the inner packet does not support ECN",
    FragmentInTransport "fragment-in-transport" "transport mode protects whole datagrams, and this is a fragment",
    SourceRoute "source-route" "a source route is not at its end, and AH cannot predict the final address",
    HeaderTooLong "header-too-long" "the headers before the protected part exceed the supported length",
    TooLong "too-long" "the protected packet would exceed the longest packet",
    TooBig "too-big" "it exceeds the path MTU and must not be fragmented",
    OwnTraffic "own-traffic" "a message of the host itself on the tunnel interface (router solicitation, multicast)",
    NonEsp "non-esp" "a message of IKE that nobody takes: the file has no table `ike`, or its inbox is full",
    Keepalive "keepalive" "a NAT keepalive",
    SendFailed "send-failed" "the kernel refused to send it",
    DeliverFailed "deliver-failed" "the tunnel interface refused it",
    NoRoute "no-route" "the kernel has no route to the outer destination",
    ReceiveTruncated "receive-truncated" "it was longer than the receive buffer",
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for Reason {}

/// Counts packets by reason.
#[derive(Debug)]
pub struct Counters([AtomicU64; Reason::ALL.len()]);

impl Default for Counters {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Counters {
    /// Adds `times` packets.
    pub fn add(&self, reason: Reason, times: u64) {
        self.0[reason as usize].fetch_add(times, Ordering::Relaxed);
    }

    /// Returns the packets counted so far.
    pub fn get(&self, reason: Reason) -> u64 {
        self.0[reason as usize].load(Ordering::Relaxed)
    }

    /// Returns the reasons that occurred, with their counts.
    pub fn nonzero(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        Reason::ALL.iter().map(|&reason| (reason, self.get(reason))).filter(|(_, times)| *times > 0)
    }
}
