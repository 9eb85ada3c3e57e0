/* What a transfer costs at any size: a fixed part, a part for each gigabyte, and where one stack overtakes another. */

const VIEWS = { time: 'time', fastest: 'times the fastest' };

function renderModels(body, report, counts) {
  counts.models += report.models.length;
  if (!report.models.length) {
    body.append(make('p', {}, followsTrace(report.mainLink)
      ? 'The link follows a trace, on which the time of a byte depends on when it is sent: there is no model.'
      : 'No stack moved files of two sizes, so there is no model.'));
    return;
  }
  const names = (key) => [...new Set(report.models.map((model) => asText(model[key])))];
  const links = report.links.map(linkName).filter((name) => names('link').includes(name));
  const choice = { link: links[0] ?? names('link')[0], workload: names('workload')[0], clock: 'session', view: 'time' };
  const place = make('div'), fit = document.querySelector('#fit .body');
  const plots = [];
  const draw = () => {
    plots.splice(0).forEach((plot) => plot.destroy());
    const models = modelsOf(report, choice);
    if (!models.length) {
      fit.replaceChildren();
      place.replaceChildren(make('p', {}, `No model of ${workloadTitle(choice.workload).toLowerCase()}s on ${choice.link}.`));
      return;
    }
    const crossings = crossingsOf(report, choice);
    const time = make('div', { class: 'plot' }), residuals = make('div', { class: 'plot' });
    const detail = `${workloadTitle(choice.workload).toLowerCase()}s on ${choice.link}, ${CLOCKS[choice.clock]}`;
    const caption = choice.view === 'time' ? 'Time of one transfer against the size of its file: lines are models, marks are measurements.' : 'Time of one transfer, divided by the fastest model at its size: the stack at 1 wins, and lines swap where one overtakes another.';
    const lead = `Residuals of the models of ${detail}: measured over modelled time of each run. A cloud around 0 is noise; a curve is an error of the model.`;
    const timeKey = modelKey(models, crossings), residualKey = modelKey(models, []);
    const saves = [['Time at any size', timeKey, caption], ['Residuals of the models', residualKey, lead]].map(([name, key, description], position) =>
      saveButtons(report, name, () => ({ ...withKey(plotShapes(plots[position]), key), detail, description })));
    place.replaceChildren(
      crossingList(models, crossings),
      make('div', { class: 'scroll' }, modelTable(models)),
      timeKey, make('figure', {}, make('figcaption', {}, caption), time), saves[0]);
    fit.replaceChildren(make('p', { class: 'lead' }, lead), residualKey, residuals, saves[1]);
    plots.push(timePlot(time, models, crossings, choice.view), residualPlot(residuals, models));
    counts.residuals = models.reduce((sum, model) => sum + model.residuals.length, 0);
    counts.crossings = crossings.length;
  };
  const choose = (key) => (value) => { choice[key] = value; draw(); };
  addTools(body,
    linkSelect(links, choice.link, choose('link')),
    segmented('Of', 'models-workload', names('workload').map((kind) => [kind, workloadTitle(kind).toLowerCase()]), choice.workload, choose('workload')),
    segmented('Clock', 'models-clock', Object.entries(CLOCKS).filter(([clock]) => names('clock').includes(clock)), choice.clock, choose('clock')),
    segmented('Plot', 'models-view', Object.entries(VIEWS), choice.view, choose('view')));
  body.append(
    make('p', { class: 'lead' }, 'Time = fixed cost + cost per gigabyte × size. The first is what a small file pays (connecting, handshakes, login), the second what a large one pays.'),
    place);
  draw();
  counts.charts += plots.length;
}

function modelsOf(report, { link, workload, clock }) {
  const own = report.models.filter((model) => model.link === link && model.workload === workload && model.clock === clock && number(model.fixed_s) !== null && number(model.seconds_per_gb) !== null);
  const path = slowStartPath(report, report.links.find((candidate) => linkName(candidate) === link));
  return report.stacks.flatMap((stack) => own.filter((model) => model.stack === stack.name).map((model) => ({
    ...model, name: stack.name, index: stack.index, points: records(model.points), residuals: residualsOf(report, model),
    secondsAt: (bytes) => model.fixed_s + model.seconds_per_gb * bytes / 1e9 + (path ? slowStartWaits(path, bytes) : 0),
  })));
}

/** With the outliers among them marked. */
function residualsOf(report, model) {
  const outliers = new Set(report.samples.filter((sample) => sample.outlier === true && ['link', 'stack', 'workload'].every((key) => sample[key] === model[key])).map((sample) => `${sample.size_bytes} ${sample.block}`));
  return records(model.residuals).filter((residual) => number(residual.log_ratio) !== null)
    .map((residual) => ({ ...residual, outlier: outliers.has(`${residual.size_bytes} ${residual.block}`) }));
}

