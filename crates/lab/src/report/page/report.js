'use strict';

/* Draws the report from the results embedded in the page. The data contract is docs/results.md.
   Names and errors in it come from files and programs, so they reach the page only as text nodes. */

const SCHEMA = 1;
const KIB = 1024, MIB = 1024 ** 2, GIB = 1024 ** 3;
const SIZE_CHOICES = [KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB, 4 * GIB, 10 * GIB];
const RTT_CHOICE_S = { least: 0.05e-3, most: 200e-3 };
const RATE_DOMAIN = { least: 10e6, most: 10e9, limit: 1e12 };
const RTT_TOLERANCE = 0.2;
const UNMOVED_PCT = 0.1;
const ASINH_THRESHOLD_PCT = 0.5;
const MOST_SIZES_IN_COST_TABLE = 4;
const PLOT_HEIGHT = 420;
const DASHES = [[], [9, 4], [2, 3], [9, 3, 2, 3], [16, 4], [5, 2], [12, 3, 2, 3, 2, 3]];
const COLOURS = 7;
const MOST_FULL_LABELS = 5;
const LABEL_DIRECTIONS = [[-1, -1], [-1, 0], [-1, 1], [-0.5, -1], [-0.5, 1], [0, -1], [0, 1], [0.5, -1], [0.5, 1], [1, -1], [1, 1], [1, 0]];
const CLOCKS = { transfer: 'transfer only', session: 'whole session' };
const WORKLOAD_TITLES = {
  download: 'Download', upload: 'Upload', many: 'Many files', parallel: 'Parallel transfers', commands: 'Commands', page: 'Web page',
};
const LIMITS = {
  CPU: 'Limited by the CPU: the machine was less than 10 % idle, so this is a result of the processor and not of the network',
  link: 'Limited by the link: the network was full',
  window: 'Limited by a window: a TCP or SSH window, or the client\'s outstanding requests, held the sender back',
  waiting: 'Limited by waiting: most of the time nothing moved, the two sides waited for each other',
};

function renderReport() {
  const counts = { charts: 0, lines: 0, points: 0, strips: 0, cells: 0, errors: 0 };
  const sections = [
    ['cost', renderCosts], ['picture', renderPicture], ['time', renderTimelines],
    ['cells', renderHeatMaps], ['machine', renderMachine], ['warnings', renderWarnings],
  ];
  let report = null;
  try {
    report = parseReport(document.getElementById('results').textContent);
    renderHead(report);
  } catch (error) {
    report = null;
    reportFailure(document.querySelector('#cost .body'), 'The results inside this page could not be read', error, counts);
  }
  if (report) {
    for (const [id, render] of sections) guarded(id, render, report, counts);
  }
  for (const [name, count] of Object.entries(counts)) document.documentElement.dataset[name] = String(count);
  document.documentElement.dataset.rendered = report ? 'ok' : 'unreadable';
}

function guarded(id, render, report, counts) {
  const body = document.querySelector(`#${id} .body`);
  try {
    render(body, report, counts);
  } catch (error) {
    body.replaceChildren();
    reportFailure(body, 'This section could not be drawn', error, counts);
  }
}

function reportFailure(place, what, error, counts) {
  counts.errors += 1;
  place.append(make('p', { class: 'notice' }, `${what} (${error.message}). The numbers are also in results.json beside this page.`));
}

// ---------------------------------------------------------------- reading the results

