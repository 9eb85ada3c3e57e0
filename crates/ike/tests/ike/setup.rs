//! Setting up IKE SAs.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use headroom_ike::wire::{AddressRange, Message, NotifyType, Payload, TrafficSelector};
use headroom_ike::{
    ChildSa, Command, Config, Endpoint, MessageReport, Mode, PacketFormat, Pool, PostQuantum, Ppk,
    PpkExchange, QEsp, Reason, UsedPpk, VirtualAddresses,
};

use headroom_suite::Key;

use crate::world::{A, B, Host, World, configs};

#[test]
fn sets_up_with_ml_kem_by_default() {
    let world = World::established(PostQuantum::default(), 1);
    world.check_agreement(1);
    assert_eq!(world.hosts[A].post_quantum, Some(true));
    assert_eq!(world.hosts[B].post_quantum, Some(true));
    assert!(
        world
            .hosts
            .iter()
            .all(|host| host.children.values().all(|child| child.format == PacketFormat::Esp))
    );
    // IKE_SA_INIT, IKE_INTERMEDIATE in two fragments and one, IKE_AUTH
    assert_eq!(world.sent, 2 + 3 + 2);
}

#[test]
fn falls_back_only_where_policy_says_so() {
    use PostQuantum::{Off, Preferred, Required};
    for (a, b, post_quantum) in [(Preferred, Off, Some(false)), (Required, Off, None)] {
        let [config_a, _] = configs(a);
        let [_, config_b] = configs(b);
        let mut world = World::new([config_a, config_b], 2);
        world.connect(A);
        world.settle();
        assert_eq!(world.hosts[A].post_quantum, post_quantum, "{a:?} {b:?}");
    }
}

#[test]
fn the_modp_group_makes_a_tunnel_where_both_have_it_and_is_refused_elsewhere() {
    use headroom_ike::crypto::Method;
    let with = |config: &mut Config, methods: &[Method]| {
        let connection = Arc::get_mut(&mut config.connections[0]).expect("not shared yet");
        connection.ike.iter_mut().for_each(|one| one.key_exchanges = methods.to_vec());
        let child = Arc::get_mut(&mut connection.children[0]).expect("not shared yet");
        child.proposals.iter_mut().for_each(|one| one.key_exchanges = methods.to_vec());
    };
    for policy in [PostQuantum::Off, PostQuantum::Required] {
        let [mut a, mut b] = configs(policy);
        with(&mut a, &[Method::Modp2048]);
        with(&mut b, &[Method::Curve25519, Method::Modp2048]);
        let mut world = World::established_with([a, b], 38);
        world.rekey_child(B);
        world.settle();
        world.rekey_ike(A);
        world.settle();
        world.check_agreement(1);
    }
    let [mut a, b] = configs(PostQuantum::Off);
    with(&mut a, &[Method::Modp2048]);
    let mut world = World::new([a, b], 39);
    world.connect(A);
    world.settle();
    assert_eq!(world.hosts[A].closed, [Reason::Unauthenticated(NotifyType::NoProposalChosen)]);
    assert_eq!(world.hosts[B].endpoint.half_open(), 0);
}

#[test]
fn a_lost_datagram_of_the_set_up_is_sent_again() {
    for lost in 0..7 {
        let mut world = World::new(configs(PostQuantum::Required), 20);
        world.connect(A);
        while !world.hosts[A].ready {
            match world.in_flight.is_empty() {
                true => drop(world.advance()),
                false if world.sent > lost => {
                    // once, the newest; then nothing is lost
                    world.in_flight.pop();
                    break;
                }
                false => world.deliver(0, false),
            }
        }
        world.settle();
        world.check_agreement(1);
    }
}

#[test]
fn a_request_that_overtakes_the_answer_to_ike_auth_is_answered_when_it_comes_again() {
    let mut world = World::new(configs(PostQuantum::Off), 26);
    world.connect(A);
    for _ in 0..3 {
        world.deliver(0, false);
    }
    // a responder sends on a first CHILD SA before its initiator has it
    world.closing = true;
    world.rekey_ike(B);
    assert_eq!(world.in_flight.len(), 2);
    world.deliver(1, false);
    world.settle();
    world.check_agreement(1);
    assert_eq!(world.hosts.each_ref().map(|host| host.rekeyed), [1; 2]);
}

