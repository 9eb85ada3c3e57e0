//! Controls a running gateway through its socket.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;

use super::error::{Doing, Error, path};
use super::protocol::{Request, Response};
use super::run_folder::RunFolder;
use super::status::Status;
use super::tunnel::clean_up;

/// The time limit of a request: a gateway takes less to go down, or to read a large configuration.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A client of a gateway.
#[derive(Debug)]
pub struct Client {
    run: RunFolder,
    name: String,
}

impl Client {
    /// Makes a client of a tunnel's gateway; without a name, of the only tunnel.
    ///
    /// # Errors
    /// There is no tunnel, or more than one.
    pub fn of(run: &RunFolder, name: Option<&str>) -> Result<Self, Error> {
        Ok(Self { run: run.clone(), name: run.choose(name)? })
    }

    /// Returns the tunnel's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the status.
    ///
    /// # Errors
    /// The gateway does not run or does not respond.
    pub fn status(&self) -> Result<Status, Error> {
        match self.ask(Request::Status)? {
            Response::Status { status } => Ok(*status),
            answer => Err(unexpected(&answer)),
        }
    }

    /// Makes the gateway read its configuration again. Returns warnings.
    ///
    /// # Errors
    /// The configuration is refused: the former one is still in force.
    pub fn reload(&self, new_keys: bool) -> Result<Vec<String>, Error> {
        self.ask(Request::Reload { new_keys }).and_then(done)
    }

    /// Takes the tunnel down. Cleans up after a dead gateway.
    ///
    /// # Errors
    /// There is nothing to take down, or a command failed.
    pub fn down(&self) -> Result<Vec<String>, Error> {
        if let Some(stream) = self.connect()? {
            match self.exchange(&stream, Request::Down) {
                Ok(answer) => return done(answer),
                Err(error @ (Error::Refused(_) | Error::Answered { .. })) => return Err(error),
                // it died during the request, unless it accepts another one
                Err(error) if self.answers() => return Err(error),
                Err(_) => {}
            }
        }
        clean_up(&self.run, &self.name).map(|()| Vec::new())
    }

    /// Whether the gateway still listens after the time that a dying one takes.
    fn answers(&self) -> bool {
        const TRIES: u32 = 40;
        (0..TRIES).all(|_| {
            std::thread::sleep(Duration::from_millis(50));
            !matches!(self.connect(), Ok(None))
        })
    }

    /// Passes each record of a trace to `each`, until it returns false or after `count` records.
    /// Returns warnings.
    ///
    /// # Errors
    /// The gateway does not run, or ends.
    pub fn trace(
        &self,
        count: Option<u64>,
        mut each: impl FnMut(&Value) -> bool,
    ) -> Result<Vec<String>, Error> {
        let stream = self.connect()?.ok_or_else(|| self.not_running())?;
        self.send(&stream, Request::Trace { count })?;
        // the time between two packets is unlimited
        let _ = stream.set_read_timeout(None);
        let mut reader = BufReader::new(&stream);
        loop {
            match self.receive(&mut reader)? {
                Response::Record { record } if !each(&record) => return Ok(Vec::new()),
                Response::Record { .. } => {}
                answer => return done(answer),
            }
        }
    }

    fn ask(&self, request: Request) -> Result<Response, Error> {
        let stream = self.connect()?.ok_or_else(|| self.not_running())?;
        self.exchange(&stream, request)
    }

    fn exchange(&self, stream: &UnixStream, request: Request) -> Result<Response, Error> {
        self.send(stream, request)?;
        self.receive(&mut BufReader::new(stream))
    }

    fn send(&self, mut stream: &UnixStream, request: Request) -> Result<(), Error> {
        let line = serde_json::to_string(&request).map_err(std::io::Error::from);
        let sent = line.and_then(|line| stream.write_all((line + "\n").as_bytes()));
        sent.doing(|| format!("write to the gateway of {}", self.name))
    }

    /// Reads the next response. Turns a refusal into an error.
    fn receive(&self, from: &mut impl BufRead) -> Result<Response, Error> {
        match Response::read(from) {
            Ok(Some(Response::Error { error, code })) => Err(Error::Answered { error, code }),
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(Error::NotRunning(format!("the gateway of `{}` has ended", self.name))),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                Err(Error::Refused(error.to_string()))
            }
            Err(error) => Err(error).doing(|| format!("read from the gateway of {}", self.name)),
        }
    }

    /// Connects to the gateway; returns none if there is none.
    fn connect(&self) -> Result<Option<UnixStream>, Error> {
        let socket = self.run.socket(&self.name);
        match UnixStream::connect(&socket) {
            Ok(stream) => {
                let _ = stream.set_read_timeout(Some(TIMEOUT));
                let _ = stream.set_write_timeout(Some(TIMEOUT));
                Ok(Some(stream))
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) =>
            {
                Ok(None)
            }
            error => error.map(Some).doing(|| path("connect to", &socket)),
        }
    }

    fn not_running(&self) -> Error {
        let name = &self.name;
        Error::NotRunning(format!(
            "no gateway runs for `{name}`. If it was killed, its traffic is blocked until `headroom tunnel up` or \
             `headroom tunnel down {name}`"
        ))
    }
}

fn done(answer: Response) -> Result<Vec<String>, Error> {
    match answer {
        Response::Done { done } => Ok(done),
        answer => Err(unexpected(&answer)),
    }
}

fn unexpected(answer: &Response) -> Error {
    Error::Refused(format!("the gateway sent an unexpected response: {answer:?}"))
}