function parseReport(text) {
  const raw = record(JSON.parse(text));
  const plan = record(raw.plan);
  const report = {
    schema: raw.schema,
    plan,
    environment: record(raw.environment),
    links: [record(raw.link), ...records(raw.check_links)],
    samples: records(raw.samples),
    summary: records(raw.summary),
    portable: records(raw.portable),
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

/** Each baseline followed by the stacks compared with it; `index` picks colour, dash and mark. */
function orderedStacks(planned, summary, portable) {
  const baselines = new Map();
  for (const { name, stack, baseline } of [...planned, ...portable, ...summary]) {
    const key = asText(name ?? stack);
    if (!baselines.has(key)) baselines.set(key, baseline === undefined || baseline === null ? null : asText(baseline));
  }
  const roots = [...baselines.keys()].filter((name) => baselines.get(name) === null);
  const ordered = roots.flatMap((root) => [root, ...[...baselines.keys()].filter((name) => baselines.get(name) === root)]);
  const rest = [...baselines.keys()].filter((name) => !ordered.includes(name));
  let index = 0;
  return [...ordered, ...rest].map((name) => {
    const baseline = baselines.get(name);
    return { name, baseline, index: baseline === null ? null : index++ };
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
  return { pct: number(pct), interval: bounds.length === 2 && bounds.every(Number.isFinite) ? bounds : null };
}

function meanOf(row, clock) {
  return number(clock === 'session' ? row.session_mean_s : row.mean_s);
}

function workloadsOf(rows) {
  const known = Object.keys(WORKLOAD_TITLES);
  const rank = (kind) => (known.includes(kind) ? known.indexOf(kind) : known.length);
  return [...new Set(rows.map((row) => asText(row.workload)))].sort((a, b) => rank(a) - rank(b));
}

function sizesOf(rows) {
  const sizes = [...new Set(rows.map((row) => number(row.size_bytes)))];
  return sizes.sort((a, b) => (a ?? -1) - (b ?? -1));
}

// ---------------------------------------------------------------- top of the page

function renderHead(report) {
  const { environment, plan, warnings } = report;
  const question = document.querySelector('h1').textContent.trim();
  document.title = question ? `${question} · Headroom lab` : 'Headroom lab report';
  const facts = [plan.name && `plan ${asText(plan.name)}`, environment.started && formatDate(environment.started), environment.cpu && asText(environment.cpu)];
  document.getElementById('run-facts').textContent = facts.filter(Boolean).map((fact) => `· ${fact}`).join(' ');
  if (warnings.length) {
    const pointer = document.getElementById('warning-pointer');
    const count = warnings.length === 1 ? '1 warning' : `${warnings.length} warnings`;
    pointer.append(make('a', { href: '#warnings' }, count), ' about this run: read before quoting a figure.');
    pointer.hidden = false;
  }
}

// ---------------------------------------------------------------- the table of costs

function renderCosts(body, report) {
  const rows = findRows(report, { link: report.mainLink.name });
  const workloads = workloadsOf(rows);
  if (!report.stacks.length) {
    body.append(make('p', {}, 'The results name no stack.'));
    return;
  }
  const choice = { workload: workloads[0] ?? 'download', clock: 'transfer' };
  const place = make('div', { class: 'scroll' });
  const draw = () => place.replaceChildren(costTable(report, rows, choice));
  addTools(body,
    segmented('Overhead of', 'cost-workload', workloads.map((kind) => [kind, workloadTitle(kind).toLowerCase()]), choice.workload, (kind) => { choice.workload = kind; draw(); }),
    segmented('Clock', 'cost-clock', Object.entries(CLOCKS), choice.clock, (clock) => { choice.clock = clock; draw(); }));
  body.append(place);
  draw();
}

function costTable(report, linkRows, { workload, clock }) {
  const rows = linkRows.filter((row) => row.workload === workload);
  const all = sizesOf(rows);
  const sizes = spacedChoice(all, MOST_SIZES_IN_COST_TABLE);
  const left = all.length > sizes.length ? ` ${all.length - sizes.length} more sizes are in the table of all cells.` : '';
  const caption = make('caption', {},
    `Link: ${describeLink(report.mainLink)}. Grey: plain baselines and their time. Small print: difference to the baseline, or 95 % interval.${left}`);
  const head = make('thead', {},
    make('tr', {},
      columnHead('Stack', { rowspan: 2, class: 'text' }), columnHead('Baseline', { rowspan: 2, class: 'text' }),
      columnHead('Round trips before first byte', { rowspan: 2 }), columnHead('Extra bytes per MB', { rowspan: 2 }),
      columnHead('CPU-seconds per GB', { rowspan: 2 }),
      make('th', { scope: 'colgroup', colspan: Math.max(1, sizes.length), class: 'group' }, `Overhead, ${workloadTitle(workload).toLowerCase()}, ${CLOCKS[clock]}`),
      columnHead('Limited by', { rowspan: 2, class: 'text' })),
    make('tr', {}, ...sizes.map((size) => columnHead(formatSize(size)))));
  const lines = report.stacks.map((stack) => costRow(report, stack, rows.filter((row) => row.stack === stack.name), sizes, clock));
  return make('table', { class: 'cost' }, caption, head, make('tbody', {}, ...lines));
}

function costRow(report, stack, rows, sizes, clock) {
  const cost = record(report.costs.get(stack.name));
  const base = record(report.costs.get(stack.baseline));
  const rowAt = (size) => rows.find((row) => number(row.size_bytes) === size);
  return make('tr', { class: stack.baseline === null ? 'baseline' : null },
    rowHead(stack.name),
    make('td', { class: 'base' }, ...breakable(stack.baseline ?? 'plain')),
    costCell(cost.round_trips, base.round_trips),
    costCell(cost.extra_bytes_per_mb, base.extra_bytes_per_mb),
    costCell(cost.cpu_seconds_per_gb, base.cpu_seconds_per_gb),
    ...sizes.map((size) => overheadCell(rowAt(size), clock)),
    make('td', { class: 'why' }, make('small', {}, limitedBy(rows.filter((row) => sizes.includes(number(row.size_bytes)))))));
}

function costCell(value, baseValue) {
  if (number(value) === null) return make('td', {}, 'not measured');
  const difference = number(baseValue) === null ? null : make('small', {}, signed(value - baseValue, format3));
  return make('td', {}, format3(value), difference);
}

function overheadCell(row, clock) {
  if (!row) return make('td', {}, 'not run');
  const { pct, interval } = overheadOf(row, clock);
  const failed = number(row.failed) > 0 ? make('small', {}, failureText(row)) : null;
  if (pct === null) {
    const mean = meanOf(row, clock);
    return make('td', {}, mean === null ? 'no result' : formatTime(mean), failed);
  }
  return make('td', { class: holdsZero(interval) ? 'unsure' : null },
    make('span', { class: 'pct' }, formatPct(pct)), make('small', {}, formatInterval(interval)), failed);
}

function limitedBy(rows) {
  const known = rows.filter((row) => row.limited_by).sort((a, b) => a.size_bytes - b.size_bytes);
  const limits = [...new Set(known.map((row) => asText(row.limited_by)))];
  if (limits.length < 2) return limits[0] ?? '–';
  return limits.map((limit) => `${limit} at ${known.filter((row) => asText(row.limited_by) === limit).map((row) => formatSize(row.size_bytes)).join(', ')}`).join('; ');
}

// ---------------------------------------------------------------- the model behind the picture

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

// ---------------------------------------------------------------- the picture

function renderPicture(body, report, counts) {
  const { lines, omitted } = predictableLines(report);
  if (!lines.length) {
    body.append(make('p', {}, 'No stack could be predicted for another link.'), noteList(omitted));
    return;
  }
  const model = pictureModel(report, lines);
  const state = { size_bytes: largestMeasuredSize(report) ?? MIB, rtt_s: model.measuredRtt_s || RTT_CHOICE_S.least, hiddenLines: new Set() };
  const view = {
    plot: make('div', { class: 'plot' }), readout: make('output', { class: 'readout' }),
    notes: make('div'), numbers: make('div', { class: 'scroll' }),
  };
  const redraw = () => {
    view.picture = pictureAt(model, state);
    if (view.chart) setCurves(view.chart, model, view.picture);
    view.notes.replaceChildren(noteList(pictureNotes(model, state, view.picture, omitted)));
    view.numbers.replaceChildren(lineTable(model, view.picture));
    showReadout(view, model, state);
  };
  addTools(body, ...pictureControls(report, model, state, redraw));
  body.append(
    make('p', { class: 'lead' }, 'Predicted overhead of one download, connecting included. Left of its dot a stack still fills the link; right of it this machine is the limit.'),
    seriesKey(model, state, view), view.plot, view.readout, view.notes,
    make('details', {}, make('summary', {}, 'The lines as numbers'), view.numbers),
    make('details', {}, make('summary', {}, `Prediction against measurement, ${model.points.length} points`), make('div', { class: 'scroll' }, agreementTable(model))));
  redraw();
  view.chart = makeChart(model, state, view);
  counts.charts += 1;
  counts.lines += lines.length;
  counts.points += view.picture.points.length;
}

function pictureModel(report, lines) {
  const points = measuredPoints(report, lines);
  const domain = rateDomain(lines, points);
  return { lines, points, domain, rates: sampleRates(domain, lines), measuredRtt_s: rttOf(report.mainLink) ?? 0 };
}

function largestMeasuredSize(report) {
  const sizes = sizesOf(report.summary.filter((row) => row.workload === 'download')).filter((size) => size > 0);
  return sizes.length ? sizes[sizes.length - 1] : null;
}

function pictureControls(report, model, state, redraw) {
  const measuredSizes = sizesOf(report.summary.filter((row) => row.workload === 'download')).filter((size) => size > 0);
  const sizes = [...new Set([...SIZE_CHOICES, ...measuredSizes, state.size_bytes])].sort((a, b) => a - b);
  const select = make('select', { onchange: () => { state.size_bytes = Number(select.value); redraw(); } },
    ...sizes.map((size) => make('option', { value: size, selected: size === state.size_bytes }, formatSize(size) + (measuredSizes.includes(size) ? ' (measured)' : ''))));
  return [make('label', {}, 'File size', select), ...rttControls(report, state, redraw)];
}

function rttControls(report, state, redraw) {
  const least = Math.min(RTT_CHOICE_S.least, state.rtt_s), most = Math.max(RTT_CHOICE_S.most, state.rtt_s);
  const steps = 400, ratio = Math.log(most / least);
  const range = make('input', { type: 'range', min: 0, max: steps, 'aria-label': 'Round-trip time, logarithmic', oninput: () => choose(least * Math.exp(ratio * range.value / steps)) });
  const entry = make('input', { type: 'number', min: Number((least * 1e3).toPrecision(3)), max: most * 1e3, step: 'any', onchange: () => choose(entry.value > 0 ? entry.value / 1e3 : state.rtt_s) });
  const choose = (rtt_s) => { state.rtt_s = Math.min(most, Math.max(least, rtt_s)); show(); redraw(); };
  const show = () => {
    range.value = steps * Math.log(state.rtt_s / least) / ratio;
    range.setAttribute('aria-valuetext', formatTime(state.rtt_s));
    entry.value = Number((state.rtt_s * 1e3).toPrecision(3));
  };
  show();
  const measured = report.links.filter((link) => rttOf(link) !== null);
  return [
    make('label', {}, 'Round-trip time', entry, 'ms'), range,
    measured.length ? make('span', { class: 'rtt-links' }, 'as on ', ...measured.flatMap((link) => [make('button', { type: 'button', title: formatTime(rttOf(link)), onclick: () => choose(rttOf(link)) }, linkName(link)), ' '])) : null,
  ];
}

function seriesKey(model, state, view) {
  const items = model.lines.map((line, position) => {
    const box = make('input', { type: 'checkbox', checked: true, onchange: () => {
      if (box.checked) state.hiddenLines.delete(line); else state.hiddenLines.add(line);
      view.chart.setSeries(position + 1, { show: box.checked });
      view.chart.redraw();
      showReadout(view, model, state);
    } });
    return make('li', {}, make('label', {}, box, lineSwatch(line), `${line.name} over ${line.baseline}`));
  });
  return make('ul', { class: 'series', 'aria-label': 'Lines of the picture' }, ...items,
    make('li', {}, kneeSwatch(), 'fastest link it still fills with large files'), make('li', {}, markSwatch(), 'measured, with 95 % interval'));
}

function lineSwatch({ index }) {
  const image = drawing('svg', { width: 34, height: 12, 'aria-hidden': 'true' });
  image.append(drawing('line', { x1: 0, y1: 6, x2: 34, y2: 6, stroke: `var(${colourOf(index)})`, 'stroke-width': 2.5, 'stroke-dasharray': dashOf(index).join(' ') || 'none' }));
  image.append(markShape(index, 17, 6, { fill: 'var(--paper)', stroke: `var(${colourOf(index)})`, 'stroke-width': 2 }));
  return image;
}

function kneeSwatch() {
  const image = drawing('svg', { width: 12, height: 12, 'aria-hidden': 'true' });
  image.append(drawing('circle', { cx: 6, cy: 6, r: 5, fill: 'var(--soft)' }));
  return image;
}

function markSwatch() {
  const image = drawing('svg', { width: 12, height: 18, 'aria-hidden': 'true' });
  image.append(drawing('path', { d: 'M6 1V17M2 1H10M2 17H10', stroke: 'var(--soft)', fill: 'none' }), drawing('circle', { cx: 6, cy: 9, r: 4, fill: 'var(--paper)', stroke: 'var(--soft)', 'stroke-width': 2 }));
  return image;
}

function pictureNotes(model, { size_bytes, rtt_s }, picture, omitted) {
  const notes = [];
  const measuredHere = model.points.some((point) => point.size_bytes === size_bytes);
  notes.push(`Lines: predicted for ${formatSize(size_bytes)} and a round-trip time of ${formatTime(rtt_s)}, on the session clock. Marks: measured; shown only for this size, and where the round-trip time is within ${RTT_TOLERANCE * 100} % of the link's own or moves the line by less than ${UNMOVED_PCT} points.`);
  if (!measuredHere) notes.push(`No marks: ${formatSize(size_bytes)} was not measured.`);
  for (const [link, points] of groupBy(picture.hidden, (point) => point.link)) {
    notes.push(`${points.map((point) => point.line.name).join(', ')} on ${linkName(link)} not shown: measured at ${roundTripText(points[0], model)}.`);
  }
  for (const [link, points] of groupBy(picture.notShaped, (point) => point.link)) {
    notes.push(`${points.map((point) => point.line.name).join(', ')} on ${linkName(link)} not shown: too short for the shaper to act on.`);
  }
  if (picture.points.some((point) => !point.shaped)) notes.push('A mark called "unshaped" had no link limit; it stands at the fastest link its baseline fills. Marks of one link are drawn side by side.');
  const baselines = [...baselineKnees(model.lines)].map(([name, rate]) => `${name} up to ${formatRate(rate)}`);
  if (baselines.length) notes.push(`Grey dots on the zero line: what the baselines fill, ${baselines.join(', ')}. Beyond them a faster link does not help the baseline either.`);
  for (const line of model.lines.filter((candidate) => candidate.knee_bps === null)) notes.push(`${line.name} has no dot: the fastest link it fills was not measured.`);
  if (!model.measuredRtt_s) notes.push('The round-trip time of the main link was not measured; the prediction takes it as 0.');
  return [...notes, ...omitted];
}

function roundTripText(point, model) {
  return `a round-trip time of ${formatTime(point.rtt_s ?? model.measuredRtt_s)}`;
}

function lineTable(model, { at }) {
  const rates = [10e6, 100e6, 1e9, 10e9];
  const rows = model.lines.map((line) => make('tr', {}, rowHead(line.name), make('td', { class: 'text' }, line.baseline),
    ...rates.map((rate) => make('td', {}, formatPct(at(line, rate)))), make('td', {}, line.knee_bps === null ? '–' : formatRate(line.knee_bps))));
  return make('table', {}, make('caption', {}, 'Predicted overhead for the chosen size and round-trip time'),
    make('thead', {}, make('tr', {}, columnHead('Stack', { class: 'text' }), columnHead('Baseline', { class: 'text' }), ...rates.map((rate) => columnHead(formatRate(rate))), columnHead('Fills links up to'))),
    make('tbody', {}, ...rows));
}

function agreementTable(model) {
  const rows = model.points.map((point) => {
    const predicted = predictOverheadPct(point.line, point.rate_bps, point.rtt_s ?? model.measuredRtt_s, point.size_bytes, model.measuredRtt_s);
    const inside = point.interval ? (predicted >= point.interval[0] && predicted <= point.interval[1] ? 'yes' : 'no') : '–';
    return make('tr', {}, rowHead(point.line.name), make('td', { class: 'text' }, linkName(point.link)), make('td', {}, formatSize(point.size_bytes)),
      make('td', {}, formatPct(point.pct)), make('td', {}, formatInterval(point.interval)), make('td', {}, formatPct(predicted)), make('td', { class: 'text' }, point.notShaped ? 'not shaped' : inside));
  });
  return make('table', {}, make('caption', {}, 'Overhead of downloads on the session clock, predicted with the round-trip time of the link each was measured on'),
    make('thead', {}, make('tr', {}, columnHead('Stack', { class: 'text' }), columnHead('Link', { class: 'text' }), columnHead('Size'), columnHead('Measured'), columnHead('95 % interval'), columnHead('Predicted'), columnHead('Inside the interval', { class: 'text' }))),
    make('tbody', {}, ...rows));
}

// ---------------------------------------------------------------- drawing the picture

function makeChart(model, state, view) {
  const overlay = drawing('svg', { 'aria-hidden': 'true' });
  const endLabelWidth = Math.max(...model.lines.map((line) => textWidth(`${shorten(line.name, 16)} +1,000 %`, '600 13px'))) + 34;
  const size = () => ({ width: Math.max(320, view.plot.clientWidth), height: PLOT_HEIGHT });
  const chart = new uPlot({
    ...size(),
    padding: [40, Math.min(endLabelWidth, 270), 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false } },
    scales: {
      x: { time: false, distr: 3, range: () => model.domain },
      y: { distr: 4, asinh: ASINH_THRESHOLD_PCT, range: () => overheadRange(view.picture) },
    },
    axes: [
      chartAxis({ label: 'Link rate', size: 34, splits: () => rateTicks(model.domain), values: (_, ticks) => ticks.map(rateTickLabel) }),
      chartAxis({ label: 'Overhead', size: 62, splits: overheadTicks, values: (_, ticks) => ticks.map((tick) => `${signed(tick, format3)} %`.replace('±', '')) }),
    ],
    series: [{}, ...model.lines.map((line) => ({
      label: line.name, width: 2.5, dash: dashOf(line.index), stroke: () => cssColour(colourOf(line.index)), points: { show: false }, pxAlign: 0,
    }))],
    hooks: {
      draw: [(u) => drawOverlay(u, overlay, model, state, view.picture)],
      setCursor: [() => showReadout(view, model, state)],
    },
  }, [model.rates, ...view.picture.curves], view.plot);
  chart.over.append(overlay);
  makeReadable(chart, model);
  new ResizeObserver(() => { if (size().width !== chart.width) chart.setSize(size()); }).observe(view.plot);
  onThemeChange(() => chart.redraw(false, true));
  return chart;
}

function chartAxis(options) {
  return {
    stroke: () => cssColour('--soft'), font: `12px ${pageFont()}`, labelFont: `13px ${pageFont()}`, labelSize: 20, gap: 5,
    grid: { stroke: () => cssColour('--grid'), width: 1 }, ticks: { stroke: () => cssColour('--grid'), size: 4 },
    filter: (_, ticks) => ticks, ...options,
  };
}

function setCurves(chart, model, picture) {
  chart.setData([model.rates, ...picture.curves]);
}

function makeReadable(chart, model) {
  const plot = chart.over;
  plot.tabIndex = 0;
  plot.setAttribute('role', 'img');
  plot.setAttribute('aria-label', `Overhead in per cent against link rate, one line each for ${model.lines.map((line) => line.name).join(', ')}. Left and right arrow keys read values; the table below holds the same numbers.`);
  plot.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -5, ArrowRight: 5 }[event.key];
    if (!step) return;
    event.preventDefault();
    const from = chart.cursor.idx ?? Math.floor(model.rates.length / 2);
    const to = Math.min(model.rates.length - 1, Math.max(0, from + step));
    chart.setCursor({ left: chart.valToPos(model.rates[to], 'x'), top: 0 });
  });
}

