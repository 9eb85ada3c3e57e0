//! The applications under test, one file each behind one trait. To add one,
//! write its file and name it in [`ALL`].

mod definition;
mod fetch;
mod film;
mod ftp;
mod ftps;
mod headroom;
mod http;
mod https;
mod iperf3;
mod nginx;
mod openssh;
mod pure_ftpd;
mod qcp;
mod rsync;
mod rtp;
mod scp;
mod sftp;
mod site;
mod ssh;
mod tls;
mod udp;
mod uftp;

use crate::suggest::suggestion;

pub use definition::{ClientReport, Invocation, Service};
pub(crate) use site::{SSH_KEYGEN, Site, write_credentials};
pub(crate) use tls::CIPHER;

/// All applications.
pub const ALL: &[&dyn Service] = &[
    &ftp::Ftp,
    &ftps::Ftps::MODERN,
    &http::Http,
    &https::Https,
    &sftp::Sftp,
    &scp::Scp,
    &rsync::Rsync,
    &headroom::Headroom::OWN,
    &headroom::Headroom::STREAMS,
    &qcp::Qcp,
    &uftp::Uftp { encrypted: true },
    &uftp::Uftp { encrypted: false },
    &ssh::Ssh,
    &iperf3::Iperf3,
    &udp::Udp,
    &rtp::Rtp,
    &film::Film,
];

/// The application of this name, or as the words in brackets behind it want it.
///
/// # Errors
/// A sentence that names what is unknown and what is known.
pub fn parse(written: &str) -> std::result::Result<&'static dyn Service, String> {
    if let Some(service) = ALL.iter().copied().find(|service| service.name() == written) {
        return Ok(service);
    }
    let (name, words) = match written.split_once('(') {
        None => (written, None),
        Some((name, rest)) => {
            let words = rest.strip_suffix(')').ok_or_else(|| {
                format!("`{written}`: words stand in brackets, as in `headroom(streams)`")
            })?;
            (name, Some(words))
        }
    };
    let found = ALL.iter().copied().find(|service| service.name() == name);
    match (found, words) {
        (Some(service), Some(words)) => {
            service.with(&words.split(',').map(str::trim).collect::<Vec<_>>())
        }
        _ => {
            let names: Vec<&str> = ALL.iter().map(|service| service.name()).collect();
            let meant = suggestion(name, names.iter().copied());
            Err(format!("there is no stack `{written}`{meant}; there are {}", names.join(", ")))
        }
    }
}
