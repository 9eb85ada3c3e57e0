/* The table of costs. */

const MAX_SIZES_IN_COST_TABLE = 4;

const COST_COLUMNS = [
  ['Overhead', 'Time of the stack divided by that of its baseline in the same block, less 1, and its 95 % interval. A lighter figure: the interval includes 0 %, so the difference is not significant; small print says which one four runs of five like this one would have shown.'],
  ['Round trips before first byte', 'How often one side had to wait for the other before the first byte of the file was sent.'],
  ['Extra bytes per MB', 'Bytes on the wire beyond the file, in its direction, for each megabyte of file.'],
  ['CPU-seconds per GB', 'CPU time of client and server together for each gigabyte of file.'],
  ['Limited by', 'The bottleneck at each size: the link, a processor, a window, or waiting for the other side.'],
];

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
  body.append(place, columnNotes(COST_COLUMNS));
  draw();
}

function costTable(report, linkRows, { workload, clock }) {
  const rows = linkRows.filter((row) => row.workload === workload);
  const all = sizesOf(rows);
  const sizes = spacedChoice(all, MAX_SIZES_IN_COST_TABLE);
  const left = all.length > sizes.length ? ` ${all.length - sizes.length} more sizes are in the table of all cells.` : '';
  const caption = make('caption', {},
    `Link: ${describeLink(report.mainLink)}. ${runCount(rows)} Grey: plain baselines and their time. Small print: difference to the baseline, or 95 % interval.${left}`,
    rows.some((row) => sizes.includes(number(row.size_bytes)) && row.not_shaped === true) ? ` ${NOT_SHAPED}` : null);
  const head = make('thead', {},
    make('tr', {},
      columnHead('Stack', { rowspan: 2, class: 'text' }),
      make('th', { scope: 'colgroup', colspan: Math.max(1, sizes.length), class: 'group' }, `Overhead, ${workloadTitle(workload).toLowerCase()}, ${CLOCKS[clock]}`),
      columnHead('Round trips before first byte', { rowspan: 2 }), columnHead('Extra bytes per MB', { rowspan: 2 }),
      columnHead('CPU-seconds per GB', { rowspan: 2 }),
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
    make('th', { scope: 'row' }, ...breakable(asText(stack.name)), make('small', {}, ...breakable(stack.baseline === null ? 'baseline' : `over ${asText(stack.baseline)}`))),
    ...sizes.map((size) => overheadCell(rowAt(size), clock)),
    costCell(cost.round_trips, base.round_trips),
    costCell(cost.extra_bytes_per_mb, base.extra_bytes_per_mb),
    costCell(cost.cpu_seconds_per_gb, base.cpu_seconds_per_gb),
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
  const shaping = row.not_shaped === true ? make('small', { class: 'flag' }, '◇ not shaped') : null;
  if (pct === null) {
    const mean = meanOf(row, clock);
    return make('td', {}, mean === null ? 'no result' : formatTime(mean), shaping, failed);
  }
  return make('td', { class: holdsZero(interval) ? 'unsure' : null },
    make('span', { class: 'pct' }, formatPct(pct)), make('small', {}, formatInterval(interval)), holdsZero(interval) ? make('small', {}, visible(interval)) : null, shaping, failed);
}

/** The smallest difference that would have been significant with a probability of 80 %: half of the interval is 1.96 standard errors for many runs, and 0.84 more are needed. */
function visible([low, high]) {
  const half = (Math.log1p(high / 100) - Math.log1p(low / 100)) / 2;
  return Number.isFinite(half) ? `${format3(100 * Math.expm1(half * (1 + 0.84 / 1.96)))} % would show` : '';
}

function limitedBy(rows) {
  const known = rows.filter((row) => row.limited_by).sort((a, b) => a.size_bytes - b.size_bytes);
  const limits = [...new Set(known.map((row) => asText(row.limited_by)))];
  if (limits.length < 2) return limits[0] ?? '–';
  return limits.map((limit) => `${limit} at ${known.filter((row) => asText(row.limited_by) === limit).map((row) => formatSize(row.size_bytes)).join(', ')}`).join('; ');
}