#[test]
fn both_peers_may_start_at_once() {
    let mut world = World::new(configs(PostQuantum::Required), 21);
    // a responder sends on a first CHILD SA before its initiator has it
    world.closing = true;
    world.connect(A);
    world.connect(B);
    world.settle();
    let stand = |host: &Host| host.endpoint.sessions() == 2 && host.closed.is_empty();
    assert!(world.hosts.iter().all(stand), "neither INITIAL_CONTACT removed the other's");
    assert!(world.hosts.iter().all(|host| !host.sends_on.is_empty()));
}

#[test]
fn a_peer_that_starts_again_replaces_its_session() {
    let mut world = World::established(PostQuantum::Off, 22);
    world.now += Duration::from_secs(1);
    let now = world.now;
    let [config, _] = configs(PostQuantum::Off);
    let random = Box::new(headroom_ike::crypto::SystemRandom);
    world.hosts[A].restart(Endpoint::new(config, random, now));
    world.closing = true;
    world.connect(A);
    world.settle();
    assert_eq!(world.hosts[B].closed, [Reason::Restarted]);
    assert_eq!(world.hosts[B].endpoint.sessions(), 1);
    assert_eq!(world.hosts[B].children.len(), 1, "the old CHILD SA is gone");
}

#[test]
fn selectors_are_narrowed_and_disjoint_ones_leave_the_ike_sa_alone() {
    let all = vec![TrafficSelector::network(IpAddr::from([0, 0, 0, 0]), 0)];
    let elsewhere = vec![TrafficSelector::network(IpAddr::from([172, 16, 0, 0]), 12)];
    for (selectors, children) in [(all, 1), (elsewhere, 0)] {
        let [mut config_a, config_b] = configs(PostQuantum::Off);
        let connection = Arc::get_mut(&mut config_a.connections[0]).expect("not shared yet");
        let child = Arc::get_mut(&mut connection.children[0]).expect("not shared yet");
        (child.local, child.remote) = (selectors.clone(), selectors);
        let mut world = World::new([config_a, config_b], 23);
        world.connect(A);
        world.settle();
        let [a, b] = &world.hosts;
        assert!(a.closed.is_empty() && b.closed.is_empty(), "the IKE SA stands");
        assert_eq!((a.children.len(), b.children.len()), (children, children));
        let refused = Reason::Refused(NotifyType::TsUnacceptable);
        assert_eq!(a.failed_children.contains(&refused), children == 0);
        for child in a.children.values() {
            let expected = [(1, &child.local), (2, &child.remote)];
            for (last, selectors) in expected {
                let network = TrafficSelector::network(IpAddr::from([10, 0, last, 0]), 24);
                assert_eq!(*selectors, [network]);
            }
        }
    }
}

#[test]
fn without_children_the_ike_sa_stands_alone() {
    let [mut config_a, config_b] = configs(PostQuantum::Required);
    let connection = Arc::get_mut(&mut config_a.connections[0]).expect("not shared yet");
    connection.children.clear();
    let mut world = World::new([config_a, config_b], 24);
    world.connect(A);
    world.settle();
    assert_eq!(world.hosts[A].endpoint.sessions(), 1);
    assert_eq!(world.hosts[B].post_quantum, Some(true));
    assert!(world.hosts.iter().all(|host| host.children.is_empty() && host.closed.is_empty()));
    // and may be rekeyed and closed
    world.rekey_ike(B);
    world.settle();
    assert_eq!(world.hosts[A].rekeyed, 1);
    world.close(A);
    world.settle();
    world.check_closed();
}

