//! nginx, the server of `http` and `https`.

use headroom_lab_host::command::Command;
use headroom_lab_host::error::Result;
use headroom_lab_host::host::ServerSpec;
use headroom_lab_host::programs::Program;
use headroom_lab_host::role::Role;

use super::Site;
use super::tls::CIPHER;

pub(super) const NGINX: Program =
    Program::new("nginx", "nginx-light", &["-v"]).only_on(Role::Server);

pub(super) fn server(site: &Site<'_>, tls: bool) -> Result<ServerSpec> {
    let dir = site.dir.display();
    let files = site.files.display();
    let listen =
        format!("{}:{}{}", site.server_host(), site.server.port(), if tls { " ssl" } else { "" });
    let tls = if tls {
        format!(
            "    ssl_certificate {};\n    ssl_certificate_key {};\n    ssl_protocols TLSv1.3;\n    \
             ssl_conf_command Ciphersuites {CIPHER};\n    ssl_session_cache off;\n    ssl_session_tickets off;\n",
            site.credential("server.crt"),
            site.credential("server.key"),
        )
    } else {
        String::new()
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
{tls}  }}
}}
",
        port = site.server.port(),
    );
    let configuration = site.write("nginx.conf", &configuration)?;
    let arguments = ["-p", &dir.to_string(), "-e", "stderr", "-c", &configuration];
    let private_files = vec![(site.credential_path("resolv.conf"), "/etc/resolv.conf")];
    Ok(ServerSpec { private_files, ..ServerSpec::new(Command::new(NGINX, arguments)) })
}
