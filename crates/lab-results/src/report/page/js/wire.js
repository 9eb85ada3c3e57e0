/* What is on the wire: packets and bytes, clear text, the measures of RFC 6349, the set-up of layers. */

const ETHERNET_HEADER_BYTES = 14;

function renderWire(body, report, counts) {
  const counted = report.summary.map((row) => ({ row, wire: wireOf(report, row) })).filter(({ wire, row }) => wire !== null || row.rfc6349);
  if (!counted.length && !report.clearText.size) {
    body.append(make('p', {}, 'No packets were counted in this run.'));
    return;
  }
  const rows = counted.map(({ row }) => row);
  const links = report.links.map(linkName).filter((name) => rows.some((row) => row.link === name));
  const choice = { link: links[0], workload: workloadsOf(rows)[0], size_bytes: null };
  const place = make('div'), sizes = make('span');
  const fitting = () => rows.filter((row) => row.link === choice.link && row.workload === choice.workload);
  const draw = () => {
    const measured = sizesOf(fitting());
    if (!measured.includes(choice.size_bytes)) choice.size_bytes = measured[measured.length - 1] ?? null;
    sizes.replaceChildren(...[sizeSelect(measured, choice.size_bytes, (size) => { choice.size_bytes = size; draw(); })].filter(Boolean));
    const cells = counted.filter(({ row }) => row.link === choice.link && row.workload === choice.workload && number(row.size_bytes) === choice.size_bytes);
    place.replaceChildren(...wireTables(report, cells, counts));
  };
  const choose = (key) => (value) => { choice[key] = value; draw(); };
  addTools(body, linkSelect(links, choice.link, choose('link')),
    segmented('Of', 'wire-workload', workloadsOf(rows).map((kind) => [kind, workloadTitle(kind).toLowerCase()]), choice.workload, choose('workload')), sizes);
  body.append(make('p', { class: 'lead' }, accountingText(report)), place);
  draw();
  if (report.layerSetups.length) body.append(...layerSetUps(report, counts));
}

/** Counted in the accounting run of the row's cell. */
function wireOf(report, row) {
  return samplesOf(report, row).map((sample) => sample.wire).find((wire) => wire !== null && typeof wire === 'object') ?? null;
}

function accountingText({ accounting, plan }) {
  if (number(accounting.captures) === null) return 'Packets of this run were not counted.';
  const checks = [
    `${format3(accounting.captures)} transfers were captured with offloads off, in runs of their own`,
    `captures lost ${accounting.capture_drops === 0 ? 'no frame' : `${format3(accounting.capture_drops)} frames`}`,
    accounting.counters_agree === true ? 'the router\'s interface counted the same' : 'the router\'s interface counted otherwise',
    ...(positive(accounting.recounted) ? [`${format3(accounting.recounted)} more were left out because it did not`] : []),
    `no frame was over the MTU of ${asText(plan.mtu)}`,
  ];
  return `${checks.join('; ')}. The lab aborts a run in which one of these checks fails.`;
}

function wireTables(report, cells, counts) {
  const ordered = report.stacks.flatMap((stack) => cells.filter(({ row }) => row.stack === stack.name).map((cell) => ({ ...cell, stack })));
  const unseen = report.stacks.filter((stack) => !ordered.some((cell) => cell.stack === stack) && report.clearText.has(stack.name)).map((stack) => ({ stack, wire: null, row: null }));
  const shown = [...ordered.filter(({ wire }) => wire !== null), ...unseen];
  const measures = ordered.filter(({ row }) => row.rfc6349);
  counts.wires = shown.filter(({ wire }) => wire !== null).length;
  counts.rfc6349 = measures.length;
  counts.captures = shown.filter(({ row }) => row && captureOf(report, row)).length;
  counts.cleartext = shown.filter(({ stack }) => report.clearText.has(stack.name)).length;
  return [
    shown.length ? make('div', { class: 'scroll' }, wireTable(report, shown)) : make('p', {}, 'Packets of these transfers were not counted.'),
    ...(measures.length ? [
      make('h3', {}, 'In the measures of RFC 6349'),
      make('p', { class: 'lead' }, 'Time over the least that the link allows (1 is ideal), share of bytes that were not retransmitted, and growth of the round-trip time during the transfer.'),
      make('div', { class: 'scroll' }, rfcTable(measures))] : []),
  ];
}

function wireTable(report, cells) {
  const limit = (number(report.plan.mtu) ?? 1500) + ETHERNET_HEADER_BYTES;
  const captures = cells.map(({ row }) => (row ? captureOf(report, row) : null));
  const kept = captures.some((capture) => capture !== null);
  const heads = ['Packets', 'Bytes', 'Payload efficiency', 'Headers per full packet', 'Largest frame', 'Resent', 'Round trips', 'Connections', 'Handshakes'];
  const rows = cells.map(({ stack, row, wire }, position) => {
    const own = record(wire);
    const figure = (value, format) => make('td', {}, number(value) === null ? '–' : format(value));
    const whole = (value) => value.toLocaleString('en-US');
    return make('tr', { class: stack.index < 0 ? 'baseline' : null }, rowHead(stack.name),
      make('td', { class: 'text' }, ...clearTextOf(report, stack)),
      figure(own.packets, whole), figure(own.bytes, whole), figure(own.payload_efficiency_pct, (pct) => `${pct.toFixed(2)} %`),
      figure(own.header_bytes_per_packet, (bytes) => bytes.toFixed(1)),
      make('td', {}, number(own.largest_frame_bytes) === null ? '–' : `${whole(own.largest_frame_bytes)}${own.largest_frame_bytes > limit ? ' ✕' : ''}`),
      make('td', {}, row ? sentAgain(report, row) : '–'),
      figure(own.round_trips, whole), figure(own.connections, whole),
      make('td', {}, number(own.handshakes) === null ? '–' : whole(own.handshakes), positive(own.hello_retries) ? make('small', {}, `${own.hello_retries} with a HelloRetry`) : null),
      kept ? make('td', { class: 'text' }, ...captureText(captures[position], limit)) : null);
  });
  return make('table', { class: 'wire' },
    make('caption', {}, `One transfer each, all frames, Ethernet headers counted, none larger than ${limit.toLocaleString('en-US')} bytes. Payload efficiency: bytes of the file per byte in its direction. Resent: by TCP, in the timed runs. Content: whether a random marker in a file was readable on the wire.`),
    make('thead', {}, make('tr', {}, columnHead('Stack', { class: 'text' }), columnHead('Content', { class: 'text' }), ...heads.map((head) => columnHead(head)), kept ? columnHead('Capture', { class: 'text' }) : null)),
    make('tbody', {}, ...rows));
}

