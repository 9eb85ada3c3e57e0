/* The picture of overheads on any link, its controls and the tables beside it. */

const SIZE_CHOICES = [KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB, 4 * GIB, 10 * GIB];
const RTT_CHOICE_S = { least: 0.05e-3, most: 200e-3 };
const MAX_LOSS_PCT = 10;

function renderPicture(body, report, counts) {
  if (!canPredict(report)) {
    if (followsTrace(report.mainLink)) {
      body.append(make('p', {}, 'No prediction is possible from the main link: it follows a trace, which has no single rate. Measure on `unshaped` for costs that transfer to other links.'));
      return;
    }
    const why = rttOf(report.mainLink) === null ? 'its round-trip time was not measured' : 'it loses packets, so its costs do not transfer to other links';
    body.append(make('p', {}, `No prediction is possible from the main link: ${why}. Measure on \`unshaped\`, with this link as a validation link.`));
    return;
  }
  renderLines(body, report, counts);
  renderPredictionErrors(body, report, counts);
}

function renderLines(body, report, counts) {
  const { lines, omitted } = predictableLines(report);
  if (!lines.length) {
    body.append(make('p', {}, 'No stack could be predicted for another link.'), noteList(omitted));
    return;
  }
  const model = pictureModel(report, lines);
  const state = { size_bytes: largestMeasuredSize(report) ?? MIB, rtt_s: model.measuredRtt_s || RTT_CHOICE_S.least, loss: 0, hiddenLines: new Set() };
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
  const lead = model.atMost_bps === null
    ? 'Predicted overhead of one download, connecting included. Left of its dot a stack fills the link; right of it this machine is the limit.'
    : `Predicted overhead of one download, connecting included, on links up to ${formatRate(model.atMost_bps)}, the rate of the measured link.`;
  const key = seriesKey(model, state, view);
  const save = saveButtons(report, 'Overhead on any link', () => ({
    ...withKey(plotShapes(view.chart), key),
    detail: `${formatSize(state.size_bytes)}, round-trip time ${formatTime(state.rtt_s)}${state.loss > 0 ? `, ${format3(state.loss * 100)} % loss each way` : ''}`,
    description: [lead, ...[...view.notes.querySelectorAll('li')].map((note) => note.textContent)].join(' '),
  }));
  body.append(
    make('p', { class: 'lead' }, lead),
    key, view.plot, save, view.readout, view.notes,
    make('details', {}, make('summary', {}, 'The lines as numbers'), view.numbers));
  redraw();
  view.chart = makeChart(model, state, view);
  counts.charts += 1;
  counts.lines += lines.length;
  counts.points += view.picture.points.length;
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
  return [make('label', {}, 'File size', select), ...distanceControls(report, state, redraw)];
}

function distanceControls(report, state, redraw) {
  const least = Math.min(RTT_CHOICE_S.least, state.rtt_s), most = Math.max(RTT_CHOICE_S.most, state.rtt_s);
  const steps = 400, ratio = Math.log(most / least);
  const range = make('input', { type: 'range', min: 0, max: steps, 'aria-label': 'Round-trip time, logarithmic', oninput: () => choose(least * Math.exp(ratio * range.value / steps), state.loss) });
  const entry = make('input', { type: 'number', min: Number((least * 1e3).toPrecision(3)), max: most * 1e3, step: 'any', onchange: () => choose(entry.value > 0 ? entry.value / 1e3 : state.rtt_s, state.loss) });
  const loss = make('input', { type: 'number', min: 0, max: MAX_LOSS_PCT, step: 'any', disabled: !canPredictLoss(report), title: 'Share of packets lost at random, each way', onchange: () => choose(state.rtt_s, Number(loss.value) / 100) });
  const choose = (rtt_s, share) => {
    state.rtt_s = Math.min(most, Math.max(least, rtt_s));
    state.loss = Math.min(MAX_LOSS_PCT / 100, Math.max(0, share || 0));
    show();
    redraw();
  };
  const show = () => {
    range.value = steps * Math.log(state.rtt_s / least) / ratio;
    range.setAttribute('aria-valuetext', formatTime(state.rtt_s));
    entry.value = Number((state.rtt_s * 1e3).toPrecision(3));
    loss.value = Number((state.loss * 100).toPrecision(3));
  };
  show();
  const measured = report.links.filter((link) => rttOf(link) !== null && (!positive(link.loss_pct) || canPredictLoss(report)));
  return [
    make('label', {}, 'Round-trip time', entry, 'ms'), range, make('label', {}, 'Loss', loss, '%'),
    measured.length ? make('span', { class: 'rtt-links' }, 'as on ', ...measured.flatMap((link) => [make('button', { type: 'button', title: describeLink(link), onclick: () => choose(rttOf(link), (number(link.loss_pct) ?? 0) / 100) }, linkName(link)), ' '])) : null,
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
    model.lines.some((line) => line.knee_bps !== null) ? make('li', {}, kneeSwatch(), 'fastest link that it fills') : null,
    make('li', {}, markSwatch(), 'measured, with 95 % interval'));
}

