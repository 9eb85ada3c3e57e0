//! Reads `eap` and `[[ike.user]]`: users who prove who they are by EAP.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use headroom_ike::eap::{EapMethod, EapTls, Passwords};
use headroom_ike::{Authorities, Identity};
use toml::Spanned;
use zeroize::Zeroizing;

use super::file::{IkeFile, OneOrMany, UserFile};
use super::problem::{Problem, excerpt, problem};
use super::reader::{Content, Reader};

/// The most users of a configuration.
const MAX_USERS: usize = 10_000;
/// The most characters of a name, and of a password (RFC 2759, section 4).
const MAX_LENGTH: usize = 256;

/// Users and their passwords.
struct Users(HashMap<String, Zeroizing<String>>);

impl Passwords for Users {
    fn password(&self, user: &str) -> Option<Zeroizing<String>> {
        self.0.get(user).cloned()
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} users", self.0.len())
    }
}

/// This host's certificates in DER, its own first, and its private key.
pub(super) type Own<'a> = (Vec<Vec<u8>>, &'a [u8]);

impl Reader<'_> {
    /// Reads the methods of `eap`. `own` proves who this host is, `authorities` are those of users.
    pub(super) fn eap(
        &self,
        eap: &Spanned<OneOrMany>,
        file: &IkeFile,
        (chain, key): Own<'_>,
        authorities: Option<&Authorities>,
    ) -> Result<Vec<EapMethod>, Problem> {
        if file.remote.get_ref() != "any" {
            let message = "users of EAP begin, from any address: write `remote = \"any\"`";
            return Err(problem(eap, message));
        }
        let mut methods = Vec::new();
        let mut words: Vec<&str> = Vec::new();
        for word in &eap.get_ref().0 {
            if words.contains(&word.as_str()) {
                return Err(problem(eap, format!("`{}` is there twice", excerpt(word))));
            }
            words.push(word);
            methods.push(match word.as_str() {
                "mschapv2" => EapMethod::MsChapV2(Arc::new(Users(self.users(eap, &file.user)?))),
                "tls" => {
                    let message = "EAP-TLS needs `ca_file`, the authorities of users";
                    let authorities = authorities.ok_or_else(|| problem(eap, message))?;
                    let tls = EapTls::new(chain.clone(), key, authorities);
                    EapMethod::Tls(Arc::new(tls.map_err(|error| problem(eap, error.to_string()))?))
                }
                _ => {
                    let message = "methods of EAP are \"mschapv2\" and \"tls\"";
                    return Err(problem(eap, message));
                }
            });
        }
        if methods.is_empty() {
            return Err(problem(eap, "write a method: \"mschapv2\" or \"tls\""));
        }
        if let Some(user) = file.user.first().filter(|_| !words.contains(&"mschapv2")) {
            let message = "users with passwords need `eap = \"mschapv2\"`";
            return Err(problem(&user.name, message));
        }
        match &file.ca_file {
            Some(ca) if !words.contains(&"tls") => {
                Err(problem(ca, "`ca_file` is for users of EAP-TLS: remove it, or add \"tls\""))
            }
            _ => Ok(methods),
        }
    }

    fn users(
        &self,
        eap: &Spanned<OneOrMany>,
        files: &[UserFile],
    ) -> Result<HashMap<String, Zeroizing<String>>, Problem> {
        if files.is_empty() {
            let message =
                "EAP-MSCHAPv2 needs users: write [[ike.user]] with `name` and `password_file`";
            return Err(problem(eap, message));
        }
        if let Some(surplus) = files.get(MAX_USERS) {
            let message = format!("there are more than {MAX_USERS} [[ike.user]]");
            return Err(problem(&surplus.name, message));
        }
        let mut users = HashMap::with_capacity(files.len());
        let mut peers = HashSet::with_capacity(files.len());
        for file in files {
            let name = file.name.get_ref();
            let fits = (1..=MAX_LENGTH).contains(&name.chars().count());
            if !fits || name.chars().any(|c| c.is_control() || c == '\\') {
                let message = format!(
                    "`{}` is not the name of a user: 1 to {MAX_LENGTH} characters, without backslash",
                    excerpt(name)
                );
                return Err(problem(&file.name, message));
            }
            if !peers.insert(Identity::from_text(name).folded()) {
                let message = format!(
                    "a user above is named `{}`, or differs in case alone: IKE takes both for one",
                    excerpt(name)
                );
                return Err(problem(&file.name, message));
            }
            users.insert(name.clone(), self.password(file)?);
        }
        Ok(users)
    }

    fn password(&self, file: &UserFile) -> Result<Zeroizing<String>, Problem> {
        let (text, offset) = match (&file.password, &file.password_file) {
            (Some(password), None) => (password.get_ref().0.clone(), password.span().start),
            (None, Some(path)) => {
                let text = (self.read_file)(path.get_ref(), Content::Secret)
                    .map_err(|error| problem(path, error))?;
                (Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned()), path.span().start)
            }
            (None, None) => {
                let message = "the user needs a password: `password_file` or `password`";
                return Err(problem(&file.name, message));
            }
            (Some(_), Some(path)) => {
                let message = "`password` and `password_file` are both present: remove one";
                return Err(problem(path, message));
            }
        };
        match text.chars().count() {
            1..=MAX_LENGTH => Ok(text),
            length => {
                let message =
                    format!("the password has {length} characters and must have 1 to {MAX_LENGTH}");
                Err(Problem { offset, message })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use headroom_ike::RemoteAuth;
    use rcgen::KeyPair;

    use super::*;
    use crate::config::{Config, Purpose};

    const USERS: &str = "name = \"hr0\"\n[ike]\nlocal = \"192.0.2.1\"\nremote = \"any\"\npool = \"10.9.0.0/24\"\n\
                         cert_file = \"cert\"\nkey_file = \"key\"\neap = [\"tls\", \"mschapv2\"]\nca_file = \"cert\"\n\
                         [[ike.user]]\nname = \"alice\"\npassword_file = \"secret\"\n\
                         [[ike.user]]\nname = \"bob@example.org\"\npassword = \"of bob\"\n\
                         [[child]]\nlocal = \"10.1.0.0/16\"\n";

    fn parse(text: &str) -> Result<Config, String> {
        let key = KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec!["gate.test".to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        let read = |path: &Path, _: Content| match path.to_str() {
            Some("cert") => Ok(Zeroizing::new(certificate.clone())),
            Some("key") => Ok(Zeroizing::new(key.serialize_pem())),
            Some("secret") => Ok(Zeroizing::new("of alice \r\n".to_owned())),
            _ => Err("cannot read it".to_owned()),
        };
        let parsed = Config::parse_with(text, Path::new("hr0.toml"), Purpose::Tunnel, read);
        parsed.map_err(|error| error.to_string())
    }

    #[test]
    fn reads_users_and_their_methods_in_order() {
        let config = parse(USERS).unwrap_or_else(|error| panic!("{error}"));
        let RemoteAuth::Eap(methods) = &config.ike[0].auth.remote else { panic!("no EAP") };
        let [EapMethod::Tls(_), EapMethod::MsChapV2(users)] = &methods[..] else {
            panic!("{methods:?}")
        };
        let password = |user| users.password(user).map(|one| one.as_str().to_owned());
        assert_eq!(password("alice").as_deref(), Some("of alice "), "without the end of its line");
        assert_eq!(password("bob@example.org").as_deref(), Some("of bob"));
        assert_eq!(password("carol"), None);
        assert_eq!(config.ike[0].local_id.to_string(), "gate.test");
        assert!(!format!("{config:?}").contains("of bob"));
    }

    #[test]
    fn refuses_users_and_methods_with_their_line() {
        let two = "eap = [\"tls\", \"mschapv2\"]\nca_file = \"cert\"\n";
        for (from, to, line, words) in [
            ("remote = \"any\"\npool = \"10.9.0.0/24\"", "remote = \"192.0.2.2\"", 7, "from any"),
            ("cert_file = \"cert\"\n", "", 4, "write `cert_file`"),
            ("\"tls\", \"mschapv2\"", "\"md5\"", 8, "methods of EAP are"),
            ("\"tls\", \"mschapv2\"", "\"tls\", \"tls\"", 8, "there twice"),
            ("\"tls\", \"mschapv2\"", "", 8, "write a method"),
            ("\"tls\", \"mschapv2\"", "\"tls\"", 11, "need `eap = \"mschapv2\"`"),
            ("\"tls\", \"mschapv2\"", "\"mschapv2\"", 9, "for users of EAP-TLS"),
            ("ca_file = \"cert\"\n", "", 8, "needs `ca_file`"),
            (two, "ca_file = \"cert\"\n", 10, "a user needs `eap"),
            (two, "eap = \"mschapv2\"\nppk_file = \"x\"\nppk_id = \"x\"\n", 9, "not for users"),
            ("password_file = \"secret\"\n", "", 11, "needs a password"),
            ("password_file = \"secret\"", "password_file = \"other\"", 12, "cannot read it"),
            ("password_file = \"secret\"", "password = \"\"", 12, "has 0 characters"),
            ("password = \"of bob\"", "password = 7", 15, "in quotes"),
            ("password = \"of bob\"", "password = \"x\"\npassword_file = \"y\"", 16, "both"),
            ("bob@example.org", "alice", 14, "a user above"),
            ("bob@example.org", "Alice", 14, "differs in case alone"),
            ("\"alice\"", "\"bob@Example.org\"", 14, "differs in case alone"),
            ("bob@example.org", "work\\\\bob", 14, "without backslash"),
            ("bob@example.org", "", 14, "1 to 256"),
        ] {
            let text = USERS.replacen(from, to, 1);
            let error = parse(&text).map(|_| ()).expect_err(words);
            assert!(error.starts_with(&format!("hr0.toml:{line}: ")), "{error}\n{text}");
            assert!(error.contains(words), "{error}");
        }
        // another mailbox
        let other = USERS.replacen("\"alice\"", "\"Bob@example.org\"", 1);
        assert!(parse(&other).is_ok());
        let none = USERS.replace("[[ike.user]]", "[[other]]");
        assert!(parse(&none).is_err());
    }
}