function captureOf(report, row) {
  return report.captures.find((capture) => ['stack', 'workload', 'size_bytes'].every((key) => capture[key] === row[key])) ?? null;
}

function captureText(capture, limit) {
  if (capture === null) return ['–'];
  const target = inFolder(capture.file), name = asText(capture.file).split('/').pop();
  const cut = number(capture.snaplen) === null ? null : capture.snaplen < limit ? `${format3(capture.snaplen)} bytes a frame` : 'whole frames';
  return [target === null ? shorten(name) : make('a', { href: target, title: name }, 'pcap'), cut === null ? null : make('small', {}, cut)];
}

/** The address of a file beside this page; null where a path leads elsewhere. Escaped, so that it names no other scheme. */
function inFolder(path) {
  const steps = asText(path).split('/');
  return steps.some((step) => ['', '.', '..'].includes(step)) ? null : steps.map(encodeURIComponent).join('/');
}

function clearTextOf(report, stack) {
  const row = report.clearText.get(stack.name);
  if (!row) return ['not checked'];
  const searched = number(row.bytes_searched) === null ? null : make('small', {}, `${formatBytes(row.bytes_searched)} searched`);
  if (row.marker_seen === true) return [row.secured === true ? make('b', {}, '✕ readable') : 'readable', searched];
  return [row.secured === true ? '✓ nothing in clear' : 'marker not seen', searched];
}

function sentAgain(report, row) {
  const tcp = samplesOf(report, row).map((sample) => record(sample.tcp)).filter((one) => positive(one.transmitted_bytes) !== null && number(one.retransmitted_bytes) !== null);
  if (!tcp.length) return '–';
  const sum = (key) => tcp.reduce((total, one) => total + one[key], 0);
  const again = sum('retransmitted_bytes');
  return again === 0 ? 'none' : `${format3(100 * again / sum('transmitted_bytes'))} %`;
}

function rfcTable(cells) {
  const figure = (value, format) => make('td', {}, number(value) === null ? '–' : format(value));
  const rows = cells.map(({ stack, row }) => {
    const own = record(row.rfc6349);
    return make('tr', { class: stack.index < 0 ? 'baseline' : null }, rowHead(stack.name), figure(row.mean_s, formatTime), figure(own.ideal_s, formatTime),
      figure(own.transfer_time_ratio, format3), figure(own.tcp_efficiency_pct, (pct) => `${pct.toFixed(2)} %`), figure(own.buffer_delay_pct, (pct) => `${format3(pct)} %`),
      make('td', {}, number(row.overhead_pct) === null ? 'baseline' : formatPct(row.overhead_pct)));
  });
  return make('table', { class: 'rfc' },
    make('caption', {}, 'No ideal time without a link rate. Buffer delay of small files says more about hosts than about the link.'),
    make('thead', {}, make('tr', {}, columnHead('Stack', { class: 'text' }), ...['Transfer', 'Ideal', 'Transfer time ratio', 'TCP efficiency', 'Buffer delay', 'Our overhead'].map((head) => columnHead(head)))),
    make('tbody', {}, ...rows));
}

/** Layers are brought up once for many transfers, so what that takes stands apart from them. */
function layerSetUps(report, counts) {
  counts.layers += report.layerSetups.length;
  const rows = report.layerSetups.map((setup) => {
    const times = list(setup.seconds).filter((seconds) => number(seconds) !== null);
    const spread = times.length > 1 ? make('small', {}, `${formatTime(Math.min(...times))} to ${formatTime(Math.max(...times))}, ${times.length} times`) : null;
    const figure = (value) => make('td', {}, number(value) === null ? '–' : value.toLocaleString('en-US'));
    return make('tr', {}, rowHead(setup.stack), make('td', { class: 'text' }, ...breakable(asText(setup.layer))), figure(setup.round_trips), figure(setup.packets), figure(setup.bytes),
      make('td', {}, times.length ? formatTime(median(times)) : '–', spread));
  });
  return [
    make('h3', { id: 'layers' }, 'Setting up a layer'),
    make('p', { class: 'lead' }, 'Time to bring a tunnel up, once, before its first transfer. No other figure here includes it.'),
    make('div', { class: 'scroll' }, make('table', { class: 'layers' },
      make('caption', {}, 'First packet of the handshake to its last, on the main link; the median of several times from nothing.'),
      make('thead', {}, make('tr', {}, columnHead('Stack', { class: 'text' }), columnHead('Layer', { class: 'text' }), ...['Round trips', 'Packets', 'Bytes', 'Time'].map((head) => columnHead(head)))),
      make('tbody', {}, ...rows))),
  ];
}