#[test]
fn without_children_an_initiator_needs_a_responder_that_is_childless() {
    let [mut config_a, config_b] = configs(PostQuantum::Required);
    let connection = Arc::get_mut(&mut config_a.connections[0]).expect("not shared yet");
    connection.children.clear();
    let mut world = World::new([config_a, config_b], 24);
    world.connect(A);
    world.deliver(0, false);
    let mut response = world.in_flight.remove(0);
    let mut message = Message::parse(&response.datagram).expect("IKE_SA_INIT");
    let is_childless = |payload: &Payload<'_>| matches!(payload, Payload::Notify(one) if one.notify_type == NotifyType::ChildlessSupported);
    message.payloads.retain(|payload| !is_childless(payload));
    let changed = message.emit();
    response.datagram = changed;
    world.hand_over(&response);
    assert_eq!(world.hosts[A].closed, [Reason::NotChildless]);
    assert!(world.in_flight.is_empty(), "no IKE_AUTH without a CHILD SA");
}

/// What a host reports of its messages: `>` sent, `<` taken.
fn reported(world: &mut World, host: usize) -> Vec<String> {
    let messages = std::mem::take(&mut world.hosts[host].messages);
    let text = |one: MessageReport| {
        let way = if one.is_sent { '>' } else { '<' };
        let kind = if one.response { "response" } else { "request" };
        let again = if one.is_repeated { " again" } else { "" };
        let error = one.error.map_or_else(String::new, |error| format!(" {error}"));
        format!("{way} {} {kind} {}{again}{error}", one.exchange, one.message_id)
    };
    messages.into_iter().map(text).collect()
}

#[test]
fn messages_are_reported_where_that_is_wanted() {
    let configs = configs(PostQuantum::Off).map(|mut config| {
        config.report_messages = true;
        config
    });
    let mut world = World::new(configs, 25);
    world.connect(A);
    drop(world.in_flight.remove(0));
    world.settle();
    let init = ["> IKE_SA_INIT request 0", "> IKE_SA_INIT request 0 again"];
    let rest = ["< IKE_SA_INIT response 0", "> IKE_AUTH request 1", "< IKE_AUTH response 1"];
    assert_eq!(reported(&mut world, A), [&init[..], &rest].concat());
    let answered = [
        "< IKE_SA_INIT request 0",
        "> IKE_SA_INIT response 0",
        "< IKE_AUTH request 1",
        "> IKE_AUTH response 1",
    ];
    assert_eq!(reported(&mut world, B), answered);
    // an answer that is lost is sent again, and an error has its name
    let session = world.hosts[B].session.expect("a session");
    world.command(B, &Command::CheckLiveness(session));
    world.deliver(0, false);
    drop(world.in_flight.remove(0));
    world.settle();
    let asked = ["INFORMATIONAL request 0", "INFORMATIONAL response 0"];
    let first = [format!("< {}", asked[0]), format!("> {}", asked[1])];
    let again = first.each_ref().map(|line| format!("{line} again"));
    assert_eq!(reported(&mut world, A), [first, again].concat());
    world.closing = true;
    world.rekey_ike(A);
    world.rekey_child(B);
    world.settle();
    let errors = |lines: Vec<String>| lines.iter().filter(|one| one.contains("FAILURE")).count();
    assert!(errors(reported(&mut world, A)) + errors(reported(&mut world, B)) >= 2);
}

#[test]
fn transport_mode_takes_both_ends() {
    for (a, b, stands) in [
        (Mode::Transport, Mode::Transport, true),
        (Mode::Transport, Mode::Tunnel, false),
        (Mode::Tunnel, Mode::Transport, false),
    ] {
        let mut modes = [a, b].into_iter();
        let configs = configs(PostQuantum::Off).map(|mut config| {
            let connection = Arc::get_mut(&mut config.connections[0]).expect("not shared yet");
            let child = Arc::get_mut(&mut connection.children[0]).expect("not shared yet");
            child.mode = modes.next().expect("two modes");
            config
        });
        let mut world = World::new(configs, 25);
        world.closing = true;
        world.connect(A);
        world.settle();
        let left = world.hosts.each_ref().map(|host| host.children.len());
        assert_eq!(left, if stands { [1, 1] } else { [0, 0] }, "{a:?} {b:?}");
        assert!(world.hosts[A].closed.is_empty());
    }
}