function showReadout(view, model, state) {
  const position = view.chart?.cursor.idx ?? null;
  const outside = position === null || view.chart.cursor.left < 0;
  view.readout.textContent = outside
    ? 'Point at the picture, or focus it and press the arrow keys, to read values.'
    : `At ${formatRate(model.rates[position])}: ` + model.lines.map((line, index) => [line, view.picture.curves[index][position]])
      .filter(([line]) => !state.hiddenLines.has(line)).map(([line, pct]) => `${line.name} ${formatPct(pct)}`).join(', ');
}

/** The range follows lines and marks; a whisker much longer than either is cut rather than flattening everything else. */
function overheadRange(picture) {
  const centres = [0, 1, ...picture.curves.flat(), ...picture.points.map((point) => point.pct)].filter(Number.isFinite);
  const least = Math.min(...centres), most = Math.max(...centres);
  const ends = picture.points.flatMap((point) => point.interval ?? []).filter((end) => end > 3 * least - 5 && end < 3 * most);
  const squeeze = (pct) => Math.asinh(pct / ASINH_THRESHOLD_PCT), stretch = (value) => Math.sinh(value) * ASINH_THRESHOLD_PCT;
  const low = squeeze(Math.min(least, ...ends)), high = squeeze(Math.max(most, ...ends));
  const room = 0.06 * (high - low);
  return [stretch(low - room), stretch(high + room)];
}

