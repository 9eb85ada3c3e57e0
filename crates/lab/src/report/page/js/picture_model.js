/* What the picture of any link is drawn from. */

const RATE_DOMAIN = { least: 10e6, most: 10e9, limit: 1e12 };
const RTT_TOLERANCE = 0.2;
const UNMOVED_PCT = 0.1;

/**
 * Session time in seconds of one transfer: the round trips before the first byte, the part that
 * depends neither on size nor on distance, and the body, which takes the longer of filling the
 * link (file and extra bytes at `rate_bps`) and of working through it on this machine.
 * `measuredRtt_s` is the round-trip time at which `fixed_s` was measured and which it contains.
 */
function predictSeconds(cost, rate_bps, rtt_s, size_bytes, measuredRtt_s) {
  const waiting = cost.round_trips * rtt_s;
  const working = Math.max(0, cost.fixed_s - cost.round_trips * measuredRtt_s);
  const sending = size_bytes * (1 + cost.extra_bytes_per_mb / 1e6) * 8 / rate_bps;
  const computing = size_bytes * cost.seconds_per_gb / 1e9;
  return waiting + working + Math.max(sending, computing);
}

function predictOverheadPct(line, rate_bps, rtt_s, size_bytes, measuredRtt_s) {
  const stack = predictSeconds(line.cost, rate_bps, rtt_s, size_bytes, measuredRtt_s);
  const base = predictSeconds(line.base, rate_bps, rtt_s, size_bytes, measuredRtt_s);
  return 100 * (stack / base - 1);
}

function missingFigures(cost) {
  return ['round_trips', 'extra_bytes_per_mb', 'fixed_s', 'seconds_per_gb'].filter((key) => number(cost[key]) === null);
}

/** The stacks that can be predicted, and sentences about those that cannot. */
function predictableLines(report) {
  const lines = [], omitted = [];
  for (const { name, baseline, index } of report.stacks) {
    if (baseline === null) continue;
    const cost = record(report.costs.get(name)), base = record(report.costs.get(baseline));
    const missing = [...missingFigures(cost).map((key) => `${key} of ${name}`), ...missingFigures(base).map((key) => `${key} of ${baseline}`)];
    if (missing.length) omitted.push(`${name} has no line: not measured were ${missing.join(', ')}.`);
    else lines.push({ name, baseline, index, cost, base, knee_bps: positive(cost.fill_bps) });
  }
  return { lines, omitted };
}

/** What was measured on the session clock, at the place in the picture where the line should meet it. */
function measuredPoints(report, lines) {
  const points = [];
  for (const line of lines) {
    for (const row of findRows(report, { stack: line.name, workload: 'download' })) {
      const link = report.links.find((candidate) => candidate.name === row.link);
      const { pct, interval } = overheadOf(row, 'session');
      const rate_bps = link && (positive(link.rate_bps) ?? positive(line.base.fill_bps));
      if (!link || pct === null || !rate_bps || number(row.size_bytes) === null) continue;
      const shaped = positive(link.rate_bps) !== null;
      points.push({ line, link, pct, interval, rate_bps, shaped, size_bytes: row.size_bytes, notShaped: shaped && row.not_shaped === true, rtt_s: rttOf(link) });
    }
  }
  return points;
}

function rttOf(link) {
  const rtt_us = positive(link.rtt_us);
  return rtt_us === null ? null : rtt_us / 1e6;
}

/** A point may stand on the picture if its link's round-trip time is near the chosen one, or too small to matter. */
function isComparable(point, rtt_s, measuredRtt_s) {
  const own = point.rtt_s ?? measuredRtt_s;
  if (Math.abs(rtt_s - own) <= RTT_TOLERANCE * own) return true;
  const predict = (rtt) => predictOverheadPct(point.line, point.rate_bps, rtt, point.size_bytes, measuredRtt_s);
  return Math.abs(predict(rtt_s) - predict(own)) < UNMOVED_PCT;
}

function pictureAt(model, { size_bytes, rtt_s }) {
  const at = (line, rate) => predictOverheadPct(line, rate, rtt_s, size_bytes, model.measuredRtt_s);
  const here = model.points.filter((point) => point.size_bytes === size_bytes && !point.notShaped);
  const points = here.filter((point) => isComparable(point, rtt_s, model.measuredRtt_s));
  return {
    at,
    points,
    hidden: here.filter((point) => !points.includes(point)),
    notShaped: model.points.filter((point) => point.size_bytes === size_bytes && point.notShaped),
    curves: model.lines.map((line) => model.rates.map((rate) => at(line, rate))),
  };
}

function rateDomain(lines, points) {
  const wanted = [...lines.flatMap((line) => [line.knee_bps, positive(line.base.fill_bps)]), ...points.map((point) => point.rate_bps)]
    .filter((rate) => rate !== null && rate < RATE_DOMAIN.limit);
  const least = Math.min(RATE_DOMAIN.least, ...wanted.map((rate) => rate / 1.05));
  const most = Math.max(RATE_DOMAIN.most, ...wanted.map((rate) => rate * 1.05));
  return [least, most];
}

/** Evenly spaced on the log axis, with the knees themselves so that corners stay sharp. */
function sampleRates([least, most], lines) {
  const steps = 300, ratio = Math.log(most / least);
  const even = Array.from({ length: steps + 1 }, (_, step) => least * Math.exp(ratio * step / steps));
  const knees = lines.flatMap((line) => [line.knee_bps, positive(line.base.fill_bps)]).filter((rate) => rate > least && rate < most);
  return [...new Set([...even, ...knees])].sort((a, b) => a - b);
}