#[test]
fn behind_a_nat_both_move_to_port_4500_and_put_esp_into_udp() {
    let [mut config_a, config_b] = configs(PostQuantum::Required);
    config_a.force_encapsulation = true;
    let mut world = World::new([config_a, config_b], 26);
    world.connect(A);
    world.settle();
    world.check_agreement(1);
    let in_udp =
        |host: &Host| host.children.values().all(|child| child.format == PacketFormat::EspInUdp);
    assert!(world.hosts.iter().all(in_udp));
    let marked = |port| world.ports.contains(&port);
    assert!(marked(500) && marked(4500));
}

#[test]
fn a_responder_follows_a_new_mapping_of_the_nat() {
    let [mut config_a, config_b] = configs(PostQuantum::Off);
    config_a.force_encapsulation = true;
    let mut world = World::new([config_a, config_b], 27);
    world.connect(A);
    world.settle();
    world.rekey_child(A);
    let mut request = world.in_flight.remove(0);
    request.from.set_port(61234);
    world.hand_over(&request);
    assert_eq!(world.hosts[B].moved, 1);
    assert_eq!(world.in_flight[0].to.port(), 61234);
    // a request that is not authentic moves nothing
    let mut forged = request.clone();
    forged.from.set_port(7);
    let last = forged.datagram.len() - 1;
    forged.datagram[last] ^= 1;
    world.hand_over(&forged);
    assert_eq!(world.hosts[B].moved, 1);
}

#[test]
fn ages_and_silence_cause_rekeying_and_questions() {
    let configs = configs(PostQuantum::Required).map(|mut config| {
        let connection = Arc::get_mut(&mut config.connections[0]).expect("nobody else has it");
        connection.rekey = Some(Duration::from_secs(250));
        let child = Arc::get_mut(&mut connection.children[0]).expect("nobody else has it");
        child.rekey = Some(Duration::from_secs(100));
        config.timing.liveness = Some(Duration::from_secs(30));
        config
    });
    let mut world = World::new(configs, 28);
    world.connect(A);
    let end = world.now + Duration::from_secs(1000);
    while world.now < end {
        while !world.in_flight.is_empty() {
            let datagram = world.in_flight.remove(0);
            world.hand_over(&datagram);
            world.send_packet(A);
            world.send_packet(B);
            world.arrive();
        }
        assert!(world.advance());
    }
    let rekeyed = world.hosts[A].rekeyed;
    assert!((3..=10).contains(&rekeyed), "{rekeyed} times");
    assert!(world.hosts[A].installed >= 9, "{} times", world.hosts[A].installed);
    assert!(world.arrived > 50 && world.hosts.iter().all(|host| host.closed.is_empty()));
}

#[test]
fn a_dead_peer_is_noticed_by_its_silence() {
    let long = Duration::from_secs(30);
    // all connections have it, or this one, whatever others have
    for (all, own) in [(Some(long), None), (None, Some(long)), (Some(100 * long), Some(long))] {
        let configs = configs(PostQuantum::Off).map(|mut config| {
            config.timing.liveness = all;
            config.timing.retransmissions = 3;
            let connection = Arc::get_mut(&mut config.connections[0]).expect("nobody else has it");
            connection.liveness = own;
            config
        });
        let mut world = World::new(configs, 29);
        world.connect(A);
        while !world.in_flight.is_empty() {
            world.deliver(0, false);
        }
        let start = world.now;
        while world.hosts[A].closed.is_empty() {
            world.in_flight.clear();
            world.advance();
        }
        assert_eq!(world.hosts[A].closed, [Reason::Timeout(4)]);
        assert!((long..2 * long).contains(&(world.now - start)), "{all:?} {own:?}");
    }
}

