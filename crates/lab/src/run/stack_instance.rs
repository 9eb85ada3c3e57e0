//! One stack in a run: its application's server and the layers around it, how
//! they are brought up and where its wire clock is read.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use headroom_lab_host::capture::RunningCapture;
use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::testbed::{Clock, Ends, Testbed};
use headroom_lab_results::schema::LayerSetup;
use headroom_lab_trace::{Framing, SetUp};

use crate::layer::{Drops, Instance, KeyUpdates, LayerKind, Place};
use crate::plan::PlannedStack;

/// Times that each layer is set up for the record.
const SET_UPS: u32 = 5;

/// The addresses and layers of a stack.
pub(super) struct StackInstance {
    /// The address on which the application's server listens.
    pub(super) listens: SocketAddr,
    /// The address to which its client connects.
    pub(super) connects: SocketAddr,
    /// The server's port in the trace of its wire clock.
    pub(super) wire_port: u16,
    /// Outermost first.
    instances: Vec<Instance>,
    /// Addresses on the link that the outermost has for itself, or the stack for its congestion
    /// control.
    own_ends: Option<Ends>,
    /// Congestion control of TCP.
    congestion_control: String,
    /// On the client's inner interface, where a tunnel hides the connection from
    /// the router.
    inner: Option<RunningCapture>,
    /// Whether its layers are resumed.
    is_active: bool,
}

/// A layer's set-up, as it was observed.
#[derive(Debug, Clone, Copy)]
pub(super) struct ObservedSetUp {
    /// On the wire.
    pub(super) wire: SetUp,
    /// CPU seconds of the server's processes; none in a dry run.
    pub(super) server_cpu_s: Option<f64>,
}

/// Numbers for the layers of a run.
#[derive(Default)]
pub(super) struct Numbers {
    all: u16,
    of_layer: BTreeMap<&'static str, u16>,
}

impl StackInstance {
    /// Gives a stack its addresses; nothing is started. `congestion_control` is that of stacks
    /// which have none of their own.
    pub(super) fn new(
        planned: &PlannedStack,
        testbed: &Testbed,
        port: u16,
        congestion_control: &str,
        numbers: &mut Numbers,
    ) -> Result<Self> {
        let stack = &planned.stack;
        let congestion_control =
            planned.congestion_control.as_deref().unwrap_or(congestion_control);
        let (client, server) = (testbed.client.address, testbed.server.address);
        let mut ends = Ends { client, server, mtu: testbed.mtu(), ports: testbed.layer_ports() };
        let mut instances: Vec<Instance> = Vec::new();
        let mut connects = None;
        let mut own_ends = None;
        if planned.congestion_control.is_some() {
            // a route has the congestion control, and routes are told apart by addresses
            numbers.all += 1;
            ends = testbed.own_ends(numbers.all);
            own_ends = Some(ends);
        }
        for (inside, layer) in stack.layers.iter().enumerate().rev() {
            numbers.all += 1;
            // inside another network the addresses are nobody else's anyway
            let on_link = !instances.iter().any(|around| around.layer.kind().is_network());
            if on_link && layer.wants_own_addresses() {
                ends = testbed.own_ends(numbers.all);
                own_ends = Some(ends);
            }
            let alike = instances.iter().filter(|i| i.layer.name() == layer.name()).count();
            let nth = numbers.of_layer.entry(layer.name()).or_default();
            // a stream inside another listens where the outer one forwards to
            let inner_stream = inside > 0 && stack.layers[inside - 1].kind() == LayerKind::Stream;
            let port = if inner_stream { ends.port(numbers.all + 1) } else { port };
            let instance = Instance::new(
                layer,
                &stack.name,
                numbers.all,
                *nth,
                ends,
                port,
                congestion_control,
            )?
            .inside(connects)
            .inside_alike(alike);
            *nth += 1;
            ends = instance.inner;
            if layer.kind() == LayerKind::Stream {
                connects = Some(instance.client());
            }
            instances.push(instance);
        }
        let listens = SocketAddr::new(ends.server, port);
        let outermost =
            instances.iter().find(|instance| instance.layer.kind() == LayerKind::Stream);
        Ok(Self {
            listens,
            connects: connects.unwrap_or(listens),
            wire_port: outermost.map_or(port, |stream| stream.server().port()),
            instances,
            own_ends,
            congestion_control: congestion_control.to_owned(),
            inner: None,
            is_active: false,
        })
    }

