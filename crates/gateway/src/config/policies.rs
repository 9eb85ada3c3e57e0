//! Reads the `[[policy]]`: selectors, and the SAs that protect.

use std::collections::HashMap;

use headroom_ipsec::spec::{Action, Direction, Mode, Selector};
use headroom_ipsec::{PolicySpec, Protocol};
use toml::Spanned;

use super::associations::parse_name;
use super::file::{ActionFile, PolicyFile, SaFile};
use super::model::Association;
use super::problem::{Problem, excerpt, problem};
use super::selectors::{contains, covers, selector};

/// The most SAs of one policy in one direction.
const MAX_NAMED: usize = 256;

/// Reads all policies; `files` and `associations` have the same order.
pub(super) fn read(
    policies: &[PolicyFile],
    files: &[SaFile],
    associations: &[Association],
    warnings: &mut Vec<String>,
) -> Result<Vec<PolicySpec>, Problem> {
    let known: HashMap<&str, &Association> =
        files.iter().map(|file| file.name.get_ref().as_str()).zip(associations).collect();
    let mut specs: Vec<PolicySpec> = Vec::with_capacity(policies.len());
    let mut names = HashMap::new();
    for (index, file) in policies.iter().enumerate() {
        let name = parse_name(&file.name)?;
        if names.insert(name.clone(), index).is_some() {
            return Err(problem(
                &file.name,
                format!("there is already a policy named `{name}` above"),
            ));
        }
        let selector = selector(file)?;
        if let Some(earlier) = specs.iter().find(|earlier| covers(&earlier.selector, &selector)) {
            let message = format!(
                "`{name}` has no effect, because `{}` above matches all its packets. Move it up, or \
                 remove it",
                earlier.name
            );
            return Err(problem(&file.name, message));
        }
        let action = action(file, &selector, &known, warnings)?;
        specs.push(PolicySpec { name, selector, action });
    }
    unused(&specs, associations, warnings);
    Ok(specs)
}

fn action(
    file: &PolicyFile,
    selector: &Selector,
    known: &HashMap<&str, &Association>,
    warnings: &mut Vec<String>,
) -> Result<Action, Problem> {
    let named = file.out.first().or(file.inbound.first());
    match (file.action.get_ref(), named) {
        (ActionFile::Bypass, None) => Ok(Action::Bypass),
        (ActionFile::Discard, None) => Ok(Action::Discard),
        (ActionFile::Protect, None) => {
            let message = "a policy with the action \"protect\" needs SAs: `out` for outbound, `in` for inbound packets";
            Err(problem(&file.name, message))
        }
        (_, Some(named)) if *file.action.get_ref() != ActionFile::Protect => {
            Err(problem(named, "only a policy with the action \"protect\" has SAs"))
        }
        _ => {
            let out = bundles(&file.out, Direction::Out, selector, known)?;
            let inbound = bundles(&file.inbound, Direction::In, selector, known)?;
            require_opposite_directions(&out, &inbound)?;
            let name = file.name.get_ref();
            for (bundles, what) in [(&out, "outbound"), (&inbound, "inbound")] {
                if bundles.is_empty() {
                    warnings.push(format!(
                        "`{name}` has no SA for {what} packets, which are therefore dropped"
                    ));
                }
            }
            let names =
                |list: &[Spanned<String>]| list.iter().map(|n| n.get_ref().clone()).collect();
            Ok(Action::Protect { out: names(&file.out), inbound: names(&file.inbound) })
        }
    }
}

/// The SAs applied to one packet: ESP or Q-ESP, AH, or AH over one of them.
struct NamedBundle<'a> {
    inner: &'a Association,
    over: Option<&'a Association>,
    place: &'a Spanned<String>,
}

impl NamedBundle<'_> {
    fn kind(&self) -> (Mode, Protocol, bool) {
        let spec = &self.inner.spec;
        (spec.mode, spec.protection.protocol(), self.over.is_some())
    }
}

fn bundles<'a>(
    names: &'a [Spanned<String>],
    direction: Direction,
    selector: &Selector,
    known: &HashMap<&str, &'a Association>,
) -> Result<Vec<NamedBundle<'a>>, Problem> {
    if let Some(surplus) = names.get(MAX_NAMED) {
        return Err(problem(
            surplus,
            format!("a policy has at most {MAX_NAMED} SAs per direction"),
        ));
    }
    let mut bundles: Vec<NamedBundle<'a>> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let text = name.get_ref();
        let Some(association) = known.get(text.as_str()).copied() else {
            return Err(problem(name, format!("there is no [[sa]] named `{}`", excerpt(text))));
        };
        if association.spec.direction != direction {
            let (is, list) = match direction {
                Direction::Out => ("in", "out"),
                Direction::In => ("out", "in"),
            };
            let message = format!("`{text}` has the direction \"{is}\" and cannot be in `{list}`");
            return Err(problem(name, message));
        }
        if names[..index].iter().any(|earlier| earlier.get_ref() == text) {
            return Err(problem(name, format!("`{text}` is listed twice")));
        }
        let is_ah = association.spec.protection.protocol() == Protocol::Ah;
        match bundles.last_mut() {
            Some(last) if is_ah && last.over.is_none() && !is_lone_ah(last) => {
                last.over = Some(ah_over(last.inner, association, name)?);
            }
            _ => bundles.push(NamedBundle { inner: association, over: None, place: name }),
        }
    }
    for (index, bundle) in bundles.iter().enumerate() {
        let first = &bundles[0];
        if bundle.kind() != first.kind() {
            let message = format!(
                "`{}` and `{}` cannot be combined: list SAs from the inside to the outside ([\"esp\", \"ah\"] is AH over \
                 ESP), and only alternatives of the same protocol and mode",
                bundle.place.get_ref(),
                first.place.get_ref()
            );
            return Err(problem(bundle.place, message));
        }
        if direction == Direction::Out {
            require_reachable(&bundles[..index], bundle)?;
        }
        require_sa_addresses(bundle, direction, selector)?;
    }
    Ok(bundles)
}