#[test]
fn q_esp_is_used_where_both_ends_have_it_and_no_nat_is_between() {
    let qesp = |is_required| Some(QEsp { protocol: 253, is_required });
    let other = Some(QEsp { protocol: 254, is_required: false });
    let (esp, q_esp) = (Some(PacketFormat::Esp), Some(PacketFormat::QEsp(253)));
    let table = [
        (qesp(false), qesp(false), q_esp),
        (qesp(true), qesp(false), q_esp),
        (qesp(false), None, esp),
        (None, qesp(false), esp),
        (other, qesp(false), esp),
        (qesp(true), None, None),
        (None, qesp(true), None),
    ];
    for (row, (a, b, expected)) in table.into_iter().enumerate() {
        let mut wanted = [a, b].into_iter();
        let configs = configs(PostQuantum::Off).map(|mut config| {
            let connection = Arc::get_mut(&mut config.connections[0]).expect("not shared yet");
            let child = Arc::get_mut(&mut connection.children[0]).expect("not shared yet");
            child.qesp = wanted.next().expect("two ends");
            config
        });
        let mut world = World::new(configs, 30);
        world.closing = true;
        world.connect(A);
        world.settle();
        world.rekey_child(B);
        world.settle();
        for host in &world.hosts {
            let formats: Vec<_> = host.children.values().map(|child| child.format).collect();
            assert_eq!(formats, expected.as_slice(), "row {row}");
            assert!(host.closed.is_empty());
        }
    }
}

#[test]
fn q_esp_is_not_used_through_a_nat() {
    for behind in [A, B] {
        let configs = configs(PostQuantum::Off).map(|mut config| {
            let connection = Arc::get_mut(&mut config.connections[0]).expect("not shared yet");
            let child = Arc::get_mut(&mut connection.children[0]).expect("not shared yet");
            child.qesp = Some(QEsp { protocol: 253, is_required: false });
            config
        });
        let mut world = World::new(configs, 31);
        world.nat = Some((behind, IpAddr::from([198, 51, 100, 1])));
        world.connect(A);
        world.settle();
        world.check_agreement(1);
        for host in &world.hosts {
            let in_udp = |child: &ChildSa| child.format == PacketFormat::EspInUdp;
            assert!(host.children.values().all(in_udp), "{behind}");
        }
    }
}

/// Makes a host that asks for an address and one that has `last` of them.
pub(crate) fn road_warrior(last: u8) -> [Config; 2] {
    let all = || vec![TrafficSelector::network(IpAddr::from([0, 0, 0, 0]), 0)];
    let range = AddressRange::V4([10, 9, 0, 1].into()..=[10, 9, 0, last].into());
    let dns = vec![IpAddr::from([10, 0, 2, 53])];
    let pool = Pool { ranges: vec![range], dns };
    let asks = VirtualAddresses::Request { ipv4: true, ipv6: false };
    let mut ends = [asks, VirtualAddresses::Assign(pool)].into_iter();
    let [mut a, mut b] = configs(PostQuantum::Off);
    for config in [&mut a, &mut b] {
        let connection = Arc::get_mut(&mut config.connections[0]).expect("not shared yet");
        connection.virtual_addresses = ends.next().expect("two ends");
        let child = Arc::get_mut(&mut connection.children[0]).expect("not shared yet");
        (child.local, child.remote) = (all(), all());
    }
    [a, b]
}

#[test]
fn an_initiator_gets_an_address_and_no_other_is_its_own() {
    let mut world = World::new(road_warrior(9), 32);
    world.connect(A);
    world.settle();
    let assigned = world.hosts[A].assigned.clone();
    let [address] = assigned.addresses[..] else { panic!("{assigned:?}") };
    assert_eq!(assigned.dns, [IpAddr::from([10, 0, 2, 53])]);
    assert_eq!(world.hosts[B].assigned, assigned);
    for rekeys in 0..2 {
        world.check_agreement(1);
        let child = world.hosts[A].children.values().next().expect("a CHILD SA");
        assert_eq!(child.local, [TrafficSelector::host(address)], "after {rekeys} rekeys");
        world.rekey_child(B);
        world.settle();
    }
    // another CHILD SA is for this address, too
    let session = world.hosts[A].session.expect("a session");
    // a responder sends on a new CHILD SA before its initiator has it
    world.closing = true;
    world.command(A, &Command::CreateChild(session, "net".to_owned()));
    world.settle();
    let same = |child: &ChildSa| child.local == [TrafficSelector::host(address)];
    assert!(world.hosts[A].children.len() == 2 && world.hosts[A].children.values().all(same));
    world.close(A);
    world.settle();
    world.check_closed();
    // it is free again
    world.connect(A);
    world.settle();
    assert_eq!(world.hosts[B].assigned.addresses, [address]);
}

