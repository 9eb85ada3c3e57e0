//! The words in which collisions are told: who starts, whose message comes, is late or is lost, and
//! what both ends must have afterwards.

use headroom_ike::crypto::Spis;
use headroom_ike::{ChildId, Command, PostQuantum, Transmit};

use crate::world::{A, B, World, configs, header};

/// A message that the network keeps, with all its fragments.
pub(crate) struct Held(Vec<Transmit>);

/// A nonce that is lower than others, and one of the others.
const LOW: u8 = 1;
const HIGH: u8 = 0x70;

/// What both hosts do at the same time, and whose exchange loses by its nonces.
pub(crate) struct Crossing {
    pub(crate) world: World,
    /// Whose exchange does not have the lowest nonce.
    pub(crate) winner: usize,
    /// Which nonce is the lowest: of A's request, of B's, of A's answer or of B's.
    lowest: usize,
}

/// Runs a script with each of the four nonces as the lowest, with and without packets between all
/// messages. Both hosts have done what `start` does, and neither request has arrived.
pub(crate) fn crossing(
    make: impl Fn() -> World,
    start: impl Fn(&mut World, usize),
    script: impl Fn(Crossing),
) {
    for (traffic, lowest) in (0..8).map(|at| (at >= 4, at % 4)) {
        let mut world = make();
        world.traffic = traffic;
        // A's exchange has the nonces 0 and 3
        let winner = if matches!(lowest, 0 | 3) { B } else { A };
        let mut crossing = Crossing { world, winner, lowest };
        crossing.expect_requests();
        start(&mut crossing.world, A);
        start(&mut crossing.world, B);
        crossing.expect_answers();
        script(crossing);
    }
}

/// Runs a script with either host as the one that starts, with and without packets.
pub(crate) fn either(make: impl Fn() -> World, script: impl Fn(World, usize)) {
    for (traffic, host) in [(false, A), (false, B), (true, A), (true, B)] {
        let mut world = make();
        world.traffic = traffic;
        world.lead(host, 0, 0xc1);
        world.lead(1 - host, 0, 0xc2);
        script(world, host);
    }
}

/// Two hosts with an IKE SA and a CHILD SA, whose rekeying has no additional key exchange.
pub(crate) fn plain() -> World {
    World::established(PostQuantum::Off, 40)
}

/// Two hosts that rekey with ML-KEM.
pub(crate) fn with_ml_kem() -> World {
    World::established(PostQuantum::Required, 41)
}

/// Two hosts of which A offers ML-KEM first and B last.
pub(crate) fn mixed() -> World {
    let [config_a, mut config_b] = configs(PostQuantum::Preferred);
    let connection = std::sync::Arc::get_mut(&mut config_b.connections[0]).expect("ours alone");
    connection.ike.reverse();
    let child = std::sync::Arc::get_mut(&mut connection.children[0]).expect("ours alone");
    child.proposals.reverse();
    World::established_with([config_a, config_b], 42)
}

impl World {
    /// Decides what the next nonces and SPIs of a host begin with; 0 is by chance.
    pub(crate) fn lead(&mut self, host: usize, nonce: u8, spi: u8) {
        self.hosts[host].leads.nonce(nonce);
        self.hosts[host].leads.spi(spi);
    }

    /// Keeps the oldest message of a host back.
    pub(crate) fn hold(&mut self, from: usize) -> Held {
        let address = self.hosts[from].address.ip();
        let first = self.in_flight.iter().find(|one| one.from.ip() == address);
        let header = header(first.unwrap_or_else(|| panic!("host {from} has sent nothing")));
        let same = |one: &mut Transmit| one.from.ip() == address && self::header(one) == header;
        Held(self.in_flight.extract_if(.., same).collect())
    }

    /// Delivers what was kept back.
    pub(crate) fn give(&mut self, held: &Held) {
        held.0.iter().for_each(|datagram| self.hand_over(datagram));
        if self.traffic {
            self.send_packet(A);
            self.send_packet(B);
            self.arrive();
        }
    }

    /// Delivers the oldest message of a host.
    pub(crate) fn pass(&mut self, from: usize) {
        let held = self.hold(from);
        self.give(&held);
    }

    /// Loses the oldest message of a host.
    pub(crate) fn lose(&mut self, from: usize) {
        drop(self.hold(from));
    }

    /// Checks whether a host has messages under way.
    pub(crate) fn is_silent(&self, host: usize) -> bool {
        let address = self.hosts[host].address.ip();
        !self.in_flight.iter().any(|one| one.from.ip() == address)
    }