function overheadTicks(chart, _axis, least, most) {
  const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1e5, 1e6];
  const reach = (limit) => steps.filter((step) => step <= limit);
  const apart = (from, candidates) => {
    const kept = [];
    let last = from;
    for (const tick of candidates) {
      if (Math.abs(chart.valToPos(tick, 'y') - chart.valToPos(last, 'y')) >= 19) { kept.push(tick); last = tick; }
    }
    return kept;
  };
  const above = apart(0, reach(most)), below = apart(0, reach(-least).map((step) => -step));
  return [...below.reverse(), 0, ...above];
}

function rateTicks([least, most]) {
  const ticks = [];
  for (let decade = 10 ** Math.floor(Math.log10(least)); decade <= most; decade *= 10) {
    for (const factor of [1, 2, 5]) if (decade * factor >= least * 0.999 && decade * factor <= most * 1.001) ticks.push(decade * factor);
  }
  return ticks;
}

function rateTickLabel(rate) {
  return Math.abs(Math.log10(rate) % 1) < 1e-6 || Math.abs(Math.log10(rate) % 1) > 1 - 1e-6 ? formatRate(rate) : '';
}

function drawOverlay(chart, overlay, model, state, picture) {
  const area = { width: chart.over.clientWidth, height: chart.over.clientHeight };
  const x = (rate) => chart.valToPos(rate, 'x'), y = (pct) => chart.valToPos(pct, 'y');
  const lines = model.lines.filter((line) => !state.hiddenLines.has(line));
  const marks = spreadMarks(picture.points.filter((point) => lines.includes(point.line)), x, y);
  const knees = kneeDots(model, lines, picture, x, y);
  overlay.setAttribute('width', area.width);
  overlay.setAttribute('height', area.height);
  overlay.replaceChildren();
  drawSites(overlay, marks, area);
  overlay.append(drawing('line', { class: 'zero', x1: 0, x2: area.width, y1: y(0), y2: y(0) }));
  marks.forEach((mark) => drawMark(overlay, mark, area, y));
  knees.forEach((knee) => overlay.append(kneeDot(knee)));
  const obstacles = [...curvePixels(model, lines, picture, x, y), ...marks.flatMap(markPixels(y)), ...knees.flatMap(({ x: across, y: down }) => boxSpots({ x: across - 6, y: down - 6, width: 12, height: 12 }))];
  for (let along = 0; along < area.width; along += 8) obstacles.push({ x: along, y: y(0) });
  drawKneeLabels(overlay, knees, obstacles, area);
  drawEndLabels(overlay, lines, model, picture, area, y);
}

/** Marks of one link share its rate; a few pixels between them keep the whiskers apart. */
function spreadMarks(points, x, y) {
  const marks = [];
  for (const group of groupBy(points, (point) => `${linkName(point.link)} ${point.rate_bps}`).values()) {
    const apart = Math.min(15, 60 / group.length);
    group.forEach((point, position) => marks.push({ point, site: x(point.rate_bps), x: x(point.rate_bps) + (position - (group.length - 1) / 2) * apart, y: y(point.pct) }));
  }
  return marks;
}

function drawSites(overlay, marks, area) {
  const sites = new Map();
  for (const mark of marks) sites.set(mark.point.shaped ? linkName(mark.point.link) : `${linkName(mark.point.link)} (${mark.point.line.baseline})`, mark.site);
  const taken = [];
  for (const [name, at] of [...sites].sort((a, b) => a[1] - b[1])) {
    const text = shorten(name), width = textWidth(text, '12px');
    const row = [0, 1].find((candidate) => !taken.some((other) => other.row === candidate && Math.abs(other.at - at) < (other.width + width) / 2 + 12)) ?? 1;
    taken.push({ row, at, width });
    overlay.append(drawing('line', { class: 'site', x1: at, x2: at, y1: -5 - row * 16, y2: area.height }), drawing('text', { x: at, y: -9 - row * 16, 'text-anchor': 'middle' }, text));
  }
}

function drawMark(overlay, { point, x, y: centre }, area, y) {
  const colour = `var(${colourOf(point.line.index)})`;
  const group = drawing('g', {});
  group.append(drawing('title', {}, `${point.line.name} on ${linkName(point.link)}, ${formatSize(point.size_bytes)}: measured ${formatPct(point.pct)}${point.interval ? ` (${formatInterval(point.interval)})` : ''}`));
  if (point.interval) {
    const [low, high] = point.interval.map((end) => Math.min(area.height, Math.max(0, y(end))));
    group.append(drawing('path', { class: 'whisker', stroke: colour, d: `M${x} ${low}V${high}M${x - 5} ${low}h10M${x - 5} ${high}h10` }));
  }
  group.append(markShape(point.line.index, x, centre, { class: 'mark', stroke: colour }));
  overlay.append(group);
}

function markShape(index, x, y, attributes) {
  const shapes = [
    `M${x - 4.5} ${y}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0`,
    `M${x - 4} ${y - 4}h8v8h-8z`,
    `M${x} ${y - 5}l5 9h-10z`,
    `M${x} ${y - 5.5}l5.5 5.5l-5.5 5.5l-5.5 -5.5z`,
  ];
  return drawing('path', { d: shapes[index % shapes.length], ...attributes });
}

