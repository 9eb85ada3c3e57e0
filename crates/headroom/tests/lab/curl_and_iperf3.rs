//! curl and iperf3 through `headroom tunnel`, in both modes and families and with
//! each way of protection, while everything that passes the link is looked at.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use crate::common::gateways::{Site, keygen, link, listen, text};
use crate::common::{Ground, part, wait_for};
use headroom_packet::ip::Ip;
use headroom_testing::{address, privileged};
use serde_json::Value;

/// Bytes that curl fetches.
const FILE: usize = 1 << 20;
/// Bytes that iperf3 sends by TCP, each way.
const STREAM: u64 = 2 << 20;
/// Bytes that iperf3 sends in datagrams that are longer than a link's packet.
const DATAGRAMS: u64 = 1_000_000;
const DATAGRAM: u64 = 4000;
/// Longer than anything here takes, even on a busy machine.
const SECONDS: &str = "120";

const TUNNEL: [Shape; 2] = [Shape { tunnel: true, v6: false }, Shape { tunnel: true, v6: true }];
const TRANSPORT: [Shape; 2] =
    [Shape { tunnel: false, v6: false }, Shape { tunnel: false, v6: true }];

#[test]
fn through_esp() {
    through(&["--protocol", "esp"], "IP protocol 50");
}

#[test]
fn through_esp_in_udp() {
    through(&["--protocol", "esp", "--udp"], "UDP port 4500");
}

#[test]
fn through_ah_over_esp() {
    through(&["--protocol", "ah+esp"], "IP protocol 51 over 50");
}

#[test]
fn through_q_esp() {
    through(&["--protocol", "qesp"], "IP protocol 253");
}

/// What the others rely on: the same traffic is found where nothing protects it.
#[test]
fn without_a_tunnel_all_of_it_is_seen() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("in-clear");
    for shape in TRANSPORT {
        let sites = link(&ground);
        let trace = Trace::of(&ground, &sites, shape);
        let seen: Vec<_> = trace.clear.iter().filter(|(_, times)| **times > 0).collect();
        assert_eq!(seen.len(), trace.clear.len(), "{seen:?}");
        // those that lie in two segments are not found
        let pieces = trace.clear[&Clear::File];
        assert!(pieces > FILE / PIECE * 9 / 10, "{pieces} of {} pieces", FILE / PIECE);
        let in_clear = ["IP protocol 6", "IP protocol 17"].map(|kind| trace.bytes_of(kind));
        assert!(in_clear.iter().all(|&bytes| bytes as u64 > DATAGRAMS), "{:?}", trace.kinds);
    }
}

/// Tries every mode and family with the arguments of `keygen`; all of it must be
/// packets of one kind.
fn through(protection: &[&str], kind: &str) {
    if !privileged() {
        return;
    }
    for shape in TUNNEL.into_iter().chain(TRANSPORT) {
        let ground = Ground::new("through");
        let sites = link(&ground);
        let ends = [0, 1].map(|n| address(n, shape.v6));
        let nets = [0, 1].map(|n| shape.network(n));
        let mut words = protection.to_vec();
        if shape.tunnel {
            words.extend(["--local-net", &nets[0], "--remote-net", &nets[1]]);
        }
        let files = keygen(&ground, [&ends[0], &ends[1]], &words);
        for (n, (site, file)) in sites.iter().zip(&files).enumerate() {
            if shape.tunnel {
                let configuration = std::fs::read_to_string(file).expect("a configuration");
                let len = if shape.v6 { 64 } else { 24 };
                let own = format!("address = [\"{}/{len}\"]\n", shape.address(n));
                std::fs::write(file, own + &configuration).expect("written");
            }
            site.up(file);
        }
        let trace = Trace::of(&ground, &sites, shape);
        for (what, times) in &trace.clear {
            assert_eq!(*times, 0, "{what:?} was readable with {words:?}, {shape:?}");
        }
        let others: Vec<_> = trace
            .kinds
            .keys()
            .filter(|other| *other != kind && !UNPROTECTED.contains(&other.as_str()))
            .collect();
        assert!(others.is_empty(), "{others:?} on the link with {words:?}, {shape:?}");
        let least = FILE + STREAM as usize; // the file, and what iperf3's client received
        assert!(trace.bytes_of(kind) > least, "{:?} with {words:?}, {shape:?}", trace.kinds);
        println!("{words:?}, {shape:?}: {:?}", trace.kinds);
        for site in &sites {
            site.must(&["down"]);
        }
    }
}

/// What hosts on one link say to each other whatever is protected.
const UNPROTECTED: [&str; 3] = ["ARP", "neighbour discovery", "multicast listeners"];

/// The mode, and the family of the addresses inside and outside.
#[derive(Debug, Clone, Copy)]
struct Shape {
    tunnel: bool,
    v6: bool,
}

