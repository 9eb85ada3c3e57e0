//! A file over a data channel of WebRTC (RFC 8831), between pages of two Chromium. This program
//! passes on what they tell each other before they are connected (RFC 8829), over one TCP
//! connection from the client: a line of JSON each way, and one when the peer has done its part.

use std::convert::Infallible;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use headroom_lab_trace::BrowserReport;
use serde_json::{Value, json};

use crate::devtools::{Browser, Page};
use crate::{COMMON, Doing, Error, LocalFile, Result, Task, ns, storage};

/// The origin of the pages. No host has it (RFC 6761, section 6.4): their content is here.
const ORIGIN: &str = "https://lab.invalid";
/// Begins a line of SDP with an address of a host (RFC 8839, section 5.1).
const CANDIDATE: &str = "a=candidate:";
/// The most bytes of a line between the two ends.
const MAX_LINE: u64 = 1 << 20;
/// How long an end waits for a line that is due at once.
const PATIENCE: Duration = Duration::from_secs(60);

/// The end of data channels that serves files.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The executable of Chromium.
    pub chromium: PathBuf,
    /// The folder in which the browser's profile is made.
    pub folder: PathBuf,
    /// The folder with the files.
    pub root: PathBuf,
    /// Where clients say what they want; bound when the browser is ready.
    pub listen: SocketAddr,
}

/// Serves files, one client after the other, for as long as the browser runs.
///
/// # Errors
/// The browser does not start or has ended, or the address cannot be bound.
pub fn serve(peer: &Peer) -> Result<Infallible> {
    let profile = peer.folder.join("profile");
    fs::create_dir_all(&profile).doing(|| format!("make {}", profile.display()))?;
    let mut browser = Browser::start(&peer.chromium, &profile)?;
    let mut page = open(&mut browser)?;
    let listener = TcpListener::bind(peer.listen);
    let listener = listener.doing(|| format!("listen at {}", peer.listen))?;
    loop {
        let (stream, _) = listener.accept().doing(|| "accept a client".to_owned())?;
        // a client that goes, or says nothing because it only looks whether this listens, is none
        // of the next one's business
        if let Err(error @ Error::Browser(_)) = session(&mut page, peer, &profile, &stream) {
            return Err(error);
        }
    }
}

/// Moves one file for a client, and says how that went.
fn session(page: &mut Page<'_>, peer: &Peer, profile: &Path, stream: &TcpStream) -> Result<()> {
    let mut lines = lines(stream)?;
    let Some(wanted) = receive(&mut lines)? else { return Ok(()) };
    let moved = exchange(page, peer, profile, stream, &wanted);
    if moved.is_ok() {
        // the client goes when its page has the last message, which an end of the channel discards
        let _ = tell(stream, &json!({})).and_then(|()| receive(&mut lines));
    }
    // whatever happened, the page must be ready for the next client
    let cleared = page.call("() => webrtc.clear()", &json!({})).map(drop);
    let Err(error) = moved else { return cleared };
    let _ = tell(stream, &json!({"error": error.to_string()}));
    Err(error)
}

fn exchange(
    page: &mut Page<'_>,
    peer: &Peer,
    profile: &Path,
    stream: &TcpStream,
    wanted: &Value,
) -> Result<()> {
    let path = below(&peer.root, wanted["remote"].as_str().unwrap_or_default())?;
    let is_upload = wanted["upload"] == json!(true);
    if !is_upload {
        page.pick(&path)?;
    }
    let task = json!({"offer": wanted["offer"], "bytes": wanted["bytes"], "upload": is_upload});
    let ready = page.call("task => webrtc.answer(task)", &task)?;
    let own = own_address(stream)?;
    let answer = description(&ready, "answer", own)?;
    let bytes = bytes_of(&ready);
    tell(stream, &json!({"answer": answer, "bytes": bytes}))?;
    let task = json!({"bytes": bytes, "upload": is_upload});
    let served = page.call("task => webrtc.serve(task)", &task)?;
    require_address(&served, own)?;
    if is_upload { storage::take(profile, bytes, &path) } else { Ok(()) }
}