    /// Returns the CHILD SA that a host made last.
    pub(crate) fn newest(&self, host: usize) -> ChildId {
        *self.hosts[host].children.keys().next_back().expect("a CHILD SA")
    }

    /// Returns the one before.
    pub(crate) fn newest_but_one(&self, host: usize) -> ChildId {
        *self.hosts[host].children.keys().nth_back(1).expect("two CHILD SAs")
    }

    /// Returns the first one that a host has.
    pub(crate) fn oldest(&self, host: usize) -> ChildId {
        *self.hosts[host].children.keys().next().expect("a CHILD SA")
    }

    /// Lets all end, and checks that both ends have one CHILD SA: that of the exchange which `host`
    /// started when the SPIs of requests began with `request` and those of answers with `answer`.
    pub(crate) fn ends_with_child_of(&mut self, host: usize, request: u8, answer: u8) {
        self.settle();
        self.check_agreement(1);
        let inbound = |host: usize| {
            let child = self.hosts[host].children.values().next().expect("one CHILD SA");
            (child.inbound.spi >> 24) as u8
        };
        assert_eq!([inbound(host), inbound(1 - host)], [request, answer], "whose exchange");
    }

    /// The same after [`either`].
    pub(crate) fn ends_with_rekeyed_child(&mut self, host: usize) {
        self.ends_with_child_of(host, 0xc1, 0xc2);
    }

    /// Lets all end, and checks that no CHILD SA is left and the IKE SA stands.
    pub(crate) fn ends_without_child(&mut self) {
        self.settle();
        self.check_agreement(0);
    }

    /// Lets all end, and checks that both use the IKE SA of the exchange which `host` started.
    pub(crate) fn ends_with_ike_of(&mut self, host: usize, request: u8, answer: u8) {
        self.settle();
        self.check_agreement(1);
        for asked in [A, B] {
            let session = self.hosts[asked].session.expect("a session");
            self.command(asked, &Command::CheckLiveness(session));
            let header = header(&self.in_flight[0]).expect("a message");
            let leads = [header.spi_initiator, header.spi_responder].map(|spi| (spi >> 56) as u8);
            assert_eq!(leads, [request, answer], "whose exchange");
            assert_eq!(header.from_initiator, asked == host);
            let before = self.sent;
            self.settle();
            assert_eq!(self.sent - before, 1, "answered at once");
        }
        let [a, b] = self.hosts.each_ref().map(|host| {
            let is_current = |spis: &Spis| (spis.initiator >> 56) as u8 == request;
            let (_, keys) = host.keys.iter().find(|(spis, _)| is_current(spis)).expect("keys");
            keys.sk_d.as_bytes()
        });
        assert_eq!(a, b, "both have the same keys");
    }
}

impl Crossing {
    /// The next nonces and SPIs are those of both requests.
    pub(crate) fn expect_requests(&mut self) {
        let [a, b, ..] = self.nonces();
        self.world.lead(A, a, 0xa1);
        self.world.lead(B, b, 0xb1);
    }

    /// The next nonces and SPIs are those of both answers.
    pub(crate) fn expect_answers(&mut self) {
        let [_, _, a, b] = self.nonces();
        self.world.lead(A, a, 0xa2);
        self.world.lead(B, b, 0xb2);
    }

    fn nonces(&self) -> [u8; 4] {
        std::array::from_fn(|at| if at == self.lowest { LOW } else { HIGH })
    }

    /// Lets all end, and checks that the CHILD SA of the winner's exchange is left.
    pub(crate) fn ends_with_winners_child(&mut self) {
        let winner = self.winner;
        self.ends_with_child_of(winner);
    }

    pub(crate) fn ends_with_child_of(&mut self, host: usize) {
        let [request, answer] = leads(host);
        self.world.ends_with_child_of(host, request, answer);
    }

    /// Lets all end, and checks that the IKE SA of the winner's exchange is left.
    pub(crate) fn ends_with_winners_ike(&mut self) {
        let winner = self.winner;
        self.ends_with_ike_of(winner);
    }

    pub(crate) fn ends_with_ike_of(&mut self, host: usize) {
        let [request, answer] = leads(host);
        self.world.ends_with_ike_of(host, request, answer);
    }
}

/// What the SPIs of a host's exchange begin with: its own and the other's.
fn leads(host: usize) -> [u8; 2] {
    if host == A { [0xa1, 0xb2] } else { [0xb1, 0xa2] }
}