/** Where each stack stops filling the link; baselines too, on the zero line, since that is where the lines go flat. */
function kneeDots(model, lines, picture, x, y) {
  const label = lines.length > MOST_FULL_LABELS ? (name, rate) => `${name} ${rate}` : (name, rate) => `${name} fills links up to ${rate}`;
  const dots = lines.filter((line) => line.knee_bps !== null && line.knee_bps < RATE_DOMAIN.limit).map((line) => ({
    x: x(line.knee_bps), y: y(picture.at(line, line.knee_bps)), colour: colourOf(line.index), text: label(shorten(line.name), formatRate(line.knee_bps)),
  }));
  for (const [name, rate] of baselineKnees(lines)) dots.push({ x: x(rate), y: y(0), colour: '--soft', unlabelled: true, text: `${name} fills links up to ${formatRate(rate)}` });
  return dots;
}

function baselineKnees(lines) {
  return new Map(lines.map((line) => [line.baseline, positive(line.base.fill_bps)]).filter(([, rate]) => rate !== null && rate < RATE_DOMAIN.limit));
}

function kneeDot({ x, y, colour, text }) {
  const dot = drawing('circle', { class: 'knee', cx: x, cy: y, r: 5.5, fill: `var(${colour})` });
  dot.append(drawing('title', {}, text));
  return dot;
}

function drawKneeLabels(overlay, knees, obstacles, area) {
  const taken = [];
  for (const knee of knees.filter((candidate) => !candidate.unlabelled)) {
    const box = placeLabel(knee, { width: textWidth(knee.text, '12px') + 6, height: 16 }, obstacles, taken, area);
    if (!box) continue;
    taken.push(box);
    const end = leaderEnd(knee, box);
    obstacles.push(...leaderSpots(knee, box), ...boxSpots(box));
    if (Math.hypot(end.x - knee.x, end.y - knee.y) > 11) overlay.append(drawing('line', { class: 'leader', stroke: `var(${knee.colour})`, x1: knee.x, y1: knee.y, x2: end.x, y2: end.y }));
    overlay.append(drawing('text', { class: 'halo', x: box.x + 3, y: box.y + 12, style: `fill: var(${knee.colour})` }, knee.text));
  }
}

/** The nearest place around the anchor that covers least of what is already drawn; null where only another label's place is left. */
function placeLabel(anchor, { width, height }, obstacles, taken, area) {
  let best = null;
  for (const distance of [10, 16, 24, 32, 42, 52, 64, 80, 100, 125, 150]) {
    for (const [across, down] of LABEL_DIRECTIONS) {
      const box = {
        x: anchor.x + across * distance - width * (1 - across) / 2,
        y: anchor.y + down * distance - height * (1 - down) / 2, width, height,
      };
      if (box.x < 2 || box.x + width > area.width - 2 || box.y < 2 || box.y + height > area.height - 2) continue;
      const hits = obstacles.filter((spot) => spot.x > box.x - 4 && spot.x < box.x + width + 4 && spot.y > box.y - 4 && spot.y < box.y + height + 4).length;
      const overlaps = taken.filter((other) => box.x < other.x + other.width + 4 && other.x < box.x + width + 4 && box.y < other.y + other.height && other.y < box.y + height).length;
      if (best && distance + hits * 20 + overlaps * 1000 >= best.price) continue;
      const crossed = leaderSpots(anchor, box).filter((spot) => obstacles.some((other) => Math.abs(other.x - spot.x) < 3 && Math.abs(other.y - spot.y) < 3)).length;
      const price = distance + hits * 20 + crossed * 5 + overlaps * 1000;
      if (!best || price < best.price) best = { price, box };
    }
  }
  return best && best.price < 1000 ? best.box : null;
}

function leaderEnd(anchor, box) {
  return { x: Math.min(box.x + box.width, Math.max(box.x, anchor.x)), y: Math.min(box.y + box.height, Math.max(box.y, anchor.y)) };
}

function boxSpots({ x, y, width, height }) {
  const spots = [];
  for (let across = 0; across <= width; across += 4) for (let down = 0; down <= height; down += 4) spots.push({ x: x + across, y: y + down });
  return spots;
}

/** Spots along a leader line, without those at the anchor, where its own curve always is. */
function leaderSpots(anchor, box) {
  const end = leaderEnd(anchor, box);
  const length = Math.hypot(end.x - anchor.x, end.y - anchor.y);
  const spots = [];
  for (let along = 10; along < length; along += 4) spots.push({ x: anchor.x + (end.x - anchor.x) * along / length, y: anchor.y + (end.y - anchor.y) * along / length });
  return spots;
}

function curvePixels(model, lines, picture, x, y) {
  const columns = model.rates.map(x);
  return lines.flatMap((line) => filledPath(picture.curves[model.lines.indexOf(line)].map((pct, position) => ({ x: columns[position], y: y(pct) }))));
}

function markPixels(y) {
  return ({ point, x, y: centre }) => filledPath([centre - 5, centre + 5, ...(point.interval ?? []).map(y)].map((height) => ({ x, y: height })));
}

/** The corners and spots every few pixels between them: a steep line is as much in the way of a label as a flat one. */
function filledPath(corners) {
  return corners.flatMap((to, position) => {
    const from = corners[Math.max(0, position - 1)];
    const steps = Math.min(200, Math.max(1, Math.ceil(Math.hypot(to.x - from.x, to.y - from.y) / 4)));
    return Array.from({ length: steps }, (_, step) => ({ x: from.x + (to.x - from.x) * (step + 1) / steps, y: from.y + (to.y - from.y) * (step + 1) / steps }));
  });
}

function drawEndLabels(overlay, lines, model, picture, area, y) {
  const labels = lines.map((line) => {
    const curve = picture.curves[model.lines.indexOf(line)];
    const last = curve[curve.length - 1];
    return { line, from: y(last), y: y(last), text: `${shorten(line.name, 16)} ${formatPct(last)}` };
  });
  spreadVertically(labels, 17, area.height);
  for (const { line, from, y: to, text } of labels) {
    overlay.append(
      drawing('path', { class: 'leader', stroke: `var(${colourOf(line.index)})`, d: `M${area.width + 1} ${from}L${area.width + 12} ${to}` }),
      drawing('text', { class: 'end', x: area.width + 15, y: to + 4.5, style: `fill: var(${colourOf(line.index)})` }, text));
  }
}

/** Moves labels apart until each has `gap` pixels, keeping their order and staying near where they belong. */
function spreadVertically(labels, gap, height) {
  labels.sort((a, b) => a.from - b.from);
  for (let round = 0; round < 60; round++) {
    for (let below = 1; below < labels.length; below++) {
      const lack = gap - (labels[below].y - labels[below - 1].y);
      if (lack > 0) { labels[below - 1].y -= lack / 2; labels[below].y += lack / 2; }
    }
    for (const label of labels) label.y = Math.min(height - 6, Math.max(6, label.y));
  }
}

function colourOf(index) {
  return `--stack-${index % COLOURS}`;
}

function dashOf(index) {
  // Past the last colour the same colours return with other dashes.
  return DASHES[(index + Math.floor(index / COLOURS)) % DASHES.length];
}

function onThemeChange(redraw) {
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  // The canvas keeps its pixels when the page goes to paper, so it is redrawn in the light colours first.
  addEventListener('beforeprint', () => { document.documentElement.dataset.printing = ''; redraw(); });
  addEventListener('afterprint', () => { delete document.documentElement.dataset.printing; redraw(); });
}

// ---------------------------------------------------------------- where the time goes

