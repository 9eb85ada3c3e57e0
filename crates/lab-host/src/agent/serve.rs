//! The agent's side of the conversation: serves requests until its input ends.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::io::Write;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::closed_loop::{self, Limits, LoopClient, LoopOutcome};
use super::daemon::Server;
use super::files::{self, value};
use super::job::{self, Job, Outcome, Waiting};
use super::{Reply, Request, probe, remote_capture, sockets};
use crate::capture::RunningCapture;
use crate::command;
use crate::error::{Doing, Error, Result};
use crate::programs::SearchPath;
use crate::resources::cgroup;
use crate::resources::cpu::{Meter, cpu_of_children};
use crate::scratch;

/// The agent's side: serves requests until standard input ends.
pub fn serve() {
    let mut state = State::default();
    for line in std::io::stdin().lines().map_while(std::result::Result::ok) {
        let reply = match serde_json::from_str(&line) {
            Ok(request) => match answer(request, &mut state) {
                Ok(value) => Reply::Done(value),
                Err(Error::Missing(message)) => Reply::Missing(message),
                Err(error) => Reply::Failed(error.to_string()),
            },
            Err(error) => Reply::Failed(format!("the agent cannot read its request: {error}")),
        };
        let mut stdout = std::io::stdout().lock();
        let written = serde_json::to_string(&reply)
            .map_err(std::io::Error::from)
            .and_then(|line| writeln!(stdout, "{line}").and_then(|()| stdout.flush()));
        if written.is_err() {
            break;
        }
    }
    // The lab is gone. If it ended well it has removed us already; if it was
    // killed, nobody else will end these servers.
    if let Some(group) = own_group() {
        let _ = cgroup::kill(&group);
    }
}

/// The state of an agent between requests.
#[derive(Default)]
struct State {
    servers: BTreeMap<String, Server>,
    capture: Option<RunningCapture>,
    meter: Option<Meter>,
    /// Clients whose prelude is over, in the order of their runs.
    waiting: VecDeque<Waiting>,
}

impl State {
    fn server(&mut self, name: &str) -> Result<&mut Server> {
        let server = self.servers.get_mut(name);
        server.ok_or_else(|| Error::Failed(format!("no server {name} was started")))
    }

    fn capture(&self) -> Result<&RunningCapture> {
        self.capture.as_ref().ok_or_else(|| Error::Failed("the agent captures nothing yet".into()))
    }
}

fn answer(request: Request, state: &mut State) -> Result<Value> {
    match request {
        Request::Prepare { jobs, timeout_s } => {
            state.waiting.clear();
            for job in &jobs {
                let waiting = Waiting::start(job, Duration::from_secs_f64(timeout_s))?;
                state.waiting.push_back(waiting);
            }
            Ok(Value::Null)
        }
        Request::Run { jobs, timeout_s } => {
            value(&run_all(jobs, &mut state.waiting, Duration::from_secs_f64(timeout_s))?)
        }
        Request::RunLoop { clients, seconds, timeout_s } => {
            let time = Duration::from_secs_f64(seconds);
            value(&run_loop(clients, time, Duration::from_secs_f64(timeout_s))?)
        }
        Request::Start { name, command } => {
            state.servers.insert(name, Server::start(&command)?);
            Ok(Value::Null)
        }
        Request::State { name, since_ns } => value(&state.server(&name)?.state(since_ns)),
        Request::Reload { name } => value(&state.server(&name)?.reload()?),
        Request::Command(command) => value(&command::output(command.process()?, &command)?),
        Request::Locate { program } => value(&SearchPath::from_environment().find(&program)),
        Request::Version { program, arguments } => {
            value(&SearchPath::from_environment().version_of(&program, &arguments))
        }
        Request::Files(request) => files::answer(request),
        Request::Connect { address } => {
            value(&TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok())
        }
        Request::ConnectThrough { address } => {
            value(&remote_capture::connect_through(address).is_ok())
        }
        Request::BoundForUdp { address } => value(&sockets::is_bound_for_udp(address)?),
        Request::Swallow { address } => value(&probe::swallow(address)?),
        Request::Probe(train) => value(&probe::send(&train)?),
        Request::CongestionControl { address } => value(&probe::congestion_control(address)?),
        Request::Cpu => {
            let group = own_group()
                .ok_or_else(|| Error::Failed("the agent is in no control group of a run".into()))?;
            value(&state.meter.get_or_insert_with(|| Meter::new(false)).read_one(&group)?)
        }
        Request::CpuOfChildren => value(&cpu_of_children()?),
        Request::Resolve { name } => {
            let found = (name.as_str(), 0).to_socket_addrs();
            let found = found.doing(|| format!("find out what the name {name} means"))?;
            value(&found.map(|address| address.ip()).collect::<Vec<_>>())
        }
        Request::Open(spec) => {
            state.capture = Some(spec.open()?);
            Ok(Value::Null)
        }
        Request::Forget => {
            state.capture()?.clear();
            Ok(Value::Null)
        }
        Request::Record(expected) => value(&remote_capture::record(state.capture()?, &expected)?),
        Request::SetUp => value(&remote_capture::set_up(state.capture()?)?),
        Request::Answer { address } => value(&remote_capture::answer(address)?),
        Request::RoundTrips { address, times } => {
            value(&remote_capture::round_trips(address, times)?)
        }
    }
}

/// Runs clients at once; those that have a prelude are the next that wait.
fn run_all(
    jobs: Vec<Job>,
    waiting: &mut VecDeque<Waiting>,
    timeout: Duration,
) -> Result<Vec<Outcome>> {
    let mut clients = Vec::with_capacity(jobs.len());
    for job in jobs {
        let prepared = if job.has_prelude {
            let next = waiting.pop_front();
            Some(next.ok_or_else(|| Error::Failed("a client was not prepared for its run".into()))?)
        } else {
            None
        };
        clients.push((job, prepared));
    }
    let run = |(job, prepared): (Job, Option<Waiting>)| match prepared {
        Some(waiting) => waiting.go_on(timeout),
        None => job::run(&job, timeout),
    };
    match <[_; 1]>::try_from(clients) {
        Ok([client]) => Ok(vec![run(client)?]),
        Err(clients) => at_once(clients, run),
    }
}

fn run_loop(
    clients: Vec<LoopClient>,
    time: Duration,
    timeout: Duration,
) -> Result<Vec<LoopOutcome>> {
    let most = closed_loop::MAX_SESSIONS / clients.len().max(1);
    let (started, limits) = (Instant::now(), Limits { time, timeout, most });
    at_once(clients, |client| closed_loop::run(&client, started, limits))
}

/// Does the same with each item, in a thread each.
fn at_once<T: Send, R: Send>(items: Vec<T>, act: impl Fn(T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let act = &act;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            items.into_iter().map(|item| scope.spawn(move || act(item))).collect();
        let lost = || Err(Error::Failed("a thread of the agent panicked".into()));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| lost())).collect()
    })
}

/// The control group of this process, if it is a run's.
fn own_group() -> Option<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let is_of_run = |name: &OsStr| scratch::id_of(&name.to_string_lossy()).is_some();
    let of_run = Path::new(path).iter().any(is_of_run);
    of_run.then(|| cgroup::mounted().map(|root| root.join(path)))?
}
