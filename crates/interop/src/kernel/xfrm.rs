//! Writes a case as `ip xfrm` commands.

use headroom_ipsec::spec::Mode;
use headroom_suite::{Aead, Cipher, Mac, Suite};

use crate::case::{Association, Case, Family, Guard, Side, UDP_PORT};
use crate::hex;

/// The protected traffic. Never all: neighbour discovery and the outer UDP must not fall
/// under the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Traffic {
    /// ICMP.
    Echoes,
    /// TCP.
    Tcp,
}

/// Returns the shell line that installs a case and removes others. `first` is the next
/// sequence number in both directions.
pub(super) fn line(case: &Case, first: u64, traffic: Traffic) -> String {
    let mut lines = vec!["xfrm state flush".to_owned(), "xfrm policy flush".to_owned()];
    for from in [Side::Ours, Side::Theirs] {
        let associations = case.associations(from);
        lines.extend(associations.iter().map(|sa| state(case, sa, first - 1)));
        lines.push(policy(case, from, &associations, traffic));
    }
    // starting a program takes long where a machine is emulated: one for all
    format!(r#"printf "%b\n" "{}" | /ip -batch -"#, lines.join("\\n"))
}

fn other(side: Side) -> Side {
    if side == Side::Ours { Side::Theirs } else { Side::Ours }
}

fn state(case: &Case, sa: &Association, used: u64) -> String {
    let (source, destination) = (case.outer_address(sa.from), case.outer_address(other(sa.from)));
    let (protocol, algorithms) = match &sa.guard {
        Guard::Esp(suite, key, mac_key) => ("esp", esp(*suite, key, mac_key)),
        Guard::Ah(algorithm, key) => ("ah", mac(*algorithm, key)),
    };
    let mut line = format!(
        "xfrm state add src {source} dst {destination} proto {protocol} spi {:#x} reqid {} mode {}",
        sa.spi,
        reqid(sa),
        mode(sa.mode),
    );
    let mut flags = String::new();
    // Linux pads AH over IPv4 to 8 bytes unless told otherwise
    if protocol == "ah" && case.outer == Family::V4 && case.ah_alignment == 4 {
        flags += " align4";
    }
    if case.inner != case.outer {
        flags += " af-unspec";
    }
    if case.extended {
        flags += " esn";
        let (high, low) = (used >> 32, used & 0xffff_ffff);
        line += &format!(
            " replay-window 128 replay-seq {low:#x} replay-oseq {low:#x} replay-seq-hi {high:#x} replay-oseq-hi {high:#x}"
        );
    } else {
        line += " replay-window 32";
    }
    if !flags.is_empty() {
        line += &format!(" flag{flags}");
    }
    line += &algorithms;
    if case.udp {
        let any = if case.outer == Family::V4 { "0.0.0.0" } else { "::" };
        line += &format!(" encap espinudp {UDP_PORT} {UDP_PORT} {any}");
    }
    line
}

fn policy(case: &Case, from: Side, associations: &[Association], traffic: Traffic) -> String {
    let way = if from == Side::Ours { "in" } else { "out" };
    let bits = if case.inner == Family::V4 { 32 } else { 128 };
    let protocol = match (traffic, case.inner) {
        (Traffic::Tcp, _) => 6,
        (Traffic::Echoes, Family::V4) => 1,
        (Traffic::Echoes, Family::V6) => 58,
    };
    let mut line = format!(
        "xfrm policy add src {}/{bits} dst {}/{bits} proto {protocol} dir {way}",
        case.inner_address(from),
        case.inner_address(other(from)),
    );
    for sa in associations {
        let protocol = if matches!(sa.guard, Guard::Esp(..)) { "esp" } else { "ah" };
        line += &format!(
            " tmpl src {} dst {} proto {protocol} reqid {} mode {}",
            case.outer_address(from),
            case.outer_address(other(from)),
            reqid(sa),
            mode(sa.mode),
        );
    }
    line
}

fn reqid(sa: &Association) -> u32 {
    sa.spi & 0xff
}

fn mode(mode: Mode) -> &'static str {
    if mode == Mode::Transport { "transport" } else { "tunnel" }
}

fn esp(suite: Suite, key: &[u8], mac_key: &[u8]) -> String {
    let key = hex(key);
    match suite {
        Suite::Aead(Aead::ChaCha20Poly1305) => {
            format!(" aead 'rfc7539esp(chacha20,poly1305)' 0x{key} 128")
        }
        Suite::Aead(_) => format!(" aead 'rfc4106(gcm(aes))' 0x{key} 128"),
        Suite::Separate(cipher, algorithm) => {
            let cipher = match cipher {
                Cipher::Null => "'ecb(cipher_null)' ''".to_owned(),
                Cipher::DesCbc => format!("'cbc(des)' 0x{key}"),
                Cipher::TripleDesCbc => format!("'cbc(des3_ede)' 0x{key}"),
                Cipher::Aes128Cbc | Cipher::Aes192Cbc | Cipher::Aes256Cbc => {
                    format!("'cbc(aes)' 0x{key}")
                }
            };
            format!(" enc {cipher}{}", mac(algorithm, mac_key))
        }
    }
}

fn mac(mac: Mac, key: &[u8]) -> String {
    let name = match mac {
        Mac::HmacMd5 => "md5",
        Mac::HmacSha1 => "sha1",
        Mac::HmacSha256 => "sha256",
        Mac::HmacSha384 => "sha384",
        Mac::HmacSha512 => "sha512",
    };
    format!(" auth-trunc 'hmac({name})' 0x{} {}", hex(key), mac.icv_len() * 8)
}
