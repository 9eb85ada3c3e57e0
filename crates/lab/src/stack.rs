//! The grammar of a stack: the application first, then what wraps it:
//! `sftp/tls/esp`. A label after `#` tells two copies of one stack apart.

use std::fmt;

use crate::layer::{self, Layer};
use crate::parts::Program;
use crate::service::{self, Service};

/// One way to secure a transfer (or not to): an application and what wraps it, as
/// named in a plan.
#[derive(Clone)]
pub struct Stack {
    /// The name as the plan writes it, label included: the key in all results.
    pub name: String,
    /// The application.
    pub service: &'static dyn Service,
    /// What wraps it, innermost first.
    pub layers: Vec<&'static dyn Layer>,
}

impl Stack {
    /// Reads a stack's name.
    ///
    /// # Errors
    /// A sentence that names the unknown part and lists the known ones.
    pub fn parse(name: &str) -> Result<Self, String> {
        let (path, label) = name.split_once('#').unwrap_or((name, ""));
        if !label.chars().all(|c| c.is_ascii_alphanumeric()) {
            return Err(format!("`{name}`: a label has letters and digits only"));
        }
        let mut parts = path.split('/');
        let application = parts.next().unwrap_or_default();
        let service = service::find(application).ok_or_else(|| {
            format!("there is no stack `{application}`; there are {}", names().join(", "))
        })?;
        let layers = parts
            .map(|name| {
                layer::find(name).ok_or_else(|| {
                    let known: Vec<&str> = layer::ALL.iter().map(|layer| layer.name()).collect();
                    format!("there is no layer `{name}`; there are {}", known.join(", "))
                })
            })
            .collect::<Result<Vec<_>, String>>()?;
        match layer::objection(service, &layers) {
            None => Ok(Self { name: name.to_owned(), service, layers }),
            Some(why) => Err(format!("`{name}` makes no sense: {why}")),
        }
    }

    /// What it is compared with by default, best first: itself without its
    /// outermost layer, then the bare application; for that, what it says.
    pub fn baselines(&self) -> Vec<String> {
        let application = self.service.name();
        match self.layers.split_last() {
            None => self.service.baseline().map(str::to_owned).into_iter().collect(),
            Some((_, [])) => vec![application.to_owned()],
            Some((_, inner)) => {
                let inner = inner.iter().map(|layer| layer.name());
                let within: Vec<&str> = std::iter::once(application).chain(inner).collect();
                vec![within.join("/"), application.to_owned()]
            }
        }
    }

    /// Whether nobody on the wire is to read the file: any layer encrypts.
    pub fn is_secured(&self) -> bool {
        self.service.secured() || !self.layers.is_empty()
    }

    /// Every program that it needs on this machine.
    pub fn programs(&self) -> impl Iterator<Item = Program> {
        let layers = self.layers.iter().flat_map(|layer| layer.needs());
        self.service.programs().iter().chain(layers).copied()
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stack").field(&self.name).finish()
    }
}

/// The names of all applications.
pub fn names() -> Vec<&'static str> {
    service::ALL.iter().map(|service| service.name()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn application_layers_and_label() {
        assert_eq!(Stack::parse("ftp").map(|s| s.service.name()), Ok("ftp"));
        assert_eq!(Stack::parse("ftp#again").map(|s| s.name), Ok("ftp#again".to_owned()));
        assert!(Stack::parse("gopher").is_err_and(|e| e.contains("ftp, ftps")));
        let stack = Stack::parse("sftp/tls/strongswan#2").expect("two layers");
        let names: Vec<&str> = stack.layers.iter().map(|layer| layer.name()).collect();
        assert_eq!(names, ["tls", "strongswan"]);
        assert_eq!(stack.baselines(), ["sftp/tls", "sftp"]);
        assert_eq!(Stack::parse("ftps").map(|s| s.baselines()), Ok(vec!["ftp".to_owned()]));
        let secured = |name| Stack::parse(name).map(|stack| stack.is_secured());
        assert_eq!((secured("ftp"), secured("ftp/openvpn")), (Ok(false), Ok(true)));
        assert!(Stack::parse("").is_err());
        for (name, why) in [
            ("sftp/tsl", "no layer `tsl`; there are tls, wireguard, strongswan, openvpn"),
            ("sftp/", "no layer ``"),
            ("ftp/tls", "data connections of its own"),
            ("ftps/wireguard/tls", "data connections of its own"),
            ("sftp/wireguard/tls", "`wireguard` sends UDP packets and `tls` carries a TCP"),
            ("https/openvpn/tls/strongswan", "https/tls/openvpn, would do"),
            ("http/tls/tls/tls/tls/tls/tls/tls/tls/tls", "more than 8 layers"),
        ] {
            let error = Stack::parse(name).expect_err(name);
            assert!(error.contains(why), "{error}");
        }
        for name in ["ftp/wireguard", "ftps/openvpn", "https/tls/tls", "sftp/wireguard/openvpn"] {
            assert!(Stack::parse(name).is_ok(), "{name}");
        }
        assert!(Stack::parse("http#x; include y").is_err_and(|e| e.contains("letters and digits")));
    }
}
