//! Properties of applications and layers that a user may need, and no run measures.

use std::collections::BTreeSet;

use headroom_lab_results::analysis::advise::Property;

/// Properties of an application, of a layer, or of a stack of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Properties {
    /// Both sides prove who they are: by keys, certificates, or a password inside TLS.
    pub mutual_auth: bool,
    /// Whoever gets the keys that last cannot decrypt earlier sessions with them.
    pub forward_secrecy: bool,
    /// The key exchange resists quantum computers.
    pub post_quantum: bool,
    /// Routers see the application's ports.
    pub shows_ports: bool,
    /// Some of it travels over UDP.
    pub over_udp: bool,
    /// The receiver compares a hash of each whole file.
    pub verified: bool,
}

impl Properties {
    /// Clear text over TCP.
    pub const CLEAR: Self = Self {
        mutual_auth: false,
        forward_secrecy: false,
        post_quantum: false,
        shows_ports: true,
        over_udp: false,
        verified: false,
    };

    /// SSH with keys on both sides.
    pub const SSH: Self = Self { mutual_auth: true, forward_secrecy: true, ..Self::CLEAR };

    /// A tunnel with keys on both sides, in UDP.
    pub const TUNNEL: Self = Self { shows_ports: false, over_udp: true, ..Self::SSH };

    /// Puts a layer around: what either protects is protected, what either hides is hidden.
    #[must_use]
    pub fn inside(self, layer: Self) -> Self {
        Self {
            mutual_auth: self.mutual_auth || layer.mutual_auth,
            forward_secrecy: self.forward_secrecy || layer.forward_secrecy,
            post_quantum: self.post_quantum || layer.post_quantum,
            shows_ports: self.shows_ports && layer.shows_ports,
            over_udp: self.over_udp || layer.over_udp,
            verified: self.verified || layer.verified,
        }
    }

    /// Lists those that it has.
    pub fn all(self) -> BTreeSet<Property> {
        let has = |property: &Property| match property {
            Property::MutualAuth => self.mutual_auth,
            Property::ForwardSecrecy => self.forward_secrecy,
            Property::PostQuantum => self.post_quantum,
            Property::QosVisible => self.shows_ports,
            Property::NoUdp => !self.over_udp,
            Property::Verified => self.verified,
        };
        Property::ALL.into_iter().filter(has).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::Stack;

    fn of(name: &str) -> Vec<&'static str> {
        let stack = Stack::parse(name).expect("a stack");
        let all = stack.properties().expect("built-in ones state theirs").all();
        all.into_iter().map(Property::name).collect()
    }

    #[test]
    fn stacks_have_what_their_parts_have() {
        let cases: [(&str, &[&str]); 13] = [
            ("ftp", &["qos-visible", "no-udp"]),
            ("https", &["forward-secrecy", "qos-visible", "no-udp"]),
            (
                "https(mlkem768,mldsa65)",
                &["forward-secrecy", "post-quantum", "qos-visible", "no-udp"],
            ),
            ("ftps", &["mutual-auth", "forward-secrecy", "qos-visible", "no-udp"]),
            ("ftps(aes128-sha)", &["mutual-auth", "qos-visible", "no-udp"]),
            (
                "sftp(sntrup761)",
                &["mutual-auth", "forward-secrecy", "post-quantum", "qos-visible", "no-udp"],
            ),
            (
                "ssh(mlkem768,rekey=1MB)",
                &["mutual-auth", "forward-secrecy", "post-quantum", "qos-visible", "no-udp"],
            ),
            ("http/wireguard", &["mutual-auth", "forward-secrecy"]),
            ("http/qesp", &["mutual-auth", "qos-visible", "no-udp"]),
            ("http/macsec", &["mutual-auth", "no-udp"]),
            ("webrtc", &["forward-secrecy", "qos-visible"]),
            ("rsync/esp(ike)", &["mutual-auth", "forward-secrecy", "post-quantum", "verified"]),
            (
                "headroom",
                &["mutual-auth", "forward-secrecy", "post-quantum", "qos-visible", "verified"],
            ),
        ];
        for (name, expected) in cases {
            assert_eq!(of(name), expected, "{name}");
        }
    }
}
