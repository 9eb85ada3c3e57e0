/* The machine, its programs, the plan, the warnings. */

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
  return make('table', {}, make('caption', {}, 'Links as they were used; a shaped link must pass a rate self-test first'),
    make('thead', {}, make('tr', {}, columnHead('Link', { class: 'text' }), columnHead('Use', { class: 'text' }), ...['Rate', 'Delay', 'Jitter', 'Loss', 'Round trip'].map((name) => columnHead(name)), columnHead('Made by', { class: 'text' }), columnHead('Self-test', { class: 'text' }))),
    make('tbody', {}, ...rows));
}

function selfTestText(link) {
  const test = link.self_test;
  if (!test) return positive(link.rate_bps) === null ? 'none: no rate to test' : 'not run';
  const error = number(test.error_pct) === null ? '' : ` (${formatPct(test.error_pct)})`;
  return `${test.passed ? '✓ passed' : '✕ failed'}: asked ${formatRate(test.asked_bps)}, measured ${formatRate(test.measured_bps)}${error}`;
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

function renderWarnings(body, report) {
  body.append(report.warnings.length
    ? make('ul', {}, ...report.warnings.map((warning) => make('li', {}, warning)))
    : make('p', {}, 'This run gave none.'));
}