#[test]
fn one_client_of_a_pool_has_few_child_sas() {
    let mut world = World::new(road_warrior(9), 35);
    (world.most, world.closing) = (8, true);
    world.connect(A);
    world.settle();
    let session = world.hosts[A].session.expect("a session");
    for _ in 0..8 {
        world.command(A, &Command::CreateChild(session, "net".to_owned()));
        world.settle();
    }
    assert_eq!(world.hosts[A].failed_children, [Reason::Refused(NotifyType::NoAdditionalSas)]);
    assert_eq!(world.hosts[B].children.len(), 8);
    // they are rekeyed all the same
    world.most = 9;
    world.rekey_child(A);
    world.settle();
    assert_eq!((world.hosts[A].failed_children.len(), world.hosts[B].installed), (1, 9));
}

#[test]
fn without_an_address_there_is_no_child_sa_but_an_ike_sa() {
    // a pool of another IP version, nobody assigns, nobody asks
    let [asks, _] = road_warrior(9);
    let [_, mut assigns] = road_warrior(9);
    let connection = Arc::get_mut(&mut assigns.connections[0]).expect("not shared yet");
    connection.virtual_addresses = VirtualAddresses::Assign(Pool::default());
    let [_, plain] = configs(PostQuantum::Off);
    let [plain_initiator, _] = configs(PostQuantum::Off);
    let [_, pool] = road_warrior(9);
    let refused = |notify_type| Reason::Refused(notify_type);
    for (configs, reason) in [
        ([asks, assigns], refused(NotifyType::InternalAddressFailure)),
        ([road_warrior(9).into_iter().next().expect("one"), plain], Reason::NoAddress),
        ([plain_initiator, pool], refused(NotifyType::FailedCpRequired)),
    ] {
        let mut world = World::new(configs, 33);
        world.closing = true;
        world.connect(A);
        world.settle();
        assert_eq!(world.hosts[A].failed_children, [reason]);
        assert!(world.hosts.iter().all(|host| host.children.is_empty() && host.closed.is_empty()));
    }
}

#[test]
fn a_pre_shared_key_against_quantum_computers_is_used_where_both_have_it() {
    let ppk = |id: &str, key: u8, is_required| {
        let (id, key, exchange) = (id.into(), Key::from_bytes(&[key; 32]), PpkExchange::Auth);
        Some(Ppk { id, key, is_required, exchange })
    };
    let other_key = Reason::Refused(NotifyType::AuthenticationFailed);
    let table = [
        (ppk("one", 1, false), ppk("one", 1, false), Ok(true)),
        (ppk("one", 1, true), ppk("one", 1, true), Ok(true)),
        (ppk("one", 1, false), None, Ok(false)),
        (None, ppk("one", 1, false), Ok(false)),
        (ppk("one", 1, false), ppk("two", 1, false), Ok(false)),
        (ppk("one", 1, true), None, Err(Reason::NoPpk)),
        (None, ppk("one", 1, true), Err(other_key.clone())),
        (ppk("one", 1, false), ppk("one", 2, false), Err(other_key.clone())),
        (ppk("one", 1, true), ppk("two", 1, false), Err(other_key)),
    ];
    for (row, (a, b, expected)) in table.into_iter().enumerate() {
        let mut keys = [a, b].into_iter();
        let configs = configs(PostQuantum::Required).map(|mut config| {
            let connection = Arc::get_mut(&mut config.connections[0]).expect("not shared yet");
            connection.ppk = keys.next().expect("two ends");
            config
        });
        let mut world = World::new(configs, 37);
        world.connect(A);
        world.settle();
        match expected {
            Ok(used) => {
                world.check_agreement(1);
                let expected = used.then_some(UsedPpk::AllButFirst);
                assert_eq!(world.hosts.each_ref().map(|host| host.ppk), [expected; 2], "row {row}");
                world.rekey_ike(B);
                world.settle();
                world.rekey_child(A);
                world.settle();
                world.check_agreement(1);
            }
            Err(reason) => assert_eq!(world.hosts[A].closed, [reason], "row {row}"),
        }
    }
}