function pictureNotes(model, { size_bytes, rtt_s, loss }, picture, omitted) {
  const notes = [];
  const measuredHere = model.points.some((point) => point.size_bytes === size_bytes);
  const lossy = loss > 0 ? ` and ${format3(loss * 100)} % loss each way (CUBIC)` : '';
  notes.push(`Lines: predicted for ${formatSize(size_bytes)}, a round-trip time of ${formatTime(rtt_s)}${lossy}, on the session clock. Marks: measured; shown only for this size, on links as far (within ${RTT_TOLERANCE * 100} %) and as lossy, or where the difference moves the line by less than ${UNMOVED_PCT} points.`);
  if (!measuredHere) notes.push(`No marks: ${formatSize(size_bytes)} was not measured.`);
  for (const [link, points] of groupBy(picture.hidden, (point) => point.link)) {
    notes.push(`${points.map((point) => point.line.name).join(', ')} on ${linkName(link)} not shown: measured at a round-trip time of ${formatTime(points[0].rtt_s ?? model.measuredRtt_s)}${points[0].loss > 0 ? ` with ${format3(points[0].loss * 100)} % loss` : ''}.`);
  }
  for (const [link, points] of groupBy(picture.notShaped, (point) => point.link)) {
    notes.push(`${points.map((point) => point.line.name).join(', ')} on ${linkName(link)} not shown: too short for the shaper to act on.`);
  }
  if (picture.points.some((point) => !point.shaped)) notes.push('A mark called "unshaped" had no link limit; it stands at the fastest link its baseline fills. Marks of one link are drawn side by side.');
  const baselines = [...baselineKnees(model.lines)].map(([name, rate]) => `${name} up to ${formatRate(rate)}`);
  if (baselines.length) notes.push(`Grey dots on the zero line: what the baselines fill, ${baselines.join(', ')}. Beyond them a faster link does not help the baseline either.`);
  return [...notes, ...omitted];
}

function lineTable(model, { at }) {
  const rates = model.atMost_bps === null ? [10e6, 100e6, 1e9, 10e9] : [model.atMost_bps / 100, model.atMost_bps / 10, model.atMost_bps];
  const rows = model.lines.map((line) => make('tr', {}, rowHead(line.name), make('td', { class: 'text' }, line.baseline),
    ...rates.map((rate) => make('td', {}, formatPct(at(line, rate)))), make('td', {}, line.knee_bps === null ? '–' : formatRate(line.knee_bps))));
  return make('table', {}, make('caption', {}, 'Predicted overhead for the chosen size, round-trip time and loss'),
    make('thead', {}, make('tr', {}, columnHead('Stack', { class: 'text' }), columnHead('Baseline', { class: 'text' }), ...rates.map((rate) => columnHead(formatRate(rate))), columnHead('Fills links up to'))),
    make('tbody', {}, ...rows));
}
