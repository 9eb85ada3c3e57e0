/* Reads the results inside the page. The data contract is docs/results.md. */

const SCHEMA = 3;
const CLOCKS = { transfer: 'transfer only', session: 'whole session' };

function parseReport(text) {
  const raw = record(JSON.parse(text));
  const plan = record(raw.plan);
  const report = {
    schema: raw.schema,
    plan,
    environment: record(raw.environment),
    links: [record(raw.link), ...records(raw.validation_links)],
    samples: records(raw.samples),
    summary: records(raw.summary),
    portable: records(raw.portable),
    models: records(raw.models),
    crossovers: records(raw.crossovers),
    predictions: records(raw.predictions),
    accounting: record(raw.accounting),
    clearText: new Map(records(raw.clear_text).map((row) => [row.stack, row])),
    captures: records(raw.captures),
    layerSetups: records(raw.layer_setups),
    timelines: records(raw.timelines),
    warnings: list(raw.warnings).map(asText),
  };
  report.mainLink = report.links[0];
  report.stacks = orderedStacks(records(plan.stacks), report.summary, report.portable);
  report.costs = new Map(report.portable.map((row) => [row.stack, row]));
  if (raw.schema !== SCHEMA) {
    report.warnings.push(`The results have schema ${asText(raw.schema)}, this page was made for schema ${SCHEMA}: some figures may be missing.`);
  }
  return report;
}

/** Each baseline followed by the stacks compared with it; `index` picks colour, dash and mark, below 0 those of baselines. */
function orderedStacks(planned, summary, portable) {
  const baselines = new Map();
  for (const { name, stack, baseline } of [...planned, ...portable, ...summary]) {
    const key = asText(name ?? stack);
    if (!baselines.has(key)) baselines.set(key, baseline === undefined || baseline === null ? null : asText(baseline));
  }
  const roots = [...baselines.keys()].filter((name) => baselines.get(name) === null);
  const ordered = roots.flatMap((root) => [root, ...[...baselines.keys()].filter((name) => baselines.get(name) === root)]);
  const rest = [...baselines.keys()].filter((name) => !ordered.includes(name));
  let index = 0, plain = -1;
  return [...ordered, ...rest].map((name) => {
    const baseline = baselines.get(name);
    return { name, baseline, index: baseline === null ? plain-- : index++ };
  });
}

function findRows(report, wanted) {
  return report.summary.filter((row) => Object.entries(wanted).every(([key, value]) => row[key] === value));
}

function overheadOf(row, clock) {
  const [pct, interval] = clock === 'session'
    ? [row.session_overhead_pct, row.session_overhead_ci95_pct]
    : [row.overhead_pct, row.overhead_ci95_pct];
  const bounds = list(interval);
  // The interval of two pairs says nothing.
  const known = row.overhead_n !== 2 && bounds.length === 2 && bounds.every(Number.isFinite);
  return { pct: number(pct), interval: known ? bounds : null };
}

function meanOf(row, clock) {
  return number(clock === 'session' ? row.session_mean_s : row.mean_s);
}

function workloadsOf(rows) {
  const known = Object.keys(WORKLOAD_TITLES);
  const rank = (name) => (known.indexOf(name.split('(')[0]) + known.length + 1) % (known.length + 1);
  return [...new Set(rows.map((row) => asText(row.workload)))].sort((a, b) => rank(a) - rank(b));
}

function sizesOf(rows) {
  const sizes = [...new Set(rows.map((row) => number(row.size_bytes)))];
  return sizes.sort((a, b) => (a ?? -1) - (b ?? -1));
}

function rttOf(link) {
  const rtt_us = positive(link.rtt_us);
  return rtt_us === null ? null : rtt_us / 1e6;
}

/** The samples of a row that names link, stack, workload and size. */
function samplesOf(report, row) {
  return report.samples.filter((sample) => ['link', 'stack', 'workload', 'size_bytes'].every((key) => (sample[key] ?? null) === (row[key] ?? null)));
}
