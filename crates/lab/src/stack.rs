//! The grammar of a stack, which is an application with its layers: the application first,
//! then what wraps it, as in `sftp/tls/esp`. Options in parentheses configure an application or
//! a layer: `ftp/esp(transport)`. A label after `#` tells two copies of one stack apart.

use std::fmt;

use headroom_lab_host::error::{Error, Result as HostResult};
use headroom_lab_host::programs::Program;
use headroom_lab_host::testbed::Family;
use headroom_lab_results::analysis::advise::LossAnswer;

use crate::application::{self, Application};
use crate::catalogue::Chosen;
use crate::custom::Custom;
use crate::layer::{self, Layer, inner_mtu};
use crate::properties::Properties;
use crate::workload::WorkloadKind;

/// An application with its layers, as a plan names it: one way to secure a transfer, or not
/// to.
#[derive(Clone)]
pub struct Stack {
    /// The key in all results, label included: options in a fixed order,
    /// without those that are default.
    pub name: String,
    /// The application.
    pub application: Chosen<dyn Application>,
    /// Its layers, innermost first.
    pub layers: Vec<Chosen<dyn Layer>>,
}

impl Stack {
    /// Reads a stack's name.
    ///
    /// # Errors
    /// A sentence that names the unknown part and lists the known ones.
    pub fn parse(name: &str) -> Result<Self, String> {
        Self::parse_with(name, &Custom::default())
    }

    /// Reads the name of a stack that may have applications and layers of a plan.
    ///
    /// # Errors
    /// As [`Stack::parse`].
    pub fn parse_with(name: &str, custom: &Custom) -> Result<Self, String> {
        let (path, label) = name.split_once('#').unwrap_or((name, ""));
        if !label.chars().all(|c| c.is_ascii_alphanumeric()) {
            return Err(format!("`{name}`: a label has letters and digits only"));
        }
        let mut parts = path.split('/');
        let application = parts.next().unwrap_or_default();
        let application = application::ALL.parse_with(custom.applications(), application)?;
        let layer = |written| layer::ALL.parse_with(custom.layers(), written);
        let layers = parts.map(layer).collect::<Result<Vec<_>, String>>()?;
        match objection(&application, &layers) {
            None => {
                let path = path_of(&application, &layers);
                let name = if label.is_empty() { path } else { format!("{path}#{label}") };
                Ok(Self { name, application, layers })
            }
            Some(why) => Err(format!("`{name}` is invalid: {why}")),
        }
    }

    /// Lists the stacks that it is compared with by default, best first: itself without its
    /// outermost layer, then the bare application; for that, its own baselines.
    pub fn baselines(&self) -> Vec<String> {
        let application = self.application.title();
        match self.layers.split_last() {
            None => self.application.baselines(),
            Some((_, [])) => vec![application],
            Some((_, inner)) => vec![path_of(&self.application, inner), application],
        }
    }

    /// Whether it can do that: its application can, or a layer has something to set up.
    pub fn accepts(&self, kind: WorkloadKind) -> bool {
        match kind {
            WorkloadKind::Setup => self.layers.iter().any(|layer| layer.negotiates()),
            _ => self.application.accepts(kind),
        }
    }

    /// Whether nobody on the wire is to read the file: any layer encrypts.
    pub fn is_secured(&self) -> bool {
        self.application.secured() || self.layers.iter().any(|layer| layer.encrypts())
    }

    /// Properties that a user may need; none: an application or layer states none.
    pub fn properties(&self) -> Option<Properties> {
        let layers = self.layers.iter().map(|layer| layer.properties());
        layers.fold(self.application.properties(), |inner, layer| Some(inner?.inside(layer?)))
    }

    /// How its sender answers random loss: known where its files travel over TCP of the host or
    /// by a sender that keeps its rate, directly or in layers that carry its packets one by one.
    pub fn loss_answer(&self) -> LossAnswer {
        let carries_packets = |layer: &Chosen<dyn Layer>| {
            layer.kind().is_network() && layer.name() != "openvpn" || layer.name() == "tls"
        };
        if !self.layers.iter().all(carries_packets) {
            LossAnswer::Unknown
        } else if self.application.keeps_rate() {
            LossAnswer::KeepsRate
        } else if self.application.over_datagrams() {
            LossAnswer::Unknown
        } else {
            LossAnswer::Cubic
        }
    }

