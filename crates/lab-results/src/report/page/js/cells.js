/* Every stack at every size, and the runs of each cell. */

const LIMITS = {
  CPU: 'Limited by the CPU: client and server computed nearly all of the time, or took all but a tenth of the machine, so this shows the processor, not the network',
  'background load': 'Limited by background load: other programs used more CPU than was idle',
  link: 'Limited by the link: the network was full',
  window: 'Limited by a window: a TCP or SSH window, or the client\'s outstanding requests, limited the sender',
  waiting: 'Limited by waiting: most of the time both sides waited for each other',
};

const NOT_SHAPED = '◇ not shaped: the transfer took less than 100 ms and passed within the burst of the token bucket, so the link rate did not apply.';

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
  return make('div', { class: 'scroll' }, make('table', { class: 'heat' },
    make('caption', {}, make('b', {}, workloadTitle(workload)), ` on link ${asText(link)}. ${runCount(rows)}`),
    make('thead', {}, make('tr', {}, columnHead('Stack', { class: 'text' }), ...sizes.map((size) => columnHead(formatSize(size))))),
    make('tbody', {}, ...lines)));
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
    number(row.outliers) > 0 ? `○ ${row.outliers} of ${asText(row.n)} outlier${row.outliers > 1 ? 's' : ''}` : null,
    row.limited_by === 'CPU' ? '▲ CPU' : null,
  ].filter(Boolean);
}

/** Kept under 0.65 so that the text keeps its contrast on any cell. */
function heatOf(pct) {
  return Math.min(0.65, 0.65 * Math.asinh(Math.abs(pct) / 2) / Math.asinh(100)).toFixed(3);
}

function heatNotes(rows) {
  const notes = [];
  if (rows.some((row) => row.limited_by === 'CPU')) notes.push('▲ CPU: CPU-limited on shared cores. Client and server took nearly all of the time or of the machine, so the figure shows this processor, not the network.');
  if (rows.some((row) => row.limited_by === 'background load')) notes.push('▲ background load: other programs used more CPU than was idle.');
  if (rows.some((row) => row.not_shaped === true)) notes.push(NOT_SHAPED);
  if (rows.some((row) => number(row.outliers) > 0)) notes.push('○ outlier: a run further from the median of its cell than 3.5 robust standard deviations. It is marked, and it counts.');
  if (rows.some((row) => number(row.failed) > 0)) notes.push('✕ failed: runs that ended in an error. The lab reports them, leaves them out of the mean and does not retry them.');
  return notes;
}

function openRuns(report, row) {
  const dialog = document.getElementById('runs');
  const samples = samplesOf(report, row);
  document.getElementById('runs-title').textContent = `${asText(row.stack)}: ${workloadTitle(asText(row.workload)).toLowerCase()}${number(row.size_bytes) === null ? '' : `, ${formatSize(row.size_bytes)}`}, link ${asText(row.link)}`;
  dialog.querySelector('.body').replaceChildren(cellFacts(row), samples.length ? make('div', { class: 'scroll', tabindex: 0 }, sampleTable(samples)) : make('p', {}, 'The results have no single runs of this cell.'));
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
    ['Of the link’s rate', positive(row.link_rate_pct) === null ? null : `${format3(row.link_rate_pct)} %`],
    ['Limited by', row.limited_by ? asText(row.limited_by) : null],
    ['Runs', `${asText(row.n)} good, ${asText(row.failed)} failed${number(row.outliers) > 0 ? `, ${row.outliers} of them marked as outliers` : ''}`],
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
      make('td', { class: 'error' }, [sample.outlier === true ? '○ outlier' : null, sample.disturbed ? asText(sample.disturbed) : null].filter(Boolean).join('; ')), make('td', { class: 'error' }, sample.ok === false ? `✕ ${asText(sample.error ?? 'failed')}` : asText(sample.error ?? '')));
  });
  const heads = ['Transfer', 'Session', 'Client\'s clock', 'Process', 'CPU, client', 'CPU, server', 'CPU, machine', 'CPU idle', 'Averaged over'];
  return make('table', {}, make('caption', {}, 'One row per run. Transfer and session come from the wire; the client\'s own clock and the process time are for comparison.'),
    make('thead', {}, make('tr', {}, columnHead('Block', { class: 'text' }), ...heads.map((name) => columnHead(name)), columnHead('Marked', { class: 'text' }), columnHead('Error', { class: 'text' }))),
    make('tbody', {}, ...rows));
}