/** The known waits of slow start, on links with a delay of their own and no loss (crates/lab-results/src/analysis/models.rs). */
function slowStartPath(report, link) {
  if (!link || !positive(link.delay_ms) || positive(link.loss_pct)) return null;
  const segment_bytes = segmentBytes(report.plan), line_bytes = (number(report.plan.mtu) ?? 1500) + 38;
  const rate = positive(link.rate_bps);
  return { bytes_per_s: rate === null ? Infinity : rate / 8 * segment_bytes / line_bytes, rtt_s: rttOf(link) ?? 2 * link.delay_ms / 1e3, segment_bytes };
}

function crossingsOf(report, { link, workload, clock }) {
  return report.crossovers.filter((crossing) => crossing.link === link && crossing.workload === workload && crossing.clock === clock && positive(crossing.size_bytes) !== null)
    .sort((a, b) => a.size_bytes - b.size_bytes);
}

function crossingList(models, crossings) {
  const sure = crossings.filter((crossing) => crossing.significant === true), open = crossings.filter((crossing) => !sure.includes(crossing));
  if (!crossings.length) {
    const sizes = models.flatMap((model) => model.points.map((point) => point.size_bytes));
    return make('p', {}, models.length > 1 ? `Between ${formatSize(Math.min(...sizes))} and ${formatSize(Math.max(...sizes))} this run shows no crossover.` : '');
  }
  return make('ul', { class: 'crossings' }, ...sure.map((crossing) => make('li', {}, make('b', {}, `${asText(crossing.below)} is cheaper than ${asText(crossing.above)} below ${crossingText(crossing)}`))),
    open.length ? make('li', {}, 'With one end beyond the measured sizes (…): ', open.map((crossing) => `${asText(crossing.below)} is cheaper than ${asText(crossing.above)} below ${crossingText(crossing)}`).join('; '), '.') : null);
}

/** `3.1 MB [2.2, 4.0]`: the interval in the unit of the size. */
function crossingText({ size_bytes, ci95_bytes }) {
  const [factor] = [1e9, 1e6, 1e3, 1].filter((candidate) => size_bytes >= candidate);
  const ends = list(ci95_bytes).map((end) => (number(end) === null ? '…' : format3(end / (factor ?? 1))));
  return `${formatBytes(size_bytes)}${ends.length === 2 ? ` [${ends.join(', ')}]` : ''}`;
}

function modelTable(models) {
  const rows = models.map((model) => {
    const shortest_s = Math.min(...model.points.map((point) => point.measured_s - (number(point.slow_start_s) ?? 0)));
    // a line through two points always fits
    const worst = model.points.length < 3 ? NaN : Math.max(...model.points.map((point) => 100 * Math.abs(point.measured_s / point.modelled_s - 1)));
    return make('tr', { class: model.index < 0 ? 'baseline' : null }, rowHead(model.name),
      make('td', {}, asText(model.n)), make('td', {}, costText(model.fixed_s, model.fixed_ci95_s, 1e3, shortest_s)), make('td', {}, costText(model.seconds_per_gb, model.seconds_per_gb_ci95)),
      make('td', {}, Number.isFinite(worst) ? `${format3(worst)}${worst > 33 ? ': unusable' : ''}` : '–'),
      make('td', { class: 'text' }, ...preferenceText(model)));
  });
  return make('table', { class: 'models' },
    make('caption', {}, 'n: blocks of the size with the fewest. ± half of the 95 % interval. A range (0 to 30) is the possible part of an interval that holds what cannot be: less than 0, or more than the shortest measured time; –: nothing of it is possible. Largest error: distance between the model and the mean of a size, for three sizes or more. Explains the overhead: this model, or a straight line over log(size) as in the studies, whichever has the lower AICc (Akaike, corrected for few runs).'),
    make('thead', {}, make('tr', {}, columnHead('Stack', { class: 'text' }), columnHead('n'), columnHead('Fixed cost per transfer, ms'), columnHead('Cost per GB, s'), columnHead('Largest error, %'), columnHead('Explains the overhead', { class: 'text' }))),
    make('tbody', {}, ...rows));
}

function preferenceText(model) {
  if (!model.preferred) return [model.index < 0 ? 'baseline' : '–'];
  const lead = number(model.aic_cost) === null || number(model.aic_log_line) === null ? '' : `, by ${format3(Math.abs(model.aic_cost - model.aic_log_line))}`;
  const line = record(model.log_line);
  const formula = number(line.slope_pct) === null ? null : make('small', {}, `line: ${format3(line.intercept_pct)} % ${line.slope_pct < 0 ? '−' : '+'} ${format3(Math.abs(line.slope_pct))} % · ln(bytes)`);
  return [`${model.preferred === 'cost' ? 'this model' : 'the log-line'}${lead}`, formula];
}

function modelKey(models, crossings) {
  return make('ul', { class: 'series', 'aria-label': 'Stacks in the plots' },
    ...models.map((model) => make('li', {}, lineSwatch(model), model.name)),
    crossings.length ? make('li', {}, crossingSwatch(), 'crossover with its 95 % interval') : null,
    models.some((model) => model.residuals.some((residual) => residual.outlier)) ? make('li', {}, outlierSwatch(), 'outlier: marked, not dropped') : null);
}