/// Moves a file from or to a [`Peer`], whose address is the task's.
pub(crate) fn transfer(task: &Task, profile: &Path) -> Result<BrowserReport> {
    let address: SocketAddr = task
        .url
        .parse()
        .map_err(|_| Error::Peer(format!("`{}` is no address with a port", task.url)))?;
    fs::create_dir_all(profile).doing(|| format!("make {}", profile.display()))?;
    let mut browser = Browser::start(&task.chromium, profile)?;
    let client = browser.version()?;
    let mut page = open(&mut browser)?;
    let is_upload = matches!(task.local, LocalFile::Upload(_));
    if let LocalFile::Upload(path) = &task.local {
        page.pick(path)?;
    }
    let begun = page.call("task => webrtc.offer(task)", &json!({"upload": is_upload}))?;
    let stream = TcpStream::connect(address).doing(|| format!("connect to {address}"))?;
    let mut lines = lines(&stream)?;
    let own = own_address(&stream)?;
    let offer = description(&begun, "offer", own)?;
    let wanted = json!({
        "remote": task.remote,
        "upload": is_upload,
        "bytes": begun["bytes"],
        "offer": offer,
    });
    tell(&stream, &wanted)?;
    let answer = answer_of(&mut lines)?;
    let bytes = bytes_of(&answer);
    let rest = json!({"answer": answer["answer"], "bytes": bytes, "upload": is_upload});
    let moved = page.call("task => webrtc.finish(task)", &rest);
    if moved.is_err() {
        // what the peer says of it explains it best, if it says anything soon
        let _ = stream.set_read_timeout(Some(PATIENCE / 30));
    }
    // what was uploaded is in the peer's folder then
    let moved = match (moved, answer_of(&mut lines)) {
        (Ok(moved), Ok(_)) => moved,
        (_, Err(why @ Error::Peer(_))) | (Err(why), _) | (_, Err(why)) => return Err(why),
    };
    // the peer waits for it
    drop(lines);
    drop(stream);
    require_address(&moved, own)?;
    let (start, done) = begun["start_ms"]
        .as_f64()
        .zip(moved["done_ms"].as_f64())
        .ok_or_else(|| Error::Page(format!("it reports no times: {moved}")))?;
    browser.close()?;
    if let LocalFile::Download(path) = &task.local {
        storage::take(profile, bytes, path)?;
    }
    Ok(BrowserReport {
        client,
        transport: Some("webrtc".to_owned()),
        start_ns: Some(ns(start)),
        done_ns: Some(ns(done)),
        total_s: (done - start) / 1000.0,
        bytes,
        hash: None,
        error: None,
    })
}

/// Opens the page of either end.
fn open(browser: &mut Browser) -> Result<Page<'_>> {
    browser.show_addresses(ORIGIN)?;
    let mut page = browser.page()?;
    page.open_empty(&format!("{ORIGIN}/"))?;
    let script = include_str!("../web/webrtc.js");
    page.call(&format!("async () => {{ {COMMON}\n{script}\n}}"), &json!({}))?;
    Ok(page)
}

/// Finds a file by its name below a folder.
fn below(root: &Path, name: &str) -> Result<PathBuf> {
    let path = Path::new(name);
    let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
    if name.is_empty() || !is_below {
        return Err(Error::Peer(format!("`{name}` is no path below the served folder")));
    }
    Ok(root.join(path))
}

/// Returns a page's offer or answer, with candidates of this address only: those of others of the
/// host would lead past the layers of the stack.
///
/// # Errors
/// The page has no such candidate.
fn description(ready: &Value, key: &str, address: IpAddr) -> Result<String> {
    let sdp = with_address(text(ready, key)?, address);
    if !sdp.contains(CANDIDATE) {
        return Err(Error::Page(format!(
            "the browser does not find this host's address {address}"
        )));
    }
    Ok(sdp)
}

/// Leaves out candidates of other addresses. Puts the address where Chromium has named one by mDNS
/// (`….local`), which nobody answers for in a network without multicast.
fn with_address(sdp: &str, address: IpAddr) -> String {
    const ADDRESS: usize = 4; // RFC 8839, section 5.1
    let line = |line: &str| {
        let mut fields: Vec<String> = line.split(' ').map(str::to_owned).collect();
        if line.starts_with(CANDIDATE)
            && let Some(field) = fields.get_mut(ADDRESS)
        {
            if field.ends_with(".local") {
                *field = address.to_string();
            } else if field.parse::<IpAddr>().is_ok_and(|one| one != address) {
                return None;
            }
        }
        Some(fields.join(" "))
    };
    sdp.split('\n').filter_map(line).collect::<Vec<_>>().join("\n")
}

/// Refuses a transfer that another address of this host has carried, so perhaps other layers than
/// those of the stack: no page can choose the address that it sends from.
fn require_address(moved: &Value, own: IpAddr) -> Result<()> {
    let used = moved["address"].as_str().and_then(|text| text.parse::<IpAddr>().ok());
    match used.filter(|used| *used != own) {
        None => Ok(()),
        Some(used) => Err(Error::Page(format!(
            "the browser sends from {used}, and this stack is measured from {own}: leave out the layers, or measure \
             it in a plan without stacks that give the hosts other addresses"
        ))),
    }
}

