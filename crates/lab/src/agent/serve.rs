//! The agent's side of the conversation: serves requests until its input ends.

use std::collections::BTreeMap;
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt};

use super::daemon::Server;
use super::job::{self, Outcome};
use super::{Reply, Request};
use crate::error::{Doing, Error, Result};
use crate::measure::cgroup;

/// The agent's side: serves requests until standard input ends.
pub fn serve() {
    let mut servers: BTreeMap<String, Server> = BTreeMap::new();
    for line in std::io::stdin().lines().map_while(std::result::Result::ok) {
        let reply = match serde_json::from_str(&line) {
            Ok(request) => answer(request, &mut servers)
                .unwrap_or_else(|error| Reply::Error(error.to_string())),
            Err(error) => Reply::Error(format!("the agent cannot read its request: {error}")),
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

fn answer(request: Request, servers: &mut BTreeMap<String, Server>) -> Result<Reply> {
    match request {
        Request::Run { jobs, timeout_s } => {
            let timeout = Duration::from_secs_f64(timeout_s);
            let outcomes: Vec<Result<Outcome>> = match &jobs[..] {
                [job] => vec![job::run(job, timeout)],
                jobs => std::thread::scope(|scope| {
                    let threads: Vec<_> = jobs
                        .iter()
                        .map(|job| scope.spawn(move || job::run(job, timeout)))
                        .collect();
                    let lost = || Err(Error::Failed("a thread of the agent panicked".into()));
                    threads
                        .into_iter()
                        .map(|thread| thread.join().unwrap_or_else(|_| lost()))
                        .collect()
                }),
            };
            Ok(Reply::Outcomes(outcomes.into_iter().collect::<Result<_>>()?))
        }
        Request::Start { name, argv, environment } => {
            servers.insert(name, Server::start(&argv, &environment)?);
            Ok(Reply::Done)
        }
        Request::State { name, since_ns } => servers
            .get_mut(&name)
            .map(|server| Reply::State(server.state(since_ns)))
            .ok_or_else(|| Error::Failed(format!("no server {name} was started"))),
        Request::Connect { address } => Ok(Reply::Connected(
            TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok(),
        )),
        Request::Sink { address } => {
            let listener = TcpListener::bind(address).doing(|| format!("listen on {address}"))?;
            std::thread::spawn(move || {
                if let Ok((stream, _)) = listener.accept() {
                    let _ = std::io::copy(
                        &mut BufReader::with_capacity(1 << 18, stream),
                        &mut std::io::sink(),
                    );
                }
            });
            Ok(Reply::Done)
        }
        Request::Blast { address, seconds } => blast(address, seconds),
    }
}

fn blast(address: SocketAddr, seconds: f64) -> Result<Reply> {
    let doing = || format!("send test data to {address}");
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5)).doing(doing)?;
    stream.set_write_timeout(Some(Duration::from_secs(10))).doing(doing)?;
    let piece = [0x5a; 64 * 1024];
    let deadline = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < deadline {
        let _ = stream.write(&piece).doing(doing)?;
    }
    let name = getsockopt(&stream, sockopt::TcpCongestion)
        .doing(|| "ask for the congestion control".into())?;
    let congestion_control = name.to_string_lossy().trim_end_matches('\0').to_owned();
    Ok(Reply::Sent { congestion_control })
}

/// The control group of this process, if it is a run's.
fn own_group() -> Option<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    path.starts_with("headroom-").then(|| cgroup::mounted().map(|root| root.join(path)))?
}