impl Shape {
    /// The address of a host that the other one talks to.
    fn address(self, host: usize) -> String {
        match (self.tunnel, self.v6) {
            (false, v6) => address(host, v6),
            (true, false) => format!("10.{}.0.1", host + 1),
            (true, true) => format!("fd00:{}::1", host + 1),
        }
    }

    fn network(self, host: usize) -> String {
        if self.v6 { format!("fd00:{}::/64", host + 1) } else { format!("10.{}.0.0/24", host + 1) }
    }
}

/// What was on the link while curl and iperf3 did their work.
struct Trace {
    /// Bytes of frames of each kind.
    kinds: BTreeMap<String, usize>,
    /// How often each thing was readable.
    clear: BTreeMap<Clear, usize>,
}

impl Trace {
    /// Fetches a file and sends by TCP, both ways, and by UDP, and looks at the link.
    fn of(ground: &Ground, sites: &[Site; 2], shape: Shape) -> Self {
        let to: IpAddr = shape.address(1).parse().expect("an address");
        let mut content = vec![0; FILE];
        let mut random = std::fs::File::open("/dev/urandom").expect("random bytes");
        random.read_exact(&mut content).expect("random bytes");
        let capture = listen(sites);
        fetch(ground, sites, to, &content);
        let bytes = STREAM.to_string();
        let report = iperf3(sites, to, &["--bytes", &bytes]);
        let [sent, received] = both_sums(&report);
        assert!(sent >= STREAM && received > 0, "{sent} sent, {received} received: {report}");
        let report = iperf3(sites, to, &["--bytes", &bytes, "--reverse"]);
        let [_, received] = both_sums(&report);
        assert!(received >= STREAM, "{received} received: {report}");
        let (bytes, length) = (DATAGRAMS.to_string(), DATAGRAM.to_string());
        // its server's buffer has no room for all of them at once
        let paced = ["--udp", "--bitrate", "50M", "--length", &length, "--bytes", &bytes];
        let report = iperf3(sites, to, &paced);
        let [sent, lost] = ["packets", "lost_packets"]
            .map(|key| report["end"]["sum"][key].as_u64().unwrap_or_else(|| panic!("{report}")));
        assert!(sent >= DATAGRAMS / DATAGRAM && lost < sent, "{report}");
        let frames = capture.finish();
        Self { kinds: kinds_of(&frames), clear: Pieces::new(&content).found_in(&frames) }
    }

    fn bytes_of(&self, kind: &str) -> usize {
        self.kinds.get(kind).copied().unwrap_or_default()
    }
}

/// Fetches `content` by HTTP.
fn fetch(ground: &Ground, sites: &[Site; 2], to: IpAddr, content: &[u8]) {
    const PORT: u16 = 8080;
    std::fs::write(ground.path(NAME), content).expect("the file to fetch");
    let dir = ground.path("");
    let dir = text(&dir);
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|of| format!("  {of}_temp_path {dir}/tmp;\n"))
        .concat();
    let configuration = format!(
        "user root;\ndaemon off;\nmaster_process off;\npid {dir}/pid;\nerror_log stderr;\n\
         events {{}}\nhttp {{\n  access_log off;\n{temporary}  server {{\n    listen {PORT};\n    \
         listen [::]:{PORT} ipv6only=on;\n    root {dir};\n  }}\n}}\n"
    );
    let configuration = ground.write("nginx.conf", &configuration);
    let mut nginx = part("nginx");
    nginx.args(["-p", dir, "-e", "stderr", "-c", text(&configuration)]);
    let _server = Server::start(&sites[1], nginx);
    wait_for("nginx", || sites[1].run(move || TcpStream::connect((to, PORT)).is_ok()));
    let fetched = ground.path("fetched");
    let host = if to.is_ipv6() { format!("[{to}]") } else { to.to_string() };
    let mut curl = part("curl");
    curl.args(["--disable", "--noproxy", "*", "--silent", "--show-error", "--fail"]).args([
        "--globoff",
        "--output",
        text(&fetched),
        &format!("http://{host}:{PORT}/{NAME}"),
    ]);
    run(&sites[0], &curl);
    let fetched = std::fs::read(&fetched).expect("the fetched file");
    assert!(fetched == content, "what curl fetched is not what there was");
}

/// Runs iperf3 between the hosts and gives what its client reports.
fn iperf3(sites: &[Site; 2], to: IpAddr, words: &[&str]) -> Value {
    let mut server = part("iperf3");
    server.args(["--server", "--one-off", "--forceflush"]).stdout(Stdio::piped());
    let mut server = Server::start(&sites[1], server);
    let said = BufReader::new(server.0.stdout.take().expect("its output"));
    let listens = said.lines().map_while(Result::ok).any(|line| line.contains("listening"));
    assert!(listens, "the server of iperf3 has ended");
    let mut client = part("iperf3");
    client.args(["--json", "--repeating-payload", "--client", &to.to_string()]).args(words);
    serde_json::from_str(&run(&sites[0], &client)).expect("JSON")
}

