//! The applications under test, one file each behind one trait. To add one,
//! write its file and name it in [`ALL`].

mod browser;
mod definition;
mod fetch;
mod ftp;
mod ftps;
mod headroom;
mod http;
mod http3;
mod https;
mod iperf3;
mod ktls;
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
mod video;
mod webrtc;

use crate::catalogue::Catalogue;

pub use definition::{Application, ClientReport, Invocation, SessionCount};
pub(crate) use ktls::is_supported as kernel_encrypts_tls;
pub(crate) use site::{SSH_KEYGEN, Site, write_credentials};
pub(crate) use tls::CIPHER;

/// All applications.
pub static ALL: Catalogue<dyn Application> = Catalogue {
    sort: "application",
    example: "headroom(streams)",
    entries: &[
        ftp::ENTRY,
        ftps::ENTRY,
        http::ENTRY,
        https::ENTRY,
        sftp::ENTRY,
        scp::ENTRY,
        rsync::ENTRY,
        headroom::ENTRY,
        webrtc::ENTRY,
        qcp::ENTRY,
        uftp::ENTRY,
        ssh::ENTRY,
        iperf3::ENTRY,
        udp::ENTRY,
        rtp::ENTRY,
        video::ENTRY,
    ],
};
