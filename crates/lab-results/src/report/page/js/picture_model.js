/* What the picture of any link is drawn from: lines that are predicted, points that were measured. */

const RATE_DOMAIN = { least: 10e6, most: 10e9, limit: 1e12 };
const RTT_TOLERANCE = 0.2;
const UNMOVED_PCT = 0.1;

/** The stacks that can be predicted, and sentences about those that cannot. */
function predictableLines(report) {
  const lines = [], omitted = [];
  const unlimited = positive(report.mainLink.rate_bps) === null;
  for (const { name, baseline, index } of report.stacks) {
    if (baseline === null) continue;
    const rows = [name, baseline].map((stack) => [stack, record(report.costs.get(stack))]);
    const missing = rows.flatMap(([stack, row]) => [...missingFigures(row), ...(unlimited && positive(row.seconds_per_gb) === null ? ['seconds_per_gb'] : [])].map((key) => `${readable(key)} of ${stack}`));
    if (missing.length) {
      omitted.push(`${name} has no line: this run could not tell ${missing.join(', ')}.`);
      continue;
    }
    const [row, baseRow] = rows.map(([, found]) => found);
    lines.push({ name, baseline, index, costs: costsOf(row), base: costsOf(baseRow), knee_bps: positive(row.fill_bps), baseKnee_bps: positive(baseRow.fill_bps) });
  }
  return { lines, omitted };
}

function predictOverheadPct(line, link, bytes) {
  return 100 * (predictSeconds(line.costs, link, bytes) / predictSeconds(line.base, link, bytes) - 1);
}

/** What was measured on the session clock, at the place in the picture where the line should meet it. */
function measuredPoints(report, lines) {
  const points = [];
  for (const line of lines) {
    for (const row of findRows(report, { stack: line.name, workload: 'download' })) {
      const link = report.links.find((candidate) => candidate.name === row.link);
      const { pct, interval } = overheadOf(row, 'session');
      const rate_bps = link && (positive(link.rate_bps) ?? line.baseKnee_bps);
      if (!link || pct === null || !rate_bps || number(row.size_bytes) === null) continue;
      const shaped = positive(link.rate_bps) !== null;
      points.push({ line, link, pct, interval, rate_bps, shaped, size_bytes: row.size_bytes, notShaped: shaped && row.not_shaped === true, rtt_s: rttOf(link), loss: (number(link.loss_pct) ?? 0) / 100 });
    }
  }
  return points;
}

/** A point may stand on the picture if its link is as far and as lossy as the chosen one, or the difference too small to matter. */
function isComparable(point, chosen, measuredRtt_s) {
  const own = point.rtt_s ?? measuredRtt_s;
  if (Math.abs(chosen.rtt_s - own) <= RTT_TOLERANCE * own && Math.abs(chosen.loss - point.loss) < 1e-6) return true;
  const predict = (link) => predictOverheadPct(point.line, { ...link, rate_bps: point.rate_bps }, point.size_bytes);
  return Math.abs(predict(chosen) - predict({ ...chosen, rtt_s: own, loss: point.loss })) < UNMOVED_PCT;
}

function pictureModel(report, lines) {
  const all = measuredPoints(report, lines);
  const measuredRtt_s = rttOf(report.mainLink) ?? 0;
  const domain = rateDomain(lines, all, positive(report.mainLink.rate_bps));
  const points = all.filter((point) => point.rate_bps <= domain[1]);
  return { lines, points, domain, rates: sampleRates(domain, lines, positive(report.mainLink.rate_bps)), measuredRtt_s, segment_bytes: segmentBytes(report.plan), atMost_bps: positive(report.mainLink.rate_bps) };
}

function pictureAt(model, { size_bytes, rtt_s, loss }) {
  const chosen = { rtt_s, loss, segment_bytes: model.segment_bytes };
  const at = (line, rate_bps) => predictOverheadPct(line, { ...chosen, rate_bps }, size_bytes);
  const here = model.points.filter((point) => point.size_bytes === size_bytes && !point.notShaped);
  const points = here.filter((point) => isComparable(point, chosen, model.measuredRtt_s));
  return {
    at,
    points,
    hidden: here.filter((point) => !points.includes(point)),
    notShaped: model.points.filter((point) => point.size_bytes === size_bytes && point.notShaped),
    curves: model.lines.map((line) => model.rates.map((rate) => (rate > (model.atMost_bps ?? Infinity) ? null : at(line, rate)))),
  };
}

/** A main link with a rate hides what lies beyond it: how fast this machine would be there was not seen. The room is for marks. */
function rateDomain(lines, points, atMost_bps) {
  if (atMost_bps !== null) return [Math.min(1e6, atMost_bps / 100), atMost_bps * 1.25];
  const wanted = [...lines.flatMap((line) => [line.knee_bps, line.baseKnee_bps]), ...points.map((point) => point.rate_bps)]
    .filter((rate) => rate !== null && rate < RATE_DOMAIN.limit);
  const least = Math.min(RATE_DOMAIN.least, ...wanted.map((rate) => rate / 1.05));
  const most = Math.max(RATE_DOMAIN.most, ...wanted.map((rate) => rate * 1.05));
  return [least, most];
}

/** Evenly spaced on the log axis, with knees and ends themselves so that corners stay sharp. */
function sampleRates([least, most], lines, atMost_bps) {
  const steps = 300, ratio = Math.log(most / least);
  const even = Array.from({ length: steps + 1 }, (_, step) => least * Math.exp(ratio * step / steps));
  const knees = [atMost_bps, ...lines.flatMap((line) => [line.knee_bps, line.baseKnee_bps])].filter((rate) => rate > least && rate < most);
  return [...new Set([...even, ...knees])].sort((a, b) => a - b);
}

function baselineKnees(lines) {
  return new Map(lines.map((line) => [line.baseline, line.baseKnee_bps]).filter(([, rate]) => rate !== null && rate < RATE_DOMAIN.limit));
}
