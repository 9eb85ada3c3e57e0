/* Draws the report, section by section. */

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
  document.getElementById('trust').append('How we know: ', ...trustLine(report));
}

/** Why the figures may be believed, in one line, each part a link to the section that shows it. */
function trustLine(report) {
  const parts = [['#link', `Link ${linkVerdict(report.mainLink)}`]];
  const hidden = [...report.clearText.values()].filter((row) => row.secured === true && row.marker_seen === false).length;
  if (hidden) parts.push(['#wire', `${hidden} secured ${hidden === 1 ? 'stack' : 'stacks'} with nothing in clear on the wire`]);
  if (number(report.accounting.captures) !== null) parts.push(['#wire', `packets of ${format3(report.accounting.captures)} transfers counted`]);
  const outliers = report.samples.filter((sample) => sample.outlier === true).length;
  parts.push(['#cells', `${report.samples.length.toLocaleString('en-US')} samples, ${outliers === 0 ? 'no outlier' : outliers === 1 ? '1 outlier, kept' : `${outliers} outliers, all kept`}`]);
  if (report.predictions.length) parts.push(['#errors', `prediction off by a median of ${format3(median(report.predictions.map((cell) => Math.abs(number(cell.error_pct) ?? 0))))} %`]);
  return parts.flatMap(([target, text], position) => [position ? ' · ' : '', make('a', { href: target }, text)]);
}

function renderReport() {
  const counts = { advised: 0, sessions: 0, charts: 0, lines: 0, points: 0, strips: 0, cells: 0, models: 0, residuals: 0, crossings: 0, predictions: 0, wires: 0, rfc6349: 0, cleartext: 0, captures: 0, layers: 0, links: 0, errors: 0 };
  const sections = [
    ['advice', renderAdvice], ['picture', renderPicture], ['sessions', renderSessions], ['cost', renderCosts], ['models', renderModels], ['time', renderTimelines], ['wire', renderWire],
    ['cells', renderHeatMaps], ['link', renderLinks], ['machine', renderMachine], ['warnings', renderWarnings],
  ];
  let report = null;
  try {
    report = parseReport(document.getElementById('results').textContent);
    renderHead(report);
  } catch (error) {
    report = null;
    reportFailure(document.querySelector('#picture .body'), 'The results inside this page could not be read', error, counts);
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

renderReport();