fn own_address(stream: &TcpStream) -> Result<IpAddr> {
    Ok(stream.local_addr().doing(|| "find this end's address".to_owned())?.ip())
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value[key].as_str().ok_or_else(|| Error::Page(format!("it returns no {key}: {value}")))
}

/// The size of a file: a number of JavaScript.
fn bytes_of(value: &Value) -> u64 {
    value["bytes"].as_f64().unwrap_or_default() as u64
}

/// Reads the other end's lines.
fn lines(stream: &TcpStream) -> Result<BufReader<&TcpStream>> {
    stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(Some(PATIENCE)))
        .doing(|| "set up a connection".to_owned())?;
    Ok(BufReader::new(stream))
}

fn tell(mut stream: &TcpStream, message: &Value) -> Result<()> {
    let line = format!("{message}\n");
    stream.write_all(line.as_bytes()).doing(|| "write to the other end".to_owned())
}

/// Reads a line; none: the other end has gone.
fn receive(lines: &mut impl BufRead) -> Result<Option<Value>> {
    let mut line = Vec::new();
    let mut limited = std::io::Read::take(lines, MAX_LINE);
    limited.read_until(b'\n', &mut line).doing(|| "read from the other end".to_owned())?;
    if line.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(&line)
        .map(Some)
        .map_err(|error| Error::Peer(format!("it sends no line of JSON: {error}")))
}

/// Reads the peer's next line, which may be of an error.
fn answer_of(lines: &mut impl BufRead) -> Result<Value> {
    let answer =
        receive(lines)?.ok_or_else(|| Error::Peer("it has closed the connection".to_owned()))?;
    match answer["error"].as_str() {
        Some(error) => Err(Error::Peer(error.to_owned())),
        None => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_mdns_become_the_address_of_their_host() {
        let sdp = "v=0\r\na=candidate:1 1 udp 2113937151 0b1c-d2.local 54321 typ host generation 0\r\n\
                   a=candidate:2 1 udp 2113937151 fd77:1:0::1 54322 typ host\r\na=mid:0\r\n";
        let address = "fd77:1::1".parse().expect("an address");
        let changed = with_address(sdp, address);
        assert_eq!(changed, sdp.replace("0b1c-d2.local", "fd77:1::1"));
        assert_eq!(with_address("", address), "");
        assert_eq!(with_address("a=candidate:1 1", address), "a=candidate:1 1");
    }

    #[test]
    fn only_the_address_of_the_stack_is_a_candidate() {
        let line = |address: &str| format!("a=candidate:1 1 udp 1 {address} 54321 typ host\r\n");
        let sdp = format!("v=0\r\n{}{}a=mid:0\r\n", line("10.77.1.1"), line("10.78.1.1"));
        let ready = json!({"offer": sdp});
        let own = |address: &str| address.parse::<IpAddr>().expect("an address");
        let inner = description(&ready, "offer", own("10.78.1.1")).expect("an offer");
        assert_eq!(inner, format!("v=0\r\n{}a=mid:0\r\n", line("10.78.1.1")));
        let none = description(&ready, "offer", own("10.79.1.1"));
        assert!(none.is_err_and(|error| error.to_string().contains("10.79.1.1")));

        let moved = json!({"address": "10.78.1.1"});
        assert!(require_address(&moved, own("10.78.1.1")).is_ok());
        assert!(require_address(&moved, own("10.77.1.1")).is_err());
        for unknown in [json!({}), json!({"address": null}), json!({"address": "0b1c.local"})] {
            assert!(require_address(&unknown, own("10.77.1.1")).is_ok(), "{unknown}");
        }
    }

    #[test]
    fn refuses_paths_that_are_not_below_the_served_folder() {
        let root = Path::new("/served");
        assert_eq!(below(root, "incoming/u1").expect("a path"), Path::new("/served/incoming/u1"));
        for name in ["", "/etc/passwd", "../secret", "a/../../secret", "."] {
            assert!(below(root, name).is_err(), "{name}");
        }
    }

    #[test]
    fn lines_between_the_ends_are_json_or_errors() {
        let read = |text: &str| receive(&mut text.as_bytes());
        assert_eq!(read("").expect("an end"), None);
        assert_eq!(read("{\"bytes\":5}\n{}").expect("a line"), Some(json!({"bytes": 5})));
        assert!(read("{\"bytes\":").is_err());
        let error = answer_of(&mut "{\"error\":\"no such file\"}\n".as_bytes());
        assert!(error.is_err_and(|error| error.to_string().ends_with("no such file")));
        assert!(answer_of(&mut "".as_bytes()).is_err());
    }
}