function renderTimelines(body, report, counts) {
  const usable = report.timelines.filter((timeline) => positive(timeline.session_s) !== null && records(timeline.segments).length);
  for (const timeline of report.timelines.filter((candidate) => !usable.includes(candidate))) {
    body.append(make('p', { class: 'lead' }, `${asText(timeline.stack)}: no transfer could be cut into phases.`));
  }
  if (!usable.length) {
    body.prepend(make('p', {}, 'No transfer was cut into phases in this run.'));
    return;
  }
  body.prepend(
    make('p', { class: 'lead' }, 'One transfer of each stack from its first packet to its last, cut into what it was doing. All strips of a group have the same scale.'),
    phaseKey());
  const rank = (timeline) => { const at = report.stacks.findIndex((stack) => stack.name === timeline.stack); return at < 0 ? Infinity : at; };
  for (const [title, group] of groupBy(usable, (timeline) => `${workloadTitle(asText(timeline.workload))}${timeline.size_bytes ? `, ${formatSize(timeline.size_bytes)}` : ''}`)) {
    group.sort((a, b) => rank(a) - rank(b));
    body.append(make('h3', {}, title), stripChart(group));
    counts.strips += group.length;
  }
  body.append(make('details', {}, make('summary', {}, 'The strips as numbers'), make('div', { class: 'scroll' }, phaseTable(usable))));
}

function phaseKey() {
  const items = [['connect', 'connecting'], ['handshake', 'TLS handshake or SSH key exchange'], ['login', 'login and commands'], ['body', 'moving the file'], ['idle', 'idle: nothing on the wire']];
  return make('ul', { class: 'key' }, ...items.map(([kind, text]) => make('li', {}, make('span', { class: `swatch kind-${kind}` }), text)));
}

function stripChart(group) {
  const longest_s = Math.max(...group.map((timeline) => timeline.session_s));
  const grid = make('div', { class: 'strips' });
  for (const timeline of group) {
    const segments = records(timeline.segments);
    const strip = make('div', { class: 'strip', role: 'img', 'aria-label': `${asText(timeline.stack)}: ${segments.map((segment) => `${phaseName(segment.kind, timeline.stack)} ${formatTime(segment.end_s - segment.start_s)}`).join(', ')}` });
    for (const segment of segments) strip.append(stripSegment(segment, timeline.stack, longest_s));
    strip.append(besideStrip(timeline, longest_s));
    grid.append(make('span', { class: 'name' }, asText(timeline.stack)), strip, make('span', { class: 'total' }, formatTime(timeline.session_s)));
  }
  grid.append(make('span'), timeRuler(longest_s), make('span'));
  fitStripLabels(grid);
  return grid;
}

function stripSegment({ kind, start_s, end_s }, stack, longest_s) {
  const name = phaseName(kind, stack), duration = formatTime(end_s - start_s);
  const known = ['connect', 'handshake', 'login', 'body', 'idle'].includes(kind) ? kind : 'other';
  const segment = make('span', { class: `kind-${known}`, title: `${name}: ${duration}, from ${formatTime(start_s)} to ${formatTime(end_s)}` });
  segment.style.left = `${100 * start_s / longest_s}%`;
  segment.style.width = `${100 * (end_s - start_s) / longest_s}%`;
  segment.labels = known === 'idle' ? [''] : [`${shortPhase(kind, stack)} ${duration}`, duration, ''];
  return segment;
}

/** Room for the labels of segments too narrow to hold their own. */
function besideStrip({ session_s }, longest_s) {
  const beside = make('span', { class: 'beside' });
  beside.style.left = `${100 * session_s / longest_s}%`;
  return beside;
}

function phaseName(kind, stack) {
  if (kind === 'handshake') return usesSsh(stack) ? 'SSH key exchange' : 'TLS handshake';
  return { connect: 'connecting', login: 'login and commands', body: 'moving the file', idle: 'idle' }[kind] ?? asText(kind);
}

function shortPhase(kind, stack) {
  if (kind === 'handshake') return usesSsh(stack) ? 'SSH keys' : 'TLS';
  return { connect: 'connect', login: 'login', body: 'file' }[kind] ?? shorten(asText(kind));
}

function usesSsh(stack) {
  return /^(sftp|ssh|scp|rsync)/.test(asText(stack));
}

function timeRuler(longest_s) {
  const ruler = make('div', { class: 'ruler', 'aria-hidden': 'true' });
  const step = niceStep(longest_s / 6);
  for (let at = 0; at <= longest_s * 0.999; at += step) {
    const tick = make('span', {}, at === 0 ? '0' : formatTime(at));
    tick.style.left = `${100 * at / longest_s}%`;
    ruler.append(tick);
  }
  return ruler;
}

function niceStep(rough) {
  const decade = 10 ** Math.floor(Math.log10(rough));
  return decade * [1, 2, 5, 10].find((factor) => decade * factor >= rough);
}

function fitStripLabels(grid) {
  const fit = () => {
    for (const strip of grid.querySelectorAll('.strip')) {
      const unlabelled = [];
      for (const segment of strip.querySelectorAll('span:not(.beside)')) {
        segment.textContent = segment.labels.find((label) => textWidth(label, '13px') + 8 <= segment.clientWidth) ?? '';
        if (segment.labels.length > 1 && !segment.textContent) unlabelled.push(segment.labels[0]);
      }
      const beside = strip.querySelector('.beside');
      const text = unlabelled.join(' · ');
      beside.textContent = textWidth(text, '13px') + 12 < strip.clientWidth - beside.offsetLeft ? text : '';
    }
  };
  new ResizeObserver(fit).observe(grid);
}

function phaseTable(timelines) {
  const kinds = ['connect', 'handshake', 'login', 'body', 'idle'];
  const rows = timelines.map((timeline) => {
    const segments = records(timeline.segments);
    const spent = (kind) => segments.filter((segment) => segment.kind === kind).reduce((sum, segment) => sum + segment.end_s - segment.start_s, 0);
    return make('tr', {}, rowHead(timeline.stack), make('td', { class: 'text' }, workloadTitle(asText(timeline.workload))), make('td', {}, formatSize(timeline.size_bytes)),
      ...kinds.map((kind) => make('td', {}, formatTime(spent(kind)))), make('td', {}, formatTime(timeline.session_s)));
  });
  return make('table', {}, make('caption', {}, 'Time in each phase; a phase entered more than once is added up'),
    make('thead', {}, make('tr', {}, columnHead('Stack', { class: 'text' }), columnHead('Workload', { class: 'text' }), columnHead('Size'), ...['Connecting', 'Handshake', 'Login', 'File', 'Idle', 'Session'].map((name) => columnHead(name)))),
    make('tbody', {}, ...rows));
}

// ---------------------------------------------------------------- every stack at every size

function renderHeatMaps(body, report, counts) {
  if (!report.summary.length) {
    body.append(make('p', {}, 'The results hold no summary.'));
    return;
  }
  const place = make('div', { class: 'heatmaps' });
  const draw = (clock) => place.replaceChildren(...heatMaps(report, clock));
  draw('transfer');
  counts.cells += place.querySelectorAll('button').length;
  addTools(body, make('span', { 'aria-hidden': 'true' }, 'faster', make('span', { class: 'scale' }), 'slower than the baseline'), segmented('Clock', 'cells-clock', Object.entries(CLOCKS), 'transfer', draw));
  body.append(
    make('p', { class: 'lead' }, 'Overhead over the baseline with its 95 % interval; baselines show their time. Press a cell to see its runs.'),
    place, noteList(heatNotes(report.summary)));
}

function heatMaps(report, clock) {
  const maps = [];
  for (const workload of workloadsOf(report.summary)) {
    const names = [...new Set([...report.links.map((link) => link.name), ...report.summary.map((row) => row.link)])];
    for (const link of names) {
      const rows = findRows(report, { workload, link });
      if (rows.length) maps.push(heatMap(report, workload, link, rows, clock));
    }
  }
  return maps;
}