    /// Whether the file is to be seen on the wire as it is.
    pub(crate) fn shows_content(&self) -> bool {
        !self.is_secured() && !self.application.obfuscates()
    }

    /// Checks that packets fit through all layers, and returns their size inside the
    /// innermost one, in bytes.
    ///
    /// # Errors
    /// A sentence that names the layer that leaves too little.
    pub(crate) fn innermost_mtu(&self, link_mtu: u32, family: Family) -> Result<u32, String> {
        let inner = |mtu, layer: &Chosen<dyn Layer>| inner_mtu(layer, &self.name, mtu, family);
        self.layers.iter().rev().try_fold(link_mtu, inner)
    }

    /// Refuses what this machine cannot do, whatever programs it has.
    ///
    /// # Errors
    /// [`headroom_lab_host::Error::Missing`]: what its application or its layers lack.
    pub(crate) fn require(&self) -> HostResult<()> {
        self.application.require()?;
        self.require_kernel()?;
        self.layers.iter().try_for_each(|layer| layer.require())
    }

    /// Refuses what this machine's kernel cannot do, whichever programs are measured.
    ///
    /// # Errors
    /// [`headroom_lab_host::Error::Missing`]: what it lacks.
    pub(crate) fn require_kernel(&self) -> HostResult<()> {
        self.application.require_kernel()?;
        self.layers.iter().try_for_each(|layer| layer.require_kernel())
    }

    /// Refuses a build of this program that lacks a command which the stack runs, on whichever
    /// machine.
    ///
    /// # Errors
    /// [`headroom_lab_host::Error::Missing`]: the command.
    pub(crate) fn require_commands(&self, lacking: &[&str]) -> HostResult<()> {
        let of_layers = self.layers.iter().filter_map(|layer| layer.own_command());
        let mut own = self.application.own_command().into_iter().chain(of_layers);
        let Some(command) = own.find(|command| lacking.contains(command)) else { return Ok(()) };
        Err(Error::Missing(format!(
            "this headroom was built without `headroom {command}`, which `{}` runs: build it with all \
             its features (`make build`)",
            self.name
        )))
    }

    /// The names of its application and of its layers, without options.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.application.name()).chain(self.layers.iter().map(Chosen::name))
    }

    /// Every program that it needs on this machine.
    pub fn programs(&self) -> impl Iterator<Item = Program> {
        let layers = self.layers.iter().flat_map(|layer| layer.needs(layer.entry.programs));
        let application = self.application.needs(self.application.entry.programs);
        application.iter().chain(layers).copied()
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stack").field(&self.name).finish()
    }
}

/// Why these layers, innermost first, make no sense around this application.
fn objection(
    application: &Chosen<dyn Application>,
    layers: &[Chosen<dyn Layer>],
) -> Option<String> {
    const DEEPEST: usize = 8;
    if layers.len() > DEEPEST {
        return Some(format!("more than {DEEPEST} layers"));
    }
    if let Some(allowed) = application.layers()
        && let Some(other) = layers.iter().find(|layer| !allowed.iter().any(|a| a == layer.name()))
    {
        let (title, other) = (application.title(), other.name());
        return Some(match allowed.join(", ") {
            none if none.is_empty() => format!("{title} stands under no layer, by its definition"),
            names => format!(
                "{title} does not stand under `{other}`: its definition allows the layers {names}"
            ),
        });
    }
    if let Some(layer) = layers.iter().rev().skip(1).find(|layer| layer.is_of_the_link()) {
        return Some(format!(
            "`{}` protects the link itself, so it is the outermost layer, and once",
            layer.name()
        ));
    }
    // between two layers in place there is nothing that gives new addresses
    let networks: Vec<layer::LayerKind> =
        layers.iter().map(|layer| layer.kind()).filter(|kind| kind.is_network()).collect();
    if networks
        .windows(2)
        .any(|pair| pair == [layer::LayerKind::InPlace, layer::LayerKind::InPlace])
    {
        return Some(
            "two layers in transport mode would protect the same two addresses; AH over ESP is \
             the layer `ah+esp`"
                .to_owned(),
        );
    }
    let stream = layers.iter().rposition(|layer| layer.kind() == layer::LayerKind::Stream)?;
    let (name, title) = (layers[stream].name(), application.title());
    if application.data_connections() {
        return Some(format!(
            "{title} opens data connections of its own, which `{name}` cannot carry: it carries \
             the one connection that it is put around; use a network layer, as {title}/wireguard"
        ));
    }
    if application.over_datagrams() {
        return Some(format!(
            "{title} moves files over UDP, and `{name}` carries only TCP; use a network layer, as \
             {title}/esp"
        ));
    }
    let network = layers[..stream].iter().find(|layer| layer.kind().is_network())?;
    Some(format!(
        "`{0}` sends packets and `{name}` carries a TCP connection; the other way round, \
         {title}/{name}/{0}, would do",
        network.name()
    ))
}

