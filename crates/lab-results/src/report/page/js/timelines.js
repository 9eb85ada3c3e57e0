/* Where the time goes: one strip a stack. */

function renderTimelines(body, report, counts) {
  const usable = report.timelines.filter((timeline) => positive(timeline.session_s) !== null && records(timeline.segments).length);
  for (const timeline of report.timelines.filter((candidate) => !usable.includes(candidate))) {
    body.append(make('p', { class: 'lead' }, `${asText(timeline.stack)}: no transfer could be divided into phases.`));
  }
  if (!usable.length) {
    body.prepend(make('p', {}, 'No transfer of this run was divided into phases.'));
    return;
  }
  const key = phaseKey(), lead = 'One transfer of each stack, first packet to last, divided into phases. All strips of a group have the same scale.';
  body.prepend(make('p', { class: 'lead' }, lead), key);
  const rank = (timeline) => { const at = report.stacks.findIndex((stack) => stack.name === timeline.stack); return at < 0 ? Infinity : at; };
  for (const [title, group] of groupBy(usable, (timeline) => `${workloadTitle(asText(timeline.workload))}${timeline.size_bytes ? `, ${formatSize(timeline.size_bytes)}` : ''}`)) {
    group.sort((a, b) => rank(a) - rank(b));
    const chart = stripChart(group);
    const save = saveButtons(report, `Where the time goes, ${title}`, () => ({
      ...withKey(stripShapes(chart), key),
      detail: group.map((timeline) => asText(timeline.stack)).join(', '),
      description: [lead, ...[...chart.querySelectorAll('.strip')].map((strip) => `${strip.getAttribute('aria-label')}.`)].join(' '),
    }));
    body.append(make('h3', {}, title), chart, save);
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
  onAppearanceChange(fit);
}

function phaseTable(timelines) {
  const kinds = ['connect', 'handshake', 'login', 'body', 'idle'];
  const rows = timelines.map((timeline) => {
    const segments = records(timeline.segments);
    const spent = (kind) => segments.filter((segment) => segment.kind === kind).reduce((sum, segment) => sum + segment.end_s - segment.start_s, 0);
    return make('tr', {}, rowHead(timeline.stack), make('td', { class: 'text' }, workloadTitle(asText(timeline.workload))), make('td', {}, formatSize(timeline.size_bytes)),
      ...kinds.map((kind) => make('td', {}, formatTime(spent(kind)))), make('td', {}, formatTime(timeline.session_s)));
  });
  return make('table', {}, make('caption', {}, 'Time in each phase; repeated phases are added up'),
    make('thead', {}, make('tr', {}, columnHead('Stack', { class: 'text' }), columnHead('Workload', { class: 'text' }), columnHead('Size'), ...['Connecting', 'Handshake', 'Login', 'File', 'Idle', 'Session'].map((name) => columnHead(name)))),
    make('tbody', {}, ...rows));
}
