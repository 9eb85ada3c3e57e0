//! nginx, the server of `http` and of all variants of `https`.

use headroom_lab_host::command::Command;
use headroom_lab_host::error::Result;
use headroom_lab_host::host::{Ready, ServerSpec};
use headroom_lab_host::programs::Program;
use headroom_lab_host::role::Role;

use super::Site;
use super::tls::{Resumption, Tls};

pub(super) const NGINX: Program =
    Program::new("nginx", "nginx-light", &["-v"]).only_on(Role::Server);

/// What it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// HTTP/1.1 in clear.
    Http,
    /// HTTP/1.1 over TLS.
    Https,
    /// HTTP/2 over TLS.
    Http2,
    /// HTTP/3 over QUIC.
    Http3,
}

impl Protocol {
    /// Parameters of `listen`.
    fn listen(self) -> &'static str {
        match self {
            Self::Http => "",
            Self::Https => " ssl",
            // 1.25 and later have a directive of their own and warn, earlier ones know only this
            Self::Http2 => " ssl http2",
            // its default buffer, 64 KiB, is all that a stream has in flight
            Self::Http3 => " quic reuseport",
        }
    }

    /// Directives of the server.
    fn directives(self) -> &'static str {
        match self {
            Self::Http | Self::Https | Self::Http2 => "",
            // its default buffer, 64 KiB, is all that a stream has in flight
            Self::Http3 => "    http3 on;\n    quic_gso on;\n    http3_stream_buffer_size 16m;\n",
        }
    }
}

/// Who encrypts the TLS records that it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Records {
    /// OpenSSL: it copies files to encrypt them.
    ByOpenssl,
    /// The kernel, as soon as OpenSSL has agreed on keys: files are sent by sendfile(2).
    ByKernel,
}

impl Records {
    /// Directives of the server.
    fn directives(self) -> &'static str {
        match self {
            Self::ByOpenssl => "",
            Self::ByKernel => "    ssl_conf_command Options KTLS;\n",
        }
    }
}

/// Directives about sessions to resume.
fn sessions(resumption: Resumption) -> &'static str {
    match resumption {
        // the client asks for the head of a file, which is not there yet if it is to be uploaded
        Resumption::Session => {
            "    ssl_session_cache none;\n    ssl_session_tickets on;\n    log_not_found off;\n"
        }
        Resumption::Off | Resumption::DataConnections => {
            "    ssl_session_cache off;\n    ssl_session_tickets off;\n"
        }
    }
}

pub(super) fn server(site: &Site<'_>, protocol: Protocol) -> Result<ServerSpec> {
    server_with(site, protocol, &Tls::MODERN, Records::ByOpenssl)
}

/// The same with the TLS that a stack chooses, where the protocol has any.
pub(super) fn server_with(
    site: &Site<'_>,
    protocol: Protocol,
    tls: &Tls,
    records: Records,
) -> Result<ServerSpec> {
    let dir = site.dir.display();
    let files = site.files.display();
    let listen = format!("{}:{}{}", site.server_host(), site.server.port(), protocol.listen());
    let directives = protocol.directives();
    let tls = if protocol == Protocol::Http {
        String::new()
    } else {
        let [key, certificate] = tls.server_files(site)?;
        format!(
            "    ssl_certificate {};\n    ssl_certificate_key {};\n    ssl_protocols TLSv1.3;\n    \
             ssl_conf_command Ciphersuites {};\n{}{}",
            certificate.display(),
            key.display(),
            tls.cipher,
            sessions(tls.resumption),
            records.directives(),
        )
    };
    // Uploads wait in `incoming`, on the file system they end up on, so that
    // the last step is a rename and not a copy.
    let configuration = format!(
        "user root;
daemon off;
worker_processes auto;
pid {dir}/pid;
error_log stderr warn;
events {{ worker_connections 256; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  client_max_body_size 0;
  client_body_buffer_size 512k;
  client_body_temp_path {files}/incoming/.{port};
  proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi;
  scgi_temp_path {dir}/scgi;
  default_type application/octet-stream;
  server {{
    listen {listen};
    root {files};
    keepalive_requests 1000000;
    dav_methods PUT;
{directives}{tls}  }}
}}
",
        port = site.server.port(),
    );
    let configuration = site.write("nginx.conf", &configuration)?;
    let arguments = ["-p", &dir.to_string(), "-e", "stderr", "-c", &configuration];
    let private_files = vec![(site.credential_path("resolv.conf"), "/etc/resolv.conf")];
    let ready = if protocol == Protocol::Http3 { Ready::Udp } else { Ready::Tcp };
    Ok(ServerSpec { private_files, ready, ..ServerSpec::new(Command::new(NGINX, arguments)) })
}
