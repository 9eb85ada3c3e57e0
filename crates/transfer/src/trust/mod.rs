//! Trust: known hosts, authorized keys, invitations, shares, certificate authorities.

mod authority;
mod authorized_keys;
mod error;
mod followed;
mod invitations;
mod known_hosts;
mod policy;
mod shares;
pub(crate) mod tls;
mod verify;

pub use authority::Authority;
pub use authorized_keys::{Access, AuthorizedKeys};
pub use error::Error;
pub use followed::Followed;
pub use invitations::{Invitation, Invitations};
pub use known_hosts::{HostStatus, KnownHosts};
pub use policy::AccessPolicy;
pub(crate) use shares::{LONGEST, MAX_USES, Unusable};
pub use shares::{NewLink, NewShare, Share, Shares, root_name};
pub(crate) use tls::{by_signature_of_tls13, provider};
pub use verify::HostKeys;
pub(crate) use verify::ServerVerifier;
