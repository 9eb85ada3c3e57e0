//! The grammar of a stack: the application first, then what wraps it:
//! `sftp/tls/esp`. A label after `#` tells two copies of one stack apart.

use std::fmt;

use crate::service::{self, Service};

/// One way to secure a transfer (or not to): an application, as named in a plan.
#[derive(Clone)]
pub struct Stack {
    /// The name as the plan writes it, label included: the key in all results.
    pub name: String,
    /// The application.
    pub service: &'static dyn Service,
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
        match parts.next() {
            None => Ok(Self { name: name.to_owned(), service }),
            Some(layer) => Err(format!(
                "`{name}`: there is no layer `{layer}`; this version measures applications only"
            )),
        }
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
        assert!(Stack::parse("sftp/tls").is_err_and(|e| e.contains("no layer `tls`")));
        assert!(Stack::parse("").is_err());
        assert!(Stack::parse("http#x; include y").is_err_and(|e| e.contains("letters and digits")));
    }
}
