//! Why a packet was not passed on, and how often.

use std::sync::atomic::{AtomicU64, Ordering};

/// Makes the enumeration, its names and its sentences of one list.
macro_rules! reasons {
    ($($(#[$source:meta])* $variant:ident $name:literal $sentence:literal,)*) => {
        /// Why a packet was not passed on. Each has a name for programs and a
        /// sentence for people.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Reason {
            $($(#[$source])* #[doc = $sentence] $variant,)*
        }

        impl Reason {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name, in words joined by hyphens.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What happened, as a sentence without its full stop.
            pub fn description(self) -> &'static str {
                match self { $(Self::$variant => $sentence,)* }
            }
        }
    };
}

reasons! {
    Malformed "malformed" "a header is cut short or contradicts itself",
    NoPolicy "no-policy" "no policy matches the packet",
    Discarded "discarded" "a policy says discard",
    NoAssociation "no-association" "the policy has no association for this class of traffic or address family",
    UnknownSpi "unknown-spi" "no association has this SPI, protocol and destination",
    WrongEncapsulation "wrong-encapsulation" "it came in UDP where the association has none, or the other way round",
    Expired "expired" "the association's lifetime is over",
    SequenceExhausted "sequence-exhausted" "the association has no more sequence numbers",
    LedgerBehind "ledger-behind" "the ledger has not yet reserved further sequence numbers",
    NotSealed "not-sealed" "the suite refused to encrypt, or the system has no random numbers",
    Replay "replay" "a packet of this number was accepted before",
    Stale "stale" "its number is left of the anti-replay window",
    Truncated "truncated" "it is shorter than its headers and check value",
    WrongLength "wrong-length" "its length does not fit the suite's blocks",
    Forged "forged" "the check value is wrong: altered, or another key",
    /// Q-ESP covers addresses as AH does: one that a NAT changed.
    AddressChanged "address-changed" "an outer address is not the association's: a NAT on the way changed it",
    BadPadding "bad-padding" "the padding is not what the standard says, though the check value is right",
    BadInner "bad-inner" "what was protected is not a packet of the family that it says",
    PortsMismatch "ports-mismatch" "the clear ports or protocol of Q-ESP are not those of the packet",
    ReservedNotZero "reserved-not-zero" "a reserved field is not zero",
    PolicyMismatch "policy-mismatch" "no policy allows this packet from this association",
    Dummy "dummy" "a dummy packet, sent to hide when there is nothing to send",
    EcnDropped "ecn-dropped" "congestion was marked on the way, and the inner packet cannot carry it",
    FragmentInTransport "fragment-in-transport" "transport mode protects whole datagrams, and this is a fragment",
    SourceRoute "source-route" "a source route is not at its end, and AH cannot foresee the address",
    HeaderTooLong "header-too-long" "the headers before the protected part are longer than is supported",
    TooLong "too-long" "protected it would be longer than a packet can be",
    TooBig "too-big" "it is bigger than the path allows and must not be fragmented",
    OwnTraffic "own-traffic" "the host's own chatter on the tunnel interface (router solicitation, multicast)",
    NonEsp "non-esp" "it has the non-ESP marker: IKE, which is not for us",
    Keepalive "keepalive" "a keepalive of a NAT",
    SendFailed "send-failed" "the kernel did not take it",
    DeliverFailed "deliver-failed" "the tunnel interface did not take it",
    NoRoute "no-route" "the kernel has no way to the outer destination",
    ReceiveTruncated "receive-truncated" "it was longer than the buffer it was received into",
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for Reason {}

/// How often each reason occurred.
#[derive(Debug)]
pub struct Counters([AtomicU64; Reason::ALL.len()]);

impl Default for Counters {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Counters {
    /// Notes `times` packets.
    pub fn add(&self, reason: Reason, times: u64) {
        self.0[reason as usize].fetch_add(times, Ordering::Relaxed);
    }

    /// Packets so far.
    pub fn get(&self, reason: Reason) -> u64 {
        self.0[reason as usize].load(Ordering::Relaxed)
    }

    /// Those that occurred.
    pub fn nonzero(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        Reason::ALL.iter().map(|&reason| (reason, self.get(reason))).filter(|(_, times)| *times > 0)
    }
}
