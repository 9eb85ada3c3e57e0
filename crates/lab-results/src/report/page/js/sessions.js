/* Sessions of closed loops: how many a second, how long they take, and what one costs. */

function renderSessions(body, report, counts) {
  const rows = report.summary.filter((row) => row.link === report.mainLink.name && number(record(row.sessions).clients) !== null);
  if (!rows.length) return;
  counts.sessions = rows.length;
  rows.sort((a, b) => a.sessions.clients - b.sessions.clients || a.size_bytes - b.size_bytes);
  const heads = ['Clients', 'Size', 'Sessions per second', 'Median', '99th percentile', 'Longest', 'CPU, client', 'CPU, server', 'Failed'];
  body.append(
    make('p', { class: 'lead' }, 'So many clients at once, each of which starts its next session when the one before has ended. A session lasts from start to end of the client\'s process. CPU: per session; a core of the server alone has time for 1 / server CPU sessions a second.'),
    make('div', { class: 'scroll' }, make('table', { class: 'sessions' },
      make('caption', {}, `${runCount(rows)} Median and 99th percentile: of each run\'s sessions, then their geometric mean. Small print: 95 % interval. No 99th percentile if a run has fewer than 100 sessions.`),
      make('thead', {}, make('tr', {}, columnHead('Stack', { class: 'text' }), ...heads.map((head) => columnHead(head)))),
      make('tbody', {}, ...rows.map(sessionRow)))));
  body.parentElement.hidden = false;
}

function sessionRow(row) {
  const own = row.sessions;
  const cell = (value, interval, format) => {
    const ends = list(interval);
    // The interval of two runs says nothing.
    const known = row.n !== 2 && ends.length === 2 && ends.every(Number.isFinite);
    return make('td', {}, number(value) === null ? '–' : format(value), known ? make('small', {}, `${format(ends[0])} to ${format(ends[1])}`) : null);
  };
  return make('tr', {}, rowHead(row.stack),
    cell(own.clients, null, format3), make('td', {}, formatSize(row.size_bytes)),
    cell(own.per_s_mean, own.per_s_ci95, format3), cell(row.mean_s, row.ci95_s, formatTime),
    cell(own.p99_mean_s, own.p99_ci95_s, formatTime), cell(own.max_s, null, formatTime),
    cell(own.client_cpu_mean_s, own.client_cpu_ci95_s, formatTime), cell(own.server_cpu_mean_s, own.server_cpu_ci95_s, formatTime),
    cell(own.failed, null, format3));
}
