/* Values as people read them. */

const KIB = 1024, MIB = 1024 ** 2, GIB = 1024 ** 3;
const WORKLOAD_TITLES = {
  download: 'Download', upload: 'Upload', many: 'Many files', parallel: 'Parallel transfers', sessions: 'Sessions of several clients', commands: 'Commands', page: 'Web page',
  stream: 'TCP stream', packets: 'Datagrams, one after the other', echo: 'Datagrams, there and back', setup: 'Setting a layer up',
  realtime: 'Real-time stream',
};

function format3(value) {
  const digits = Math.abs(value) >= 1000 ? 0 : undefined;
  const rounded = Number(Number(value).toPrecision(3));
  return withMinus(rounded.toLocaleString('en-US', { maximumFractionDigits: digits ?? 6 }));
}

/** The minus of typography, and none before what is rounded to 0. */
function withMinus(figure) {
  return figure.replace(/^-(?=[0.,]*$)/, '').replace('-', '−');
}

function signed(value, format) {
  if (value === 0) return '±0';
  return value > 0 ? `+${format(value)}` : format(value);
}

function formatPct(pct) {
  const size = Math.abs(pct);
  const decimals = size >= 100 ? 0 : size >= 10 ? 1 : 2;
  const rounded = size >= 100 ? Number(pct.toPrecision(3)) : Number(pct.toFixed(decimals));
  const digits = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
  return `${signed(rounded, (value) => withMinus(value.toLocaleString('en-US', digits))).replace('±', '')} %`;
}

function formatInterval(interval) {
  if (!interval) return 'no interval';
  return interval.map((end) => formatPct(end).replace(' %', '')).join(' to ');
}

function holdsZero(interval) {
  return interval !== null && interval[0] <= 0 && interval[1] >= 0;
}

/** How many runs the cells of a table are made of. */
function runCount(rows) {
  const counts = rows.map((row) => number(row.n)).filter((n) => n !== null);
  if (!counts.length) return '';
  const least = Math.min(...counts), most = Math.max(...counts);
  const few = least < 5 ? ' Fewer than five runs support no comparison.' : '';
  return `n = ${least === most ? least : `${least} to ${most}`} runs.${few}`;
}

function failureText({ n, failed }) {
  const all = number(n) === null ? '' : ` of ${n + failed}`;
  return `${failed}${all} failed`;
}

function formatTime(seconds) {
  if (number(seconds) === null) return '–';
  if (seconds === 0) return '0 s';
  if (Math.abs(seconds) < 1e-3) return `${format3(seconds * 1e6)} µs`;
  if (Math.abs(seconds) < 1) return `${format3(seconds * 1e3)} ms`;
  if (Math.abs(seconds) < 180) return `${format3(seconds)} s`;
  return `${format3(seconds / 60)} min`;
}

function formatSize(bytes) {
  if (number(bytes) === null) return 'no size';
  const decimal = bytes % 1024 !== 0 && bytes % 1000 === 0;
  const units = decimal ? [[1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB']] : [[GIB, 'GiB'], [MIB, 'MiB'], [KIB, 'KiB']];
  const [factor, unit] = units.find(([candidate]) => bytes >= candidate) ?? [1, 'B'];
  return `${format3(bytes / factor)} ${unit}`;
}

function formatMemory(bytes) {
  return `${format3(bytes / GIB)} GiB`;
}

function formatRate(rate_bps) {
  if (number(rate_bps) === null) return '–';
  const [factor, unit] = [[1e9, 'Gbit/s'], [1e6, 'Mbit/s'], [1e3, 'kbit/s']].find(([candidate]) => rate_bps >= candidate * 0.9995) ?? [1, 'bit/s'];
  return `${format3(rate_bps / factor)} ${unit}`;
}

function milliseconds(value) {
  return number(value) === null ? '–' : value === 0 ? '0' : formatTime(value / 1e3);
}

function formatDate(text) {
  // Written as recorded: the reader's time zone says nothing about the run.
  return asText(text).replace('T', ' ').replace(/:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?$/, (_, _fraction, zone) => (zone === 'Z' ? ' UTC' : zone ? ` ${zone}` : ''));
}

function readable(name) {
  return String(name).replace(/_/g, ' ');
}

function shorten(text, most = 24) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** Of a workload's name: its kind, and in brackets what is not default of it. */
function workloadTitle(name) {
  const [kind, ...words] = asText(name).split('(');
  return Object.hasOwn(WORKLOAD_TITLES, kind) ? [WORKLOAD_TITLES[kind], ...words].join(' (') : asText(name);
}

function linkName(link) {
  return asText(link.name ?? 'unnamed link');
}

/** Whether a direction follows a recorded trace, so that the link has no single rate. */
function followsTrace(link) {
  return Object.values(record(link.directions)).some((direction) => traceOf(direction) !== null);
}

function traceOf(direction) {
  return positive(record(record(direction).trace).mean_bps) === null ? null : direction.trace;
}

function describeLink(link) {
  const unlimited = followsTrace(link) ? linkName(link) : link.name === 'unshaped' ? 'no rate limit' : `${linkName(link)}, no rate limit`;
  const rate = positive(link.rate_bps) === null ? unlimited : `${linkName(link)}, ${formatRate(link.rate_bps)}`;
  const delay = positive(link.delay_ms) === null ? '' : `, ${formatTime(link.delay_ms / 1e3)} delay`;
  return `${rate}${delay}${rttOf(link) === null ? '' : `, round trip ${formatTime(rttOf(link))}`}`;
}

/** Powers of ten, as sizes between those that were measured are written. */
function formatBytes(bytes) {
  const [factor, unit] = [[1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB']].find(([candidate]) => bytes >= candidate) ?? [1, 'B'];
  return `${format3(bytes / factor)} ${unit}`;
}

/** A cost with half of its 95 % interval, in as many digits as the half deserves. No cost is below 0 or, where that is known, above `most`:
    where value or interval are, the possible part of the interval (the rule of crates/lab-results/src/analysis/cost.rs). */
function costText(value, interval, factor = 1, most = Infinity) {
  const ends = list(interval), possible = value >= 0 && value <= most;
  if (ends.length !== 2 || !ends.every(Number.isFinite)) return possible ? format3(value * factor) : '–';
  const [low, high] = ends, whole = possible && low > 0;
  if (!whole && !(high > 0 && Math.max(low, 0) <= most)) return '–';
  const [from, to] = whole ? ends : [Math.max(low, 0), Math.min(high, most)];
  const half = (to - from) / 2 * factor;
  const decimals = half > 0 ? Math.min(6, Math.max(0, 1 - Math.floor(Math.log10(half)))) : 3;
  const figure = (shown) => withMinus(shown.toLocaleString('en-US', { minimumFractionDigits: decimals, maximumFractionDigits: decimals }));
  if (whole) return `${figure(value * factor)} ± ${figure(half)}`;
  return `${from === 0 ? '0' : figure(from * factor)} to ${figure(to * factor)}`;
}
