//! Opens one IPsec header with the possible sequence numbers of an SA.

use headroom_ipsec::{Protocol, Reason, esp};

use super::attempt::{Sealed, configured};
use super::diagnose;
use super::sa_decoder::{Decrypted, Failure, HIGH_HALVES, SaDecoder, Search};

/// High halves tried for the first packets that fail (SEARCHES of each SA). A sender of a million
/// packets a second needs nine years to reach the last.
const MAX_HIGH_HALVES: u64 = 1 << 16;

/// Opens a packet of the SA `all[index]`.
pub(super) fn open(
    all: &mut [SaDecoder],
    index: usize,
    sealed: &Sealed<'_>,
    low: u32,
    search: &mut Search,
    notes: &mut Vec<String>,
) -> Result<Decrypted, Failure> {
    let known = &mut all[index];
    let bare = |reason| (reason, Vec::new());
    sealed.clear().map_err(bare)?;
    let fits = sealed.fits(&known.transform);
    let candidates = known.numbers(low, search);
    let open = |known: &SaDecoder, number: u64| {
        sealed.open(&known.transform, configured(&known.spec, number)).map(|text| (number, text))
    };
    let mut opened = candidates.iter().find_map(|number| open(known, *number));
    if opened.is_none() && known.is_from_table && known.searches() {
        known.spec.extended_sequence = false;
        opened = open(known, low.into());
        known.spec.extended_sequence = opened.is_none();
    }
    let mut tried = HIGH_HALVES;
    let is_unknown = opened.is_none() && known.searches() && fits.is_ok();
    if is_unknown && search.thorough > 0 && known.searches_thoroughly() {
        search.thorough -= 1;
        tried = MAX_HIGH_HALVES;
        let mut further = HIGH_HALVES..MAX_HIGH_HALVES;
        opened = further.find_map(|high| open(known, high << 32 | u64::from(low)));
    }
    let Some((number, mut text)) = opened else {
        let reason = fits.err().unwrap_or(Reason::Forged);
        let mut findings = if known.diagnoses_left == 0 {
            Vec::new()
        } else {
            diagnose::forged(sealed, all, index, candidates[0])
        };
        if findings.is_empty() && all[index].searches() && reason == Reason::Forged {
            findings.push(format!(
                "if the key is correct, the packet was altered or the high half of its sequence number is {tried} or \
                 more: `--esn-high N` tries N"
            ));
        }
        all[index].diagnoses_left = all[index].diagnoses_left.saturating_sub(1);
        return Err((reason, findings));
    };
    if all[index].tally.last.is_none() && number >> 32 > 0 {
        let high = number >> 32;
        notes.push(format!(
            "the capture begins in the middle: the high half of the sequence number is {high}"
        ));
    }
    if let Some(words) = diagnose::ah_padding(sealed, &all[index])
        && !std::mem::replace(&mut all[index].padding_reported, true)
    {
        notes.push(words);
    }
    all[index].arrived(number, notes);
    if let Protocol::Ah = sealed.protocol {
        let next_header = *sealed.body.first().ok_or(bare(Reason::Truncated))?;
        return Ok(Decrypted { next_header, payload: text, number });
    }
    match esp::read_trailer(&text) {
        Ok((next_header, len)) => {
            text.truncate(len);
            Ok(Decrypted { next_header, payload: text, number })
        }
        Err(reason) => Err((reason, diagnose::bad_padding(sealed, &all[index], number))),
    }
}