/// An application and what wraps it, as results name it.
fn path_of(application: &Chosen<dyn Application>, layers: &[Chosen<dyn Layer>]) -> String {
    let layers = layers.iter().map(Chosen::title);
    std::iter::once(application.title()).chain(layers).collect::<Vec<_>>().join("/")
}

/// The name that results have for a stack written in any way; as it is, where it
/// is none.
pub fn canonical(name: &str) -> String {
    canonical_with(name, &Custom::default())
}

/// The same for a stack that may have applications and layers of a plan.
pub(crate) fn canonical_with(name: &str, custom: &Custom) -> String {
    Stack::parse_with(name, custom).map_or_else(|_| name.to_owned(), |stack| stack.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_its_commands_is_refused_what_runs_them() {
        let refusal = |name: &str, lacking: &[&str]| {
            let stack = Stack::parse(name).expect("a stack");
            stack.require_commands(lacking).err().map(|error| error.to_string())
        };
        for (name, command) in [
            ("headroom", "serve"),
            ("headroom(browser)", "serve"),
            ("headroom/wireguard", "serve"),
            ("http/esp", "tunnel"),
            ("http/ah+esp/wireguard", "tunnel"),
            ("http/qesp(ike)", "tunnel"),
        ] {
            let said = refusal(name, &["serve", "tunnel"]).expect(name);
            let expected = format!("built without `headroom {command}`, which `{name}` runs");
            assert!(said.contains(&expected), "{said}");
            assert_eq!(refusal(name, &[]), None);
        }
        for (name, lacking) in
            [("headroom", "tunnel"), ("http/esp", "serve"), ("http/esp(backend=kernel)", "tunnel")]
        {
            assert_eq!(refusal(name, &[lacking]), None);
        }
        assert_eq!(refusal("sftp/strongswan", &["serve", "tunnel"]), None);
    }

    #[test]
    fn application_layers_and_label() {
        assert_eq!(Stack::parse("ftp").map(|s| s.application.title()).as_deref(), Ok("ftp"));
        assert_eq!(Stack::parse("ftp#again").map(|s| s.name), Ok("ftp#again".to_owned()));
        assert!(Stack::parse("gopher").is_err_and(|e| e.contains("ftp, ftps")));
        let stack = Stack::parse("sftp/tls/strongswan#2").expect("two layers");
        let names: Vec<&str> = stack.layers.iter().map(Chosen::name).collect();
        assert_eq!(names, ["tls", "strongswan"]);
        assert_eq!(stack.baselines(), ["sftp/tls", "sftp"]);
        assert_eq!(Stack::parse("ftps").map(|s| s.baselines()), Ok(vec!["ftp".to_owned()]));
        let secured = |name| Stack::parse(name).map(|stack| stack.is_secured());
        assert_eq!((secured("ftp"), secured("ftp/openvpn")), (Ok(false), Ok(true)));
        assert!(Stack::parse("").is_err());
        let chosen = Stack::parse("headroom(chunk=300, cipher=none)/esp(udp)#2").expect("a stack");
        assert_eq!(chosen.name, "headroom(cipher=none,chunk=300)/esp(udp)#2");
        assert_eq!(chosen.baselines(), ["headroom(cipher=none,chunk=300)"]);
        let baselines = |name| Stack::parse(name).map(|stack| stack.baselines().join(" or "));
        assert_eq!(baselines("headroom(chunk=300)").as_deref(), Ok("headroom"));
        assert_eq!(
            baselines("headroom(chunk=300,cipher=simplecrypt)").as_deref(),
            Ok("headroom(cipher=none,chunk=300) or headroom")
        );
        assert_eq!(baselines("headroom(verify=fast)").as_deref(), Ok("headroom"));
        assert_eq!(
            baselines("headroom(streams,verify=fast)").as_deref(),
            Ok("headroom(streams) or headroom")
        );
        assert!(chosen.is_secured() && !chosen.shows_content());
        let shows = |name| Stack::parse(name).is_ok_and(|stack| stack.shows_content());
        assert!(shows("headroom(cipher=none)") && shows("http"));
        assert!(!shows("headroom(cipher=simplecrypt)") && !shows("headroom(chunk=300)"));
        for (name, why) in [
            (
                "headroom(cipher=des)",
                "`headroom` has no option `cipher=des`; the options are browser (its page in Chromium); streams;",
            ),
            (
                "sftp/tsl",
                "no layer `tsl` (did you mean `tls`?); there are tls, wireguard, strongswan, openvpn, dtls, esp",
            ),
            ("ftp/esp(udp", "as in `esp(transport)`"),
            ("ftp/esp()", "`esp` has no option ``"),
            (
                "ftp/esp(fast)",
                "`esp` has no option `fast`; the options are tunnel, transport, aes-128-gcm",
            ),
            ("ftp/wireguard(fast)", "`wireguard` takes no options"),
            ("ftp/strongswan(fast)", "`strongswan` has no option `fast`; the options are psk"),
            ("http(fast)", "`http` takes no options"),
            ("gopher(fast)", "no application `gopher`"),
            ("headroom(streams", "as in `headroom(streams)`"),
            ("http/esp(transport)/ah(transport)", "AH over ESP is the layer `ah+esp`"),
            ("sftp/esp(transport)/tls", "sftp/tls/esp, would do"),
            ("sftp/", "no layer ``"),
            ("ftp/tls", "data connections of its own"),
            ("ftps/wireguard/tls", "data connections of its own"),
            ("headroom/tls", "`tls` carries only TCP; use a network layer, as headroom/esp"),
            ("headroom(fast)", "`headroom` has no option `fast`"),
            ("sftp/wireguard/tls", "`wireguard` sends packets and `tls` carries a TCP"),
            ("https/openvpn/tls/strongswan", "https/tls/openvpn, would do"),
            ("http/tls/tls/tls/tls/tls/tls/tls/tls/tls", "more than 8 layers"),
        ] {
            let error = Stack::parse(name).expect_err(name);
            assert!(error.contains(why), "{error}");
        }
        for name in [
            "ftp/wireguard",
            "ftps/openvpn",
            "https/tls/tls",
            "sftp/wireguard/openvpn",
            "headroom(streams)/esp(udp)#2",
        ] {
            assert!(Stack::parse(name).is_ok(), "{name}");
        }
        for (written, name) in [
            ("ftp/esp( udp , transport )#2", "ftp/esp(transport,udp)#2"),
            ("sftp/tls/qesp(tunnel)/wireguard", "sftp/tls/qesp/wireguard"),
            ("ftp/strongswan(psk)/strongswan(cert)", "ftp/strongswan/strongswan(cert)"),
            ("http/ah+esp(hmac-sha1,aes-128-cbc)", "http/ah+esp(aes-128-cbc,hmac-sha1)"),
            ("http/wireguard/esp(transport)/esp(udp)", "http/wireguard/esp(transport)/esp(udp)"),
        ] {
            assert_eq!(canonical(written), name);
        }
        assert_eq!(canonical("not a stack"), "not a stack");
        assert!(Stack::parse("ftp/ah").is_ok_and(|stack| !stack.is_secured()));
        assert!(Stack::parse("ftp/ah/esp").is_ok_and(|stack| stack.is_secured()));
        assert!(Stack::parse("http#x; include y").is_err_and(|e| e.contains("letters and digits")));
    }
}
