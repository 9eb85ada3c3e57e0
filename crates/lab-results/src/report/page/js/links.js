/* The links: what was asked for, what the self-test measured in each direction, and what made them. */

const DIRECTIONS = { down: 'to client', up: 'to server' };
const OWN_DROPS = ['dropped_by_memory', 'dropped_by_kernel', 'malformed'];

function renderLinks(body, report, counts) {
  const tested = report.links.filter((link) => link.self_test);
  counts.links += report.links.length;
  body.append(
    make('p', { class: 'lead' }, tested.length
      ? 'The lab tested each link with UDP probes in both directions before it used it. A main link that fails its test fails the run, and a validation link that fails is left out, unless --allow-failed-link-test was given.'
      : report.links.some(isReal) ? 'Client and server are two real hosts. Of their link the lab measured the round-trip time, by the client\u2019s clock.'
      : 'The link had no rate, delay or loss to test.'),
    make('div', { class: 'scroll' }, linkTable(report.links)));
  const details = report.links.filter((link) => list(link.commands).length);
  for (const link of details) body.append(folded(`Commands that made ${linkName(link)}`, make('pre', {}, list(link.commands).map(asText).join('\n'))));
}

function linkTable(links) {
  const rows = links.flatMap((link, position) => linkRows(link, position));
  const heads = [['Link', 'text'], ['Direction', 'text'], ['Rate'], ['Delay, one way'], ['99th percentile'], ['Loss'], ['Verdict', 'text'], ['Round trip']];
  return make('table', { class: 'links' },
    make('caption', {}, 'Large: requested. Small print: measured, and the tolerance. 99th percentile: delay beyond the requested one.'),
    make('thead', {}, make('tr', {}, ...heads.map(([head, kind]) => columnHead(head, { class: kind ?? null })))),
    make('tbody', {}, ...rows));
}

function linkRows(link, position) {
  const test = record(link.self_test);
  const directions = Object.keys(DIRECTIONS).filter((direction) => Object.keys(record(test[direction])).length);
  const rows = directions.length ? directions : [null];
  return rows.map((direction, turn) => make('tr', {},
    turn ? null : make('th', { scope: 'rowgroup', rowspan: rows.length }, ...breakable(linkName(link)), make('small', {}, position ? 'check of the prediction, ' : 'main link, ', makerText(link))),
    make('td', { class: 'text' }, direction === null ? 'both' : DIRECTIONS[direction]),
    ...testCells(link, direction === null ? null : record(test[direction]), direction),
    turn ? null : make('td', { rowspan: rows.length }, rttOf(link) === null ? 'not measured' : formatTime(rttOf(link)))));
}

function testCells(link, test, direction) {
  if (test === null && isReal(link)) {
    return ['not known', `${milliseconds(link.delay_ms)} (half of the round trip)`, '–', 'not known'].map((text) => make('td', {}, text))
      .concat(make('td', { class: 'text' }, 'not made, so not tested'));
  }
  if (test === null) {
    const unlimited = followsTrace(link) ? 'by a trace, not tested' : 'no limit';
    const asked = [positive(link.rate_bps) === null ? unlimited : formatRate(link.rate_bps), milliseconds(link.delay_ms), '–', `${format3(number(link.loss_pct) ?? 0)} %`];
    return [...asked.map((text) => make('td', {}, text)), make('td', { class: 'text' }, 'nothing to test')];
  }
  const rate = record(test.rate), delay = record(test.delay), loss = record(test.loss);
  const small = (text) => make('small', {}, text);
  const within = (bound, unit) => (number(bound) === null ? '' : `, within ±${format3(bound)} ${unit}`);
  const passed = [rate, delay, loss].every((part) => part.passed !== false);
  const trace = traceOf(record(link.directions)[direction]);
  const unlimited = trace === null ? 'no limit' : `by a trace, ${formatRate(trace.mean_bps)} on average, not tested`;
  return [
    make('td', {}, positive(rate.asked_bps) === null ? unlimited : formatRate(rate.asked_bps), number(rate.measured_bps) === null ? null : small(`${formatRate(rate.measured_bps)}, ${formatPct(rate.error_pct)}${within(rate.allowed_pct, '%')}`)),
    make('td', {}, number(delay.asked_us) === null ? '–' : formatTime(delay.asked_us / 1e6), number(delay.median_error_us) === null ? null : small(`${signed(delay.median_error_us, format3)} µs${within(delay.allowed_us, 'µs')}`)),
    make('td', {}, number(delay.p99_error_us) === null ? '–' : `${signed(delay.p99_error_us, format3)} µs`),
    make('td', {}, number(loss.asked_pct) === null ? '–' : `${format3(loss.asked_pct)} %`, number(loss.sent) === null ? null : small(`${asText(loss.lost)} of ${asText(loss.sent)}${expectedLosses(list(loss.interval))}`)),
    make('td', { class: passed ? 'text' : 'text failed' }, passed ? '✓ within' : '✕ out of bounds'),
  ];
}

function expectedLosses(interval) {
  if (interval.length !== 2) return '';
  return interval[1] === 0 ? ', none expected' : `, ${interval.map(asText).join(' to ')} expected`;
}

/** A link between two real hosts, which nobody made. */
function isReal(link) {
  return positive(record(link.round_trips).median_us) !== null;
}

function makerText(link) {
  if (isReal(link)) return asText(link.backend ?? '–');
  const emulator = record(link.emulator);
  const own = Object.values(record(emulator.counters)).flatMap((counters) => OWN_DROPS.map((name) => number(record(counters)[name]) ?? 0)).reduce((sum, count) => sum + count, 0);
  const share = number(emulator.cpu_seconds) === null || !positive(emulator.seconds) ? '' : ` (${format3(emulator.cpu_seconds / emulator.seconds)} of a core${own ? `, dropped ${format3(own)} frames of its own` : ''})`;
  return `made by ${asText(link.backend ?? '–')}${share}`;
}

/** One line on a link and its test, for the top of the page. */
function linkVerdict(link) {
  const test = record(link.self_test);
  if (isReal(link)) return `${linkName(link)} between two real hosts, ${formatTime(record(link.round_trips).median_us / 1e6)} there and back`;
  if (!link.self_test) return `${linkName(link)}, nothing to test`;
  return `${linkName(link)} by ${asText(link.backend ?? '–')}, self-test ${test.passed === true ? 'passed' : 'failed'}`;
}
