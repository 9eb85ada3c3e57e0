//! Paths on hosts, as they are typed.

use std::ffi::{OsStr, OsString};

use anyhow::bail;
use headroom_transfer::client::below_root;
use headroom_transfer::{Host, Place};

use super::arguments::OverSsh;
use super::exit::Usage;

/// Reads places that are all on one host.
pub(super) fn places_on_one_host(
    texts: &[OsString],
    over_ssh: &OverSsh,
) -> anyhow::Result<(Host, Vec<Vec<u8>>)> {
    let places = texts.iter().map(|text| place(text, over_ssh));
    let places = places.collect::<Result<Vec<_>, _>>()?;
    let Some(host) = places.first().map(|place| place.host.clone()) else {
        bail!(Usage("no place on a host is named".to_owned()));
    };
    if places.iter().any(|place| place.host != host) {
        bail!(Usage("one command is about one host".to_owned()));
    }
    Ok((host, places.into_iter().map(|place| place.path).collect()))
}

/// Reads a place, and refuses before anything is connected what can be no path there.
pub(super) fn place(text: &OsStr, over_ssh: &OverSsh) -> anyhow::Result<Place> {
    let place = Place::parse(text).map_err(|error| Usage(error.to_string()))?;
    if !over_ssh.ssh {
        below_root(&place.path)?;
    }
    Ok(place)
}
