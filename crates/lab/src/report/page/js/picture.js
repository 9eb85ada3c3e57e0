/* The picture of overheads on any link, its controls and the tables beside it. */

const SIZE_CHOICES = [KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB, 4 * GIB, 10 * GIB];
const RTT_CHOICE_S = { least: 0.05e-3, most: 200e-3 };

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