function heatMap(report, workload, link, rows, clock) {
  const sizes = sizesOf(rows);
  const stacks = report.stacks.filter((stack) => rows.some((row) => row.stack === stack.name));
  const lines = stacks.map((stack) => make('tr', {}, rowHead(stack.name), ...sizes.map((size) => {
    const row = rows.find((candidate) => candidate.stack === stack.name && number(candidate.size_bytes) === size);
    return make('td', {}, row ? heatCell(report, row, clock) : 'not run');
  })));
  return make('table', { class: 'heat' },
    make('caption', {}, make('b', {}, workloadTitle(workload)), ` on link ${asText(link)}`),
    make('thead', {}, make('tr', {}, columnHead('Stack', { class: 'text' }), ...sizes.map((size) => columnHead(formatSize(size))))),
    make('tbody', {}, ...lines));
}

function heatCell(report, row, clock) {
  const { pct, interval } = overheadOf(row, clock);
  const mean = meanOf(row, clock);
  const cell = make('button', { type: 'button', onclick: () => openRuns(report, row) });
  if (pct !== null) {
    cell.append(formatPct(pct), make('small', {}, formatInterval(interval)));
    cell.classList.toggle('faster', pct < 0);
    cell.style.setProperty('--heat', heatOf(pct));
  } else if (mean !== null) {
    cell.append(formatTime(mean));
    cell.classList.add('plain');
  } else {
    cell.append('no result');
    cell.classList.add('failed');
  }
  const flags = cellFlags(row);
  if (flags.length) cell.append(make('small', { class: 'flag' }, flags.join(' ')));
  cell.setAttribute('aria-label', `${asText(row.stack)}, ${workloadTitle(asText(row.workload))}, ${formatSize(row.size_bytes)}, ${asText(row.link)}: ${cell.innerText || cell.textContent}. Show runs`);
  return cell;
}

function cellFlags(row) {
  return [
    number(row.failed) > 0 ? `✕ ${failureText(row)}` : null,
    row.not_shaped === true ? '◇ not shaped' : null,
    row.limited_by === 'CPU' ? '▲ CPU' : null,
  ].filter(Boolean);
}

/** Kept under 0.65 so that the text keeps its contrast on any cell. */
function heatOf(pct) {
  return Math.min(0.65, 0.65 * Math.asinh(Math.abs(pct) / 2) / Math.asinh(100)).toFixed(3);
}

function heatNotes(rows) {
  const notes = [];
  if (rows.some((row) => row.limited_by === 'CPU')) notes.push('▲ CPU: CPU-limited on shared cores. The machine was less than 10 % idle, so the cell tells about this processor, not about the network.');
  if (rows.some((row) => row.not_shaped === true)) notes.push('◇ not shaped: the transfer took less than 100 ms and slipped through the shaper\'s bucket; its link rate was not in force.');
  if (rows.some((row) => number(row.failed) > 0)) notes.push('✕ failed: runs that ended in an error. They are counted and left out of the mean, never retried.');
  return notes;
}

function openRuns(report, row) {
  const dialog = document.getElementById('runs');
  const samples = report.samples.filter((sample) => ['link', 'stack', 'workload', 'size_bytes'].every((key) => (sample[key] ?? null) === (row[key] ?? null)));
  document.getElementById('runs-title').textContent = `${asText(row.stack)}: ${workloadTitle(asText(row.workload)).toLowerCase()}${number(row.size_bytes) === null ? '' : `, ${formatSize(row.size_bytes)}`}, link ${asText(row.link)}`;
  dialog.querySelector('.body').replaceChildren(cellFacts(row), samples.length ? make('div', { class: 'scroll', tabindex: 0 }, sampleTable(samples)) : make('p', {}, 'The results hold no single runs of this cell.'));
  dialog.showModal();
}

function cellFacts(row) {
  const interval = list(row.ci95_s);
  const overhead = (clock) => { const { pct, interval: bounds } = overheadOf(row, clock); return pct === null ? null : `${formatPct(pct)} (${formatInterval(bounds)}) over ${asText(row.baseline)}`; };
  const facts = factList([
    ['Mean transfer', number(row.mean_s) === null ? null : `${formatTime(row.mean_s)}${interval.length === 2 ? ` (${formatTime(interval[0])} to ${formatTime(interval[1])})` : ''}`],
    ['Mean session', number(row.session_mean_s) === null ? null : formatTime(row.session_mean_s)],
    ['Overhead, transfer', overhead('transfer')],
    ['Overhead, session', overhead('session')],
    ['Goodput', positive(row.goodput_bps) === null ? null : formatRate(row.goodput_bps)],
    ['Limited by', row.limited_by ? asText(row.limited_by) : null],
    ['Runs', `${asText(row.n)} good, ${asText(row.failed)} failed`],
  ]);
  const reason = Object.hasOwn(LIMITS, row.limited_by) ? LIMITS[row.limited_by] : null;
  return make('div', {}, facts, reason ? make('p', { class: 'lead' }, reason) : null);
}

function sampleTable(samples) {
  const time = (value) => make('td', {}, number(value) === null ? '–' : formatTime(value));
  const rows = samples.map((sample) => {
    const cpu = record(sample.cpu_seconds);
    return make('tr', {}, rowHead(sample.block), time(sample.seconds), time(sample.session_seconds), time(sample.client_seconds), time(sample.process_seconds),
      time(cpu.client), time(cpu.server), time(cpu.machine), make('td', {}, number(sample.cpu_idle_pct) === null ? '–' : `${format3(sample.cpu_idle_pct)} %`), make('td', {}, asText(sample.transfers ?? '–')),
      make('td', { class: 'error' }, asText(sample.marked ?? '')), make('td', { class: 'error' }, sample.ok === false ? `✕ ${asText(sample.error ?? 'failed')}` : asText(sample.error ?? '')));
  });
  const heads = ['Transfer', 'Session', 'Client\'s clock', 'Process', 'CPU, client', 'CPU, server', 'CPU, machine', 'CPU idle', 'Averaged over'];
  return make('table', {}, make('caption', {}, 'One row a run. Transfer and session are read from the wire; the client\'s clock and the process\'s time stand beside them.'),
    make('thead', {}, make('tr', {}, columnHead('Block', { class: 'text' }), ...heads.map((name) => columnHead(name)), columnHead('Marked', { class: 'text' }), columnHead('Error', { class: 'text' }))),
    make('tbody', {}, ...rows));
}

// ---------------------------------------------------------------- machine, programs, link, plan

function renderMachine(body, report) {
  const { environment, plan } = report;
  body.append(factList([
    ['Processor', environment.cpu], ['Cores', environment.cores],
    ['Memory', positive(environment.memory_bytes) === null ? null : formatMemory(environment.memory_bytes)],
    ['Kernel', environment.kernel], ['System', environment.distribution], ['Headroom', environment.headroom],
    ['Started', environment.started && formatDate(environment.started)], ['Finished', environment.finished && formatDate(environment.finished)],
  ]));
  body.append(make('h3', {}, 'Links'), make('div', { class: 'scroll' }, linkTable(report.links)));
  const facts = Object.entries(record(environment.stacks));
  if (facts.length) body.append(make('h3', {}, 'What the stacks negotiated'), make('div', { class: 'scroll' }, stackFactTable(facts)));
  body.append(folded('Programs', programTable(records(environment.programs))));
  body.append(folded('Settings of the machine', factList(Object.entries(record(environment.settings)))));
  body.append(folded('The plan as it was run', factList(Object.entries(plan))));
}