fn is_lone_ah(bundle: &NamedBundle<'_>) -> bool {
    bundle.inner.spec.protection.protocol() == Protocol::Ah
}

/// AH over ESP or Q-ESP covers the IP header that the inner SA built.
fn ah_over<'a>(
    inner: &Association,
    ah: &'a Association,
    place: &Spanned<String>,
) -> Result<&'a Association, Problem> {
    let (under, over) = (&inner.spec, &ah.spec);
    let message = if over.mode != Mode::Transport {
        format!(
            "`{}` is applied over `{}`, which builds the outer header, so its `mode` must be \"transport\"",
            over.name, under.name
        )
    } else if (over.source, over.destination) != (under.source, under.destination) {
        format!(
            "`{}` is applied over `{}`, so both need the same source and destination",
            over.name, under.name
        )
    } else if under.udp.is_some() {
        format!(
            "`{}` covers addresses and ports, which a NAT changes, so it cannot be applied over `{}`, which is in UDP",
            over.name, under.name
        )
    } else {
        return Ok(ah);
    };
    Err(problem(place, message))
}

/// The first alternative that serves a packet protects it.
fn require_reachable(earlier: &[NamedBundle<'_>], bundle: &NamedBundle<'_>) -> Result<(), Problem> {
    let own = &bundle.inner.spec;
    let same_packets = |other: &&NamedBundle<'_>| {
        let other = &other.inner.spec;
        own.mode == Mode::Tunnel
            || (other.source, other.destination) == (own.source, own.destination)
    };
    let served = earlier.iter().filter(same_packets).fold(0, |bits, b| bits | b.inner.spec.classes);
    if own.classes & !served == 0 {
        let message = format!(
            "`{}` has no effect, because the SAs before it serve all its traffic classes. Give each its own \
             `traffic_class`",
            own.name
        );
        return Err(problem(bundle.place, message));
    }
    Ok(())
}

/// Transport mode protects packets between the SA's own addresses.
fn require_sa_addresses(
    bundle: &NamedBundle<'_>,
    direction: Direction,
    selector: &Selector,
) -> Result<(), Problem> {
    let spec = &bundle.inner.spec;
    if spec.mode == Mode::Tunnel {
        return Ok(());
    }
    let (local, remote) = match direction {
        Direction::Out => (spec.source, spec.destination),
        Direction::In => (spec.destination, spec.source),
    };
    for (addresses, address, field) in
        [(&selector.local, local, "local"), (&selector.remote, remote, "remote")]
    {
        if !contains(addresses, address) {
            let message = format!(
                "`{}` is in transport mode and protects only packets between {local} and {remote}, but `{field}` does not \
                 include {address}",
                spec.name
            );
            return Err(problem(bundle.place, message));
        }
    }
    Ok(())
}

/// Both directions connect the same two hosts, in the same mode.
fn require_opposite_directions(
    out: &[NamedBundle<'_>],
    inbound: &[NamedBundle<'_>],
) -> Result<(), Problem> {
    let (Some(first_out), Some(first_in)) = (out.first(), inbound.first()) else { return Ok(()) };
    let (out_mode, in_mode) = (first_out.inner.spec.mode, first_in.inner.spec.mode);
    if out_mode != in_mode {
        let message = format!(
            "`{}` and `{}` have different modes; a policy protects in one mode, tunnel or transport",
            first_out.place.get_ref(),
            first_in.place.get_ref()
        );
        return Err(problem(first_in.place, message));
    }
    for bundle in inbound {
        let spec = &bundle.inner.spec;
        let answers = out.iter().map(|out| &out.inner.spec);
        if !answers.clone().any(|o| (o.source, o.destination) == (spec.destination, spec.source)) {
            let message = format!(
                "`{}` goes from {} to {}, but no SA of `out` goes back: are source and destination of one SA \
                 exchanged?",
                spec.name, spec.source, spec.destination
            );
            return Err(problem(bundle.place, message));
        }
    }
    Ok(())
}

fn unused(specs: &[PolicySpec], associations: &[Association], warnings: &mut Vec<String>) {
    let named: std::collections::HashSet<&String> = specs
        .iter()
        .filter_map(|spec| match &spec.action {
            Action::Protect { out, inbound } => Some(out.iter().chain(inbound)),
            Action::Bypass | Action::Discard => None,
        })
        .flatten()
        .collect();
    if named.is_empty() {
        // A file for `ipsec decode` needs no policies.
        return;
    }
    for association in associations {
        let name = &association.spec.name;
        if !named.contains(name) {
            warnings.push(format!("no policy uses the SA `{name}`"));
        }
    }
}
