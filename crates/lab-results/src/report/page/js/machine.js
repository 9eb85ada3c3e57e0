/* The machine, its programs, the plan, the warnings. */

function renderMachine(body, report) {
  const { environment, plan } = report;
  body.append(factList([
    ['Processor', environment.cpu], ['Cores', environment.cores],
    ['Memory', positive(environment.memory_bytes) === null ? null : formatMemory(environment.memory_bytes)],
    ['Kernel', environment.kernel], ['System', environment.distribution], ['Headroom', environment.headroom],
    ['Started', environment.started && formatDate(environment.started)], ['Finished', environment.finished && formatDate(environment.finished)],
  ]));
  const hosts = records(environment.hosts);
  if (hosts.length) body.append(make('h3', {}, 'Two machines'), make('div', { class: 'scroll' }, hostTable(hosts)));
  const facts = Object.entries(record(environment.stacks));
  if (facts.length) body.append(make('h3', {}, 'What the stacks negotiated'), make('div', { class: 'scroll' }, stackFactTable(facts)));
  body.append(folded('Programs', programTable(records(environment.programs))));
  body.append(folded('Settings of the machine', factList(Object.entries(record(environment.settings)))));
  const { definitions, ...planned } = plan;
  body.append(folded('The plan as it was run', factList(Object.entries(planned))));
  const defined = records(definitions).map((one) => make('pre', {}, `[${asText(one.defines)}.${asText(one.name)}]\n${asText(one.toml)}`));
  if (defined.length) body.append(folded('Stacks that the plan defines', make('div', {}, ...defined)));
}

function hostTable(hosts) {
  const keys = ['host', 'address', 'cpu', 'cores', 'kernel', 'distribution', 'files'];
  const rows = hosts.map((host) => make('tr', {}, rowHead(host.role), ...keys.map((key) => make('td', { class: 'text' }, asText(host[key]))),
    make('td', {}, positive(host.memory_bytes) === null ? '–' : formatMemory(host.memory_bytes))));
  return make('table', {}, make('caption', {}, 'Client and server are real hosts; the facts above are the client\'s'),
    make('thead', {}, make('tr', {}, ...['Role', 'Host', 'Address', 'Processor', 'Cores', 'Kernel', 'System', 'Files on'].map((name) => columnHead(name, { class: 'text' })), columnHead('Memory'))),
    make('tbody', {}, ...rows));
}

function stackFactTable(facts) {
  const rows = facts.map(([stack, values]) => make('tr', {}, rowHead(stack), make('td', { class: 'text' }, Object.entries(record(values)).map(([name, value]) => `${readable(name)} ${asText(value)}`).join(' · '))));
  return make('table', {}, make('caption', {}, 'Read from the handshakes of this run'), make('thead', {}, make('tr', {}, columnHead('Stack', { class: 'text' }), columnHead('Facts', { class: 'text' }))), make('tbody', {}, ...rows));
}

function programTable(programs) {
  if (!programs.length) return make('p', {}, 'The results name no program.');
  const rows = programs.map((program) => make('tr', {}, rowHead(program.name), ...['version', 'origin', 'path'].map((key) => make('td', { class: 'text' }, asText(program[key] || '–')))));
  return make('table', {}, make('caption', {}, 'Programs under test, and their origin'), make('thead', {}, make('tr', {}, ...['Program', 'Version', 'Origin', 'Path'].map((name) => columnHead(name, { class: 'text' })))), make('tbody', {}, ...rows));
}

function renderWarnings(body, report) {
  body.append(report.warnings.length
    ? make('ul', {}, ...report.warnings.map((warning) => make('li', {}, warning)))
    : make('p', {}, 'This run gave none.'));
}