/// Bytes sent and received.
fn both_sums(report: &Value) -> [u64; 2] {
    ["sum_sent", "sum_received"]
        .map(|sum| report["end"][sum]["bytes"].as_u64().unwrap_or_else(|| panic!("{report}")))
}

/// Runs a program to its end, which must be a good one, and gives what it printed.
fn run(site: &Site, program: &Command) -> String {
    let mut command = Command::new("timeout");
    command.arg(SECONDS).arg(program.get_program()).args(program.get_args());
    command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdin(Stdio::null());
    let output = site.run(move || command.output().expect("the program starts"));
    let [said, complained] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{program:?}, {}: {said}{complained}", output.status);
    said
}

/// A program that is killed when dropped.
struct Server(Child);

impl Server {
    fn start(site: &Site, mut command: Command) -> Self {
        command.stdin(Stdio::null());
        Self(site.run(move || command.spawn().expect("the server starts")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Bytes of frames by what a router would call them; fragments are what their
/// datagram is.
fn kinds_of(frames: &[Vec<u8>]) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    let mut datagrams: HashMap<(IpAddr, u32), String> = HashMap::new();
    for frame in frames {
        let (header, packet) = frame.split_at(14);
        let kind = match (header[12], header[13]) {
            (0x08, 0x06) => "ARP".to_owned(),
            (0x08, 0x00) | (0x86, 0xdd) => {
                let ip = Ip::parse(packet).expect("an IP packet");
                let datagram = ip.fragment().map(|fragment| (ip.source(), fragment.id));
                if ip.is_later_fragment() {
                    let first = datagram.and_then(|datagram| datagrams.get(&datagram));
                    first.cloned().unwrap_or_else(|| "a fragment without its first".to_owned())
                } else {
                    let kind = kind_of(&ip);
                    datagrams.extend(datagram.map(|datagram| (datagram, kind.clone())));
                    kind
                }
            }
            other => format!("EtherType {other:x?}"),
        };
        *kinds.entry(kind).or_default() += frame.len();
    }
    kinds
}

fn kind_of(ip: &Ip<'_>) -> String {
    match (ip.upper(), ip.payload()) {
        (17, _) if ip.ports() == Some((4500, 4500)) => "UDP port 4500".to_owned(),
        (51, [next, ..]) => format!("IP protocol 51 over {next}"),
        (58, [133..=137, ..]) => "neighbour discovery".to_owned(),
        (58, [130..=132 | 143, ..]) => "multicast listeners".to_owned(),
        (upper, _) => format!("IP protocol {upper}"),
    }
}

/// What nobody must be able to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Clear {
    Request,
    Answer,
    File,
    Parameters,
    Stream,
}

/// The name of the file that is fetched.
const NAME: &str = "nobody-on-the-way-reads-this";
/// Bytes that are looked for: what is longer is in clear where its beginning is, a
/// file where any of its pieces is.
const PIECE: usize = 16;

/// The beginnings of what must not be read, and all of the file.
struct Pieces {
    all: HashMap<[u8; PIECE], Clear>,
    /// Whether any begins with these three bytes: most places need no other look.
    begin: Vec<bool>,
}

impl Pieces {
    fn new(content: &[u8]) -> Self {
        let request = format!("GET /{NAME}");
        let known: [(&[u8], Clear); 4] = [
            (request.as_bytes(), Clear::Request),
            (b"HTTP/1.1 200 OK\r\n", Clear::Answer),
            (b"\"client_version\":", Clear::Parameters),
            (b"01234567890123456789", Clear::Stream),
        ];
        let file = content.chunks_exact(PIECE).map(|piece| (piece, Clear::File));
        let mut pieces = Self { all: HashMap::new(), begin: vec![false; 1 << 24] };
        for (bytes, what) in known.into_iter().chain(file) {
            let piece = *bytes.first_chunk().expect("a piece");
            pieces.begin[beginning(&piece)] = true;
            pieces.all.insert(piece, what);
        }
        pieces
    }

    fn found_in(&self, frames: &[Vec<u8>]) -> BTreeMap<Clear, usize> {
        let mut found: BTreeMap<Clear, usize> = self.all.values().map(|&what| (what, 0)).collect();
        for place in frames.iter().flat_map(|frame| frame.windows(PIECE)) {
            let place = place.first_chunk().expect("a window of this length");
            let what = self.begin[beginning(place)].then(|| self.all.get(place)).flatten();
            if let Some(what) = what {
                *found.entry(*what).or_default() += 1;
            }
        }
        found
    }
}

fn beginning(piece: &[u8; PIECE]) -> usize {
    usize::from(piece[0]) << 16 | usize::from(piece[1]) << 8 | usize::from(piece[2])
}