function linkTable(links) {
  const rows = links.map((link, position) => make('tr', {}, rowHead(linkName(link)), make('td', { class: 'text' }, position ? 'check of the prediction' : 'main'),
    make('td', {}, positive(link.rate_bps) === null ? 'no limit' : formatRate(link.rate_bps)), make('td', {}, milliseconds(link.delay_ms)), make('td', {}, milliseconds(link.jitter_ms)),
    make('td', {}, number(link.loss_pct) === null ? '–' : `${format3(link.loss_pct)} %`), make('td', {}, rttOf(link) === null ? 'not measured' : formatTime(rttOf(link))),
    make('td', { class: 'text' }, asText(link.backend ?? '–')), make('td', { class: 'text' }, selfTestText(link))));
  return make('table', {}, make('caption', {}, 'Links as they were used; a shaped link must pass its self-test first'),
    make('thead', {}, make('tr', {}, columnHead('Link', { class: 'text' }), columnHead('Use', { class: 'text' }), ...['Rate', 'Delay', 'Jitter', 'Loss', 'Round trip'].map((name) => columnHead(name)), columnHead('Made by', { class: 'text' }), columnHead('Self-test', { class: 'text' }))),
    make('tbody', {}, ...rows));
}

function selfTestText(link) {
  const test = link.self_test;
  if (!test) return positive(link.rate_bps) === null ? 'none: nothing to test' : 'not run';
  const ways = [['to the client', record(test.down)], ['to the server', record(test.up)]].map(([name, way]) => {
    const rate = record(way.rate), delay = record(way.delay), loss = record(way.loss), parts = [];
    if (positive(rate.measured_bps) !== null) parts.push(`${formatRate(rate.measured_bps)}${number(rate.error_pct) === null ? '' : ` (${formatPct(rate.error_pct)})`}`);
    if (number(delay.median_error_us) !== null) parts.push(`delay ${delay.median_error_us >= 0 ? '+' : ''}${format3(delay.median_error_us)} µs`);
    if (number(loss.sent) !== null) parts.push(`${asText(loss.lost)} of ${asText(loss.sent)} probes lost`);
    return `${name} ${parts.join(', ')}`;
  });
  return `${test.passed ? '✓ passed' : '✕ failed'}: ${ways.join('; ')}`;
}

function stackFactTable(facts) {
  const rows = facts.map(([stack, values]) => make('tr', {}, rowHead(stack), make('td', { class: 'text' }, Object.entries(record(values)).map(([name, value]) => `${readable(name)} ${asText(value)}`).join(' · '))));
  return make('table', {}, make('caption', {}, 'Read from the handshakes of this run'), make('thead', {}, make('tr', {}, columnHead('Stack', { class: 'text' }), columnHead('Facts', { class: 'text' }))), make('tbody', {}, ...rows));
}

function programTable(programs) {
  if (!programs.length) return make('p', {}, 'The results name no program.');
  const rows = programs.map((program) => make('tr', {}, rowHead(program.name), ...['version', 'origin', 'path'].map((key) => make('td', { class: 'text' }, asText(program[key] ?? '–')))));
  return make('table', {}, make('caption', {}, 'Programs under test, and where each came from'), make('thead', {}, make('tr', {}, ...['Program', 'Version', 'Origin', 'Path'].map((name) => columnHead(name, { class: 'text' })))), make('tbody', {}, ...rows));
}

// ---------------------------------------------------------------- warnings

function renderWarnings(body, report) {
  body.append(report.warnings.length
    ? make('ul', {}, ...report.warnings.map((warning) => make('li', {}, warning)))
    : make('p', {}, 'This run gave none.'));
}

// ---------------------------------------------------------------- pieces of page

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  setAll(node, attributes);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function drawing(tag, attributes, text) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  setAll(node, attributes);
  if (text !== undefined) node.textContent = text;
  return node;
}

function setAll(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) node.setAttribute(name, value === true ? '' : value);
  }
}

function columnHead(text, attributes = {}) {
  return make('th', { scope: 'col', ...attributes }, text);
}

function rowHead(text) {
  return make('th', { scope: 'row' }, ...breakable(asText(text)));
}

/** Lets a stack's name break after its slashes, and a senselessly long one anywhere. */
function breakable(text) {
  const pieces = text.match(/[^/]{1,18}\/?|\//g) ?? [];
  return pieces.flatMap((piece) => [piece, make('wbr')]);
}

function segmented(title, name, choices, chosen, choose) {
  if (choices.length < 2) return null;
  return make('fieldset', {}, make('legend', {}, title), ...choices.map(([value, text]) => make('label', {},
    make('input', { type: 'radio', name, value, checked: value === chosen, onchange: () => choose(value) }), text)));
}

function addTools(body, ...tools) {
  body.parentElement.querySelector('.tools').append(...tools.filter((tool) => tool !== null));
}

function noteList(notes) {
  return make('ul', { class: 'notes' }, ...notes.map((note) => make('li', {}, note)));
}

function factList(facts) {
  const known = facts.filter(([, value]) => value !== null && value !== undefined && value !== '');
  return make('dl', { class: 'facts' }, ...known.map(([name, value]) => make('div', {}, make('dt', {}, readable(name)), make('dd', {}, asText(value)))));
}

function folded(title, content) {
  return make('details', {}, make('summary', {}, title), make('div', { class: 'scroll' }, content));
}

function cssColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function pageFont() {
  return getComputedStyle(document.body).fontFamily;
}

const measuringContext = document.createElement('canvas').getContext('2d');

function textWidth(text, font) {
  measuringContext.font = `${font} ${pageFont()}`;
  return measuringContext.measureText(text).width;
}

// ---------------------------------------------------------------- values from the file

function record(value) {
  return value !== null && typeof value === 'object' && !Array.isArray(value) ? value : {};
}

function list(value) {
  return Array.isArray(value) ? value : [];
}

function records(value) {
  return list(value).filter((item) => item !== null && typeof item === 'object' && !Array.isArray(item));
}

function number(value) {
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}

function positive(value) {
  return number(value) !== null && value > 0 ? value : null;
}

function asText(value) {
  if (value === null || value === undefined) return '–';
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (Array.isArray(value)) return value.map(asText).join(', ');
  if (typeof value === 'object') return Object.entries(value).map(([name, inner]) => `${readable(name)} ${asText(inner)}`).join(' · ');
  return String(value);
}

function groupBy(items, keyOf) {
  const groups = new Map();
  for (const item of items) groups.set(keyOf(item), [...(groups.get(keyOf(item)) ?? []), item]);
  return groups;
}

/** At most `most` of the values: the ends, and evenly between them. */
function spacedChoice(values, most) {
  if (values.length <= most) return values;
  return Array.from({ length: most }, (_, position) => values[Math.round(position * (values.length - 1) / (most - 1))]);
}

// ---------------------------------------------------------------- values for people

function format3(value) {
  const digits = Math.abs(value) >= 1000 ? 0 : undefined;
  const rounded = Number(Number(value).toPrecision(3));
  return rounded.toLocaleString('en-US', { maximumFractionDigits: digits ?? 6 }).replace('-', '−');
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
  return `${signed(rounded, (value) => value.toLocaleString('en-US', digits).replace('-', '−')).replace('±', '')} %`;
}

function formatInterval(interval) {
  if (!interval) return 'no interval';
  return interval.map((end) => formatPct(end).replace(' %', '')).join(' to ');
}

function holdsZero(interval) {
  return interval !== null && interval[0] <= 0 && interval[1] >= 0;
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

function workloadTitle(kind) {
  return Object.hasOwn(WORKLOAD_TITLES, kind) ? WORKLOAD_TITLES[kind] : asText(kind);
}

function linkName(link) {
  return asText(link.name ?? 'unnamed link');
}

function describeLink(link) {
  const rate = positive(link.rate_bps) === null ? (link.name === 'unshaped' ? 'no rate limit' : `${linkName(link)}, no rate limit`) : `${linkName(link)}, ${formatRate(link.rate_bps)}`;
  const delay = positive(link.delay_ms) === null ? '' : `, ${formatTime(link.delay_ms / 1e3)} delay`;
  return `${rate}${delay}${rttOf(link) === null ? '' : `, round trip ${formatTime(rttOf(link))}`}`;
}

renderReport();
