/* How far off the predictions were on the validation links. */

function renderPredictionErrors(body, report, counts) {
  const cells = report.predictions.filter((cell) => number(cell.error_pct) !== null);
  counts.predictions += cells.length;
  if (!cells.length) return;
  body.append(
    make('h3', { id: 'errors' }, 'How far off it was'),
    make('p', { class: 'lead' }, 'The lab predicted session times on other links from the main link alone, then measured them. Error of the prediction: too long (+) or too short (−).'),
    make('div', { class: 'scroll' }, errorTable(report, cells)));
}

function errorTable(report, cells) {
  const columns = [...groupBy(cells, (cell) => cell.link)].map(([link, own]) => ({ link, sizes: sizesOf(own), own }));
  const names = report.stacks.map((stack) => stack.name).filter((name) => cells.some((cell) => cell.stack === name));
  const rows = names.map((name) => make('tr', {}, rowHead(name), ...columns.flatMap(({ own, sizes }) => sizes.map((size) =>
    errorCell(report, own.find((cell) => cell.stack === name && cell.size_bytes === size))))));
  const summary = make('tr', { class: 'sum' }, rowHead('median, largest'), ...columns.map(({ own, sizes }) => {
    const sizesOfErrors = own.map((cell) => Math.abs(cell.error_pct));
    return make('td', { colspan: sizes.length }, `${format3(median(sizesOfErrors))} %, ${format3(Math.max(...sizesOfErrors))} %`);
  }));
  return make('table', { class: 'errors' },
    make('caption', {}, 'Error of the prediction of each session. Small print: predicted and measured.'),
    make('thead', {},
      make('tr', {}, columnHead('Stack', { rowspan: 2, class: 'text' }), ...columns.map(({ link, sizes }) => make('th', { scope: 'colgroup', colspan: sizes.length, class: 'group' }, asText(link)))),
      make('tr', {}, ...columns.flatMap(({ sizes }) => sizes.map((size) => columnHead(formatSize(size)))))),
    make('tbody', {}, ...rows, summary));
}

/** The `data` element carries the figure that this page's own formula gives. */
function errorCell(report, cell) {
  if (!cell) return make('td', {}, '–');
  const row = record(report.costs.get(cell.stack)), link = report.links.find((candidate) => candidate.name === cell.link);
  const known = link && !missingFigures(row).length;
  const own_s = known ? predictSeconds(costsOf(row), predictedLink(report, link), cell.size_bytes) : null;
  const times = `${formatTime(cell.predicted_s)}, ${formatTime(cell.measured_s)}`;
  return make('td', {}, formatPct(cell.error_pct), make('small', {}, own_s === null ? times : make('data', { value: own_s, class: 'predicted' }, times)));
}