    /// Starts the layers, outermost first, each set up from nothing.
    pub(super) fn start(&mut self, testbed: &Testbed) -> Result<()> {
        if let Some(ends) = &self.own_ends {
            testbed.add_own_ends(ends, &self.congestion_control)?;
            // inside layers TCP has other routes
            if self.instances.is_empty() {
                testbed.verify_congestion_control(ends, &self.congestion_control)?;
            }
        }
        for instance in &self.instances {
            let place = place(testbed, instance);
            for host in place.hosts() {
                host.make_folders(&[place.dir(host)])?;
            }
            instance.layer.start(&place)?;
        }
        self.is_active = true;
        self.look_inside(testbed)
    }

    /// Opens the capture on the innermost tunnel's interface.
    fn look_inside(&mut self, testbed: &Testbed) -> Result<()> {
        if let Some(instance) = self.innermost_network() {
            let client = instance.inner.client;
            let framing =
                if instance.layer.is_of_the_link() { Framing::Ethernet } else { Framing::Ip };
            self.inner = testbed.capture_client(&instance.interface, framing, client)?;
        }
        Ok(())
    }

    fn innermost_network(&self) -> Option<&Instance> {
        self.instances.iter().rfind(|instance| instance.layer.kind().is_network())
    }

    /// Returns its wire clock; none in a dry run.
    pub(super) fn clock<'a>(&'a self, testbed: &'a Testbed) -> Option<Clock<'a>> {
        self.inner.as_ref().map(Clock::Here).or(testbed.clock())
    }

    /// Streams around the application.
    pub(super) fn streams(&self) -> u32 {
        self.instances.iter().filter(|i| i.layer.kind() == LayerKind::Stream).count() as u32
    }

    /// Whether the router sees something else than the wire clock does.
    pub(super) fn is_tunnelled(&self) -> bool {
        self.innermost_network().is_some()
    }

    /// Name and MTU of the inner interfaces.
    pub(super) fn inner_mtus(&self) -> impl Iterator<Item = (String, String)> {
        self.instances.iter().filter(|i| i.layer.kind().is_network()).map(|instance| {
            (format!("{}: inner MTU", instance.layer.name()), instance.inner.mtu.to_string())
        })
    }

    /// Resumes every layer, before measurements.
    pub(super) fn resume(&mut self, testbed: &Testbed) -> Result<()> {
        let was_active = std::mem::replace(&mut self.is_active, true);
        self.instances.iter().try_for_each(|i| i.layer.resume(&place(testbed, i)))?;
        let is_new = self.innermost_network().is_some_and(|i| i.layer.ends_when_quiesced());
        if is_new && !was_active { self.look_inside(testbed) } else { Ok(()) }
    }

    /// Quiesces every layer, after measurements: none sends anything.
    pub(super) fn quiesce(&mut self, testbed: &Testbed) -> Result<()> {
        if self.innermost_network().is_some_and(|i| i.layer.ends_when_quiesced()) {
            self.inner = None; // its interface goes
        }
        self.is_active = false;
        self.instances.iter().rev().try_for_each(|i| i.layer.quiesce(&place(testbed, i)))
    }

    /// Packets that its layers did not pass on since they were resumed, by reason; none where
    /// none of them says.
    pub(super) fn drops(&self, testbed: &Testbed) -> Result<Option<Drops>> {
        let mut all: Option<Drops> = None;
        for instance in &self.instances {
            let Some(drops) = instance.layer.drops(&place(testbed, instance))? else { continue };
            let all = all.get_or_insert_default();
            for (reason, packets) in drops {
                *all.entry(reason).or_default() += packets;
            }
        }
        Ok(all)
    }

    /// Updates of its layers' keys since they were resumed.
    pub(super) fn key_updates(&self, testbed: &Testbed) -> Result<Vec<KeyUpdates>> {
        let of = |instance: &Instance| instance.layer.key_updates(&place(testbed, instance));
        self.instances.iter().filter_map(|instance| of(instance).transpose()).collect()
    }

    /// The instances whose daemons should be there.
    fn running(&self) -> impl Iterator<Item = &Instance> {
        self.instances.iter().filter(|i| self.is_active || !i.layer.ends_when_quiesced())
    }

    /// Whether all daemons still run.
    ///
    /// # Errors
    /// The first that ended, with its words.
    pub(super) fn require_alive(&self, testbed: &Testbed) -> Result<()> {
        self.running().try_for_each(|instance| {
            let place = place(testbed, instance);
            place.hosts().into_iter().try_for_each(|host| place.require_alive(host))
        })
    }

    /// Whether those on the server still run.
    ///
    /// # Errors
    /// The first that ended, with its words.
    pub(super) fn require_server(&self, testbed: &Testbed) -> Result<()> {
        self.running().try_for_each(|i| place(testbed, i).require_alive(&testbed.server))
    }

    /// Sets each layer up from nothing, several times, and records what passed.
    pub(super) fn measure_set_ups(
        &mut self,
        testbed: &Testbed,
        quiet: Duration,
    ) -> Result<Vec<LayerSetup>> {
        self.resume(testbed)?;
        let mut rows = Vec::new();
        for index in 0..self.instances.len() {
            let instance = &self.instances[index];
            if !instance.layer.negotiates() || self.clock_of(instance, testbed).is_none() {
                continue;
            }
            let mut seen = Vec::new();
            for _ in 0..SET_UPS {
                seen.extend(self.set_up(instance, testbed, quiet)?.map(|seen| seen.wire));
            }
            seen.sort_by_key(|set_up| (set_up.packets, set_up.bytes));
            let middle = seen.get(seen.len() / 2).ok_or_else(|| unseen(instance))?;
            rows.push(LayerSetup {
                stack: instance.stack.clone(),
                layer: instance.layer.name().to_owned(),
                packets: middle.packets,
                bytes: middle.bytes,
                round_trips: middle.round_trips,
                seconds: seen.iter().map(|set_up| set_up.seconds).collect(),
            });
            if instance.layer.ends_when_quiesced() {
                self.look_inside(testbed)?; // a set-up made its interface anew
            }
        }
        self.quiesce(testbed)?;
        Ok(rows)
    }

    /// Sets the outermost layer that negotiates up from nothing, once.
    ///
    /// # Errors
    /// There is none, it does not come up, or nothing was seen of it.
    pub(super) fn set_up_once(
        &mut self,
        testbed: &Testbed,
        quiet: Duration,
    ) -> Result<ObservedSetUp> {
        self.resume(testbed)?;
        let Some(outermost) = self.instances.iter().find(|i| i.layer.negotiates()) else {
            return Err(Error::Plan("no layer of this stack has anything to set up".into()));
        };
        let mut seen = None;
        for _ in 0..SET_UPS {
            // what comes late on a busy machine is not seen
            seen = self.set_up(outermost, testbed, quiet)?;
            if seen.is_some() {
                break;
            }
        }
        let seen = seen.ok_or_else(|| unseen(outermost))?;
        // what is inside may have been cut by it
        self.resume(testbed)?;
        self.quiesce(testbed)?;
        Ok(seen)
    }

    /// Returns the clock that sees the set-up of a layer; none in a dry run.
    fn clock_of<'a>(&'a self, instance: &Instance, testbed: &'a Testbed) -> Option<Clock<'a>> {
        if instance.layer.kind().is_network() { testbed.clock() } else { self.clock(testbed) }
    }

    fn set_up(
        &self,
        instance: &Instance,
        testbed: &Testbed,
        quiet: Duration,
    ) -> Result<Option<ObservedSetUp>> {
        let place = place(testbed, instance);
        let clock = self.clock_of(instance, testbed).ok_or_else(|| unseen(instance))?;
        instance.layer.tear_down(&place)?;
        std::thread::sleep(quiet);
        clock.forget()?;
        let before = testbed.read_cpu()?;
        instance.layer.establish(&place)?;
        let after = testbed.read_cpu()?;
        let spent = after.zip(before).and_then(|(after, before)| after.since(&before));
        std::thread::sleep(quiet);
        let wire = clock.take()?.set_up(instance.layer.kind().is_network())?;
        let server_cpu_s = spent.map(|spent| spent.server);
        Ok(wire.map(|wire| ObservedSetUp { wire, server_cpu_s }))
    }
}

fn unseen(instance: &Instance) -> Error {
    Error::Failed(format!("no packet was seen when {} was set up", instance.daemon()))
}

fn place<'a>(testbed: &'a Testbed, instance: &'a Instance) -> Place<'a> {
    Place { client: &testbed.client, server: &testbed.server, at: instance }
}
