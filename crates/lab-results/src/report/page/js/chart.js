/* Draws the picture: lines on a canvas, marks and labels over it. */

const ASINH_THRESHOLD_PCT = 0.5;
/** What an axis is called that is linear around 0 and logarithmic on both sides of it. */
const SYMMETRIC_LOG = 'symmetric-log scale';
const PLOT_HEIGHT = 420;
const NARROW = 560;
const MAX_FULL_LABELS = 5;
const LABEL_DIRECTIONS = [[-1, -1], [-1, 0], [-1, 1], [-0.5, -1], [-0.5, 1], [0, -1], [0, 1], [0.5, -1], [0.5, 1], [1, -1], [1, 1], [1, 0]];

function makeChart(model, state, view) {
  const overlay = drawing('svg', { 'aria-hidden': 'true' });
  const endLabelWidth = Math.max(...model.lines.map((line) => textWidth(endLabel(line, '+1,000 %', view.plot.clientWidth), '600 13px'))) + 34;
  const size = () => ({ width: Math.max(320, view.plot.clientWidth), height: PLOT_HEIGHT });
  const chart = new uPlot({
    ...size(),
    padding: [40, Math.min(endLabelWidth, 270), 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false } },
    scales: {
      x: { time: false, distr: 3, range: () => model.domain },
      y: { distr: 4, asinh: ASINH_THRESHOLD_PCT, range: () => overheadRange(view.picture) },
    },
    axes: [
      chartAxis({ label: 'Link rate', size: 34, splits: () => rateTicks(model.domain), values: rateLabels }),
      chartAxis({ label: `Overhead (${SYMMETRIC_LOG})`, size: 62, splits: overheadTicks, values: (_, ticks) => ticks.map((tick) => `${signed(tick, format3)} %`.replace('±', '')) }),
    ],
    series: [{}, ...model.lines.map((line) => ({
      label: line.name, width: 2.5, dash: dashOf(line.index), stroke: () => cssColour(colourOf(line.index)), points: { show: false }, pxAlign: 0,
    }))],
    hooks: {
      draw: [(u) => drawOverlay(u, overlay, model, state, view.picture)],
      setCursor: [() => showReadout(view, model, state)],
    },
  }, [model.rates, ...view.picture.curves], view.plot);
  chart.over.append(overlay);
  makeReadable(chart, model);
  new ResizeObserver(() => { if (size().width !== chart.width) chart.setSize(size()); }).observe(view.plot);
  onAppearanceChange(() => { chart.setSize(size()); chart.redraw(false, true); });
  return chart;
}

function chartAxis(options) {
  return {
    stroke: () => cssColour('--soft'), font: `12px ${pageFont()}`, labelFont: `13px ${pageFont()}`, labelSize: 20, gap: 5,
    grid: { stroke: () => cssColour('--grid'), width: 1 }, ticks: { stroke: () => cssColour('--grid'), size: 4 },
    filter: (_, ticks) => ticks, ...options,
  };
}

function setCurves(chart, model, picture) {
  chart.setData([model.rates, ...picture.curves]);
}

function makeReadable(chart, model) {
  const plot = chart.over;
  plot.tabIndex = 0;
  plot.setAttribute('role', 'img');
  plot.setAttribute('aria-label', `${chart.axes[1].label} in per cent against link rate, one line each for ${model.lines.map((line) => line.name).join(', ')}. Left and right arrow keys read values; the table below holds the same numbers.`);
  plot.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -5, ArrowRight: 5 }[event.key];
    if (!step) return;
    event.preventDefault();
    const from = chart.cursor.idx ?? Math.floor(model.rates.length / 2);
    const to = Math.min(model.rates.length - 1, Math.max(0, from + step));
    chart.setCursor({ left: chart.valToPos(model.rates[to], 'x'), top: 0 });
  });
}

function showReadout(view, model, state) {
  const position = view.chart?.cursor.idx ?? null;
  const outside = position === null || view.chart.cursor.left < 0;
  view.readout.textContent = outside
    ? 'Point at the picture, or focus it and press the arrow keys, to read values.'
    : `At ${formatRate(model.rates[position])}: ` + model.lines.map((line, index) => [line, view.picture.curves[index][position]])
      .filter(([line, pct]) => !state.hiddenLines.has(line) && pct !== null).map(([line, pct]) => `${line.name} ${formatPct(pct)}`).join(', ');
}

/** The range follows lines and marks; a whisker much longer than either is cut rather than flattening everything else. */
function overheadRange(picture) {
  const centres = [0, 1, ...picture.curves.flat(), ...picture.points.map((point) => point.pct)].filter(Number.isFinite);
  const least = Math.min(...centres), most = Math.max(...centres);
  const ends = picture.points.flatMap((point) => point.interval ?? []).filter((end) => end > 3 * least - 5 && end < 3 * most);
  const squeeze = (pct) => Math.asinh(pct / ASINH_THRESHOLD_PCT), stretch = (value) => Math.sinh(value) * ASINH_THRESHOLD_PCT;
  const low = squeeze(Math.min(least, ...ends)), high = squeeze(Math.max(most, ...ends));
  const room = 0.06 * (high - low);
  return [stretch(low - room), stretch(high + room)];
}

function overheadTicks(chart, _axis, least, most) {
  const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1e5, 1e6];
  const reach = (limit) => steps.filter((step) => step <= limit);
  const apart = (from, candidates) => {
    const kept = [];
    let last = from;
    for (const tick of candidates) {
      if (Math.abs(chart.valToPos(tick, 'y') - chart.valToPos(last, 'y')) >= 19) { kept.push(tick); last = tick; }
    }
    return kept;
  };
  const above = apart(0, reach(most)), below = apart(0, reach(-least).map((step) => -step));
  return [...below.reverse(), 0, ...above];
}

function rateTicks([least, most]) {
  const ticks = [];
  for (let decade = 10 ** Math.floor(Math.log10(least)); decade <= most; decade *= 10) {
    for (const factor of [1, 2, 5]) if (decade * factor >= least * 0.999 && decade * factor <= most * 1.001) ticks.push(decade * factor);
  }
  return ticks;
}

/** Of decades, as many as there is room for. */
function rateLabels(chart, ticks) {
  let last = -Infinity;
  return ticks.map((rate) => {
    const decade = Math.abs(Math.log10(rate) - Math.round(Math.log10(rate))) < 1e-6, at = chart.valToPos(rate, 'x');
    if (!decade || at - last < 72) return '';
    last = at;
    return formatRate(rate);
  });
}

function drawOverlay(chart, overlay, model, state, picture) {
  const area = { width: chart.over.clientWidth, height: chart.over.clientHeight };
  const x = (rate) => chart.valToPos(rate, 'x'), y = (pct) => chart.valToPos(pct, 'y');
  const lines = model.lines.filter((line) => !state.hiddenLines.has(line));
  const marks = spreadMarks(picture.points.filter((point) => lines.includes(point.line)), area.width, x, y);
  const knees = kneeDots(model, lines, picture, chart.width, x, y);
  overlay.setAttribute('width', area.width);
  overlay.setAttribute('height', area.height);
  overlay.replaceChildren();
  drawSites(overlay, marks, area);
  overlay.append(drawing('line', { class: 'zero', x1: 0, x2: area.width, y1: y(0), y2: y(0) }));
  marks.forEach((mark) => drawMark(overlay, mark, area, y));
  knees.forEach((knee) => overlay.append(kneeDot(knee)));
  const obstacles = [...curvePixels(model, lines, picture, x, y), ...marks.flatMap(markPixels(y)), ...knees.flatMap(({ x: across, y: down }) => boxSpots({ x: across - 6, y: down - 6, width: 12, height: 12 }))];
  for (let along = 0; along < area.width; along += 8) obstacles.push({ x: along, y: y(0) });
  drawKneeLabels(overlay, knees, obstacles, area);
  drawEndLabels(overlay, lines, model, picture, area, chart.width, y);
}

/** Marks of one link share its rate; a few pixels between them keep the whiskers apart. */
function spreadMarks(points, width, x, y) {
  const marks = [];
  for (const group of groupBy(points, (point) => `${linkName(point.link)} ${point.rate_bps}`).values()) {
    const apart = Math.min(15, 60 / group.length, width / 12 / group.length);
    group.forEach((point, position) => marks.push({ point, site: x(point.rate_bps), x: x(point.rate_bps) + (position - (group.length - 1) / 2) * apart, y: y(point.pct) }));
  }
  return marks;
}

function drawSites(overlay, marks, area) {
  const sites = new Map();
  for (const mark of marks) sites.set(mark.point.shaped ? linkName(mark.point.link) : `${linkName(mark.point.link)} (${mark.point.line.baseline})`, mark.site);
  const labels = siteLabels([...sites].sort((a, b) => a[1] - b[1]), area);
  for (const at of sites.values()) overlay.append(drawing('line', { class: 'site', x1: at, x2: at, y1: -5, y2: area.height }));
  for (const { row, x, text } of labels) overlay.append(drawing('text', { class: 'halo site-label', x, y: -9 - row * 16, 'text-anchor': 'middle' }, text));
}

/** Two rows of names above the plot; a name without a place of its own joins that of its neighbour. */
function siteLabels(sites, area) {
  const labels = [];
  for (const [name, at] of sites) {
    const own = siteLabel([shorten(name)], at, area);
    const row = [0, 1].find((candidate) => labels.every((other) => other.row !== candidate || isApart(own, other)));
    if (row !== undefined) { labels.push({ ...own, row }); continue; }
    const last = labels.pop();
    const joined = { ...siteLabel([...last.names, shorten(name)], (last.x + at) / 2, area), row: last.row };
    // what it has grown into joins it as well
    const hit = labels.filter((other) => other.row === joined.row && !isApart(joined, other));
    labels.splice(0, labels.length, ...labels.filter((other) => !hit.includes(other)),
      hit.length ? { ...siteLabel([...hit.flatMap((other) => other.names), ...joined.names], joined.x, area), row: joined.row } : joined);
  }
  return labels;
}

function siteLabel(names, at, area) {
  const text = names.join(' · '), width = textWidth(text, '12px');
  return { names, text, width, x: Math.min(Math.max(at, width / 2 - 40), area.width + 60 - width / 2) };
}

function isApart(one, other) {
  return Math.abs(other.x - one.x) >= (other.width + one.width) / 2 + 12;
}

function drawMark(overlay, { point, x, y: centre }, area, y) {
  const colour = `var(${colourOf(point.line.index)})`;
  const group = drawing('g', {});
  group.append(drawing('title', {}, `${point.line.name} on ${linkName(point.link)}, ${formatSize(point.size_bytes)}: measured ${formatPct(point.pct)}${point.interval ? ` (${formatInterval(point.interval)})` : ''}`));
  if (point.interval) {
    const [low, high] = point.interval.map((end) => Math.min(area.height, Math.max(0, y(end))));
    group.append(drawing('path', { class: 'whisker', stroke: colour, d: `M${x} ${low}V${high}M${x - 5} ${low}h10M${x - 5} ${high}h10` }));
  }
  group.append(markShape(point.line.index, x, centre, { class: 'mark', stroke: colour }));
  overlay.append(group);
}

/** Where each stack stops filling the link; baselines too, on the zero line, since that is where the lines go flat. */
function kneeDots(model, lines, picture, chartWidth, x, y) {
  const label = lines.length > MAX_FULL_LABELS || chartWidth < NARROW ? (name, rate) => `${name} ${rate}` : (name, rate) => `${name}: fills ${rate}`;
  const dots = lines.filter((line) => line.knee_bps !== null && line.knee_bps < RATE_DOMAIN.limit).map((line) => ({
    x: x(line.knee_bps), y: y(picture.at(line, line.knee_bps)), colour: colourOf(line.index), text: label(shorten(line.name), formatRate(line.knee_bps)),
  }));
  for (const [name, rate] of baselineKnees(lines)) dots.push({ x: x(rate), y: y(0), colour: '--soft', unlabelled: true, text: `${name}: fills ${formatRate(rate)}` });
  return dots;
}

function kneeDot({ x, y, colour, text }) {
  const dot = drawing('circle', { class: 'knee', cx: x, cy: y, r: 5.5, fill: `var(${colour})` });
  dot.append(drawing('title', {}, text));
  return dot;
}

function drawKneeLabels(overlay, knees, obstacles, area) {
  const taken = [];
  for (const knee of knees.filter((candidate) => !candidate.unlabelled)) {
    const box = placeLabel(knee, { width: textWidth(knee.text, '12px') + 6, height: 16 }, obstacles, taken, area);
    if (!box) continue;
    taken.push(box);
    const end = leaderEnd(knee, box);
    obstacles.push(...leaderSpots(knee, box), ...boxSpots(box));
    if (Math.hypot(end.x - knee.x, end.y - knee.y) > 11) overlay.append(drawing('line', { class: 'leader', stroke: `var(${knee.colour})`, x1: knee.x, y1: knee.y, x2: end.x, y2: end.y }));
    overlay.append(drawing('text', { class: 'halo', x: box.x + 3, y: box.y + 12, style: `fill: var(${knee.colour})` }, knee.text));
  }
}

/** The nearest place around the anchor that covers least of what is already drawn; null where only another label's place is left. */
function placeLabel(anchor, { width, height }, obstacles, taken, area) {
  let best = null;
  for (const distance of [10, 16, 24, 32, 42, 52, 64, 80, 100, 125, 150]) {
    for (const [across, down] of LABEL_DIRECTIONS) {
      const box = {
        x: anchor.x + across * distance - width * (1 - across) / 2,
        y: anchor.y + down * distance - height * (1 - down) / 2, width, height,
      };
      if (box.x < 2 || box.x + width > area.width - 2 || box.y < 2 || box.y + height > area.height - 2) continue;
      const hits = obstacles.filter((spot) => spot.x > box.x - 4 && spot.x < box.x + width + 4 && spot.y > box.y - 4 && spot.y < box.y + height + 4).length;
      const overlaps = taken.filter((other) => box.x < other.x + other.width + 4 && other.x < box.x + width + 4 && box.y < other.y + other.height && other.y < box.y + height).length;
      if (best && distance + hits * 20 + overlaps * 1000 >= best.price) continue;
      const crossed = leaderSpots(anchor, box).filter((spot) => obstacles.some((other) => Math.abs(other.x - spot.x) < 3 && Math.abs(other.y - spot.y) < 3)).length;
      const price = distance + hits * 20 + crossed * 5 + overlaps * 1000;
      if (!best || price < best.price) best = { price, box };
    }
  }
  return best && best.price < 1000 ? best.box : null;
}

function leaderEnd(anchor, box) {
  return { x: Math.min(box.x + box.width, Math.max(box.x, anchor.x)), y: Math.min(box.y + box.height, Math.max(box.y, anchor.y)) };
}

function boxSpots({ x, y, width, height }) {
  const spots = [];
  for (let across = 0; across <= width; across += 4) for (let down = 0; down <= height; down += 4) spots.push({ x: x + across, y: y + down });
  return spots;
}

/** Spots along a leader line, without those at the anchor, where its own curve always is. */
function leaderSpots(anchor, box) {
  const end = leaderEnd(anchor, box);
  const length = Math.hypot(end.x - anchor.x, end.y - anchor.y);
  const spots = [];
  for (let along = 10; along < length; along += 4) spots.push({ x: anchor.x + (end.x - anchor.x) * along / length, y: anchor.y + (end.y - anchor.y) * along / length });
  return spots;
}

function curvePixels(model, lines, picture, x, y) {
  const columns = model.rates.map(x);
  return lines.flatMap((line) => filledPath(picture.curves[model.lines.indexOf(line)].flatMap((pct, position) => (pct === null ? [] : [{ x: columns[position], y: y(pct) }]))));
}

function markPixels(y) {
  return ({ point, x, y: centre }) => filledPath([centre - 5, centre + 5, ...(point.interval ?? []).map(y)].map((height) => ({ x, y: height })));
}

/** The corners and spots every few pixels between them: a steep line is as much in the way of a label as a flat one. */
function filledPath(corners) {
  return corners.flatMap((to, position) => {
    const from = corners[Math.max(0, position - 1)];
    const steps = Math.min(200, Math.max(1, Math.ceil(Math.hypot(to.x - from.x, to.y - from.y) / 4)));
    return Array.from({ length: steps }, (_, step) => ({ x: from.x + (to.x - from.x) * (step + 1) / steps, y: from.y + (to.y - from.y) * (step + 1) / steps }));
  });
}

function drawEndLabels(overlay, lines, model, picture, area, chartWidth, y) {
  const labels = lines.map((line) => {
    const curve = picture.curves[model.lines.indexOf(line)];
    const last = curve.findLast((pct) => pct !== null);
    return { line, from: y(last), y: y(last), text: endLabel(line, formatPct(last), chartWidth) };
  });
  spreadVertically(labels, 17, area.height);
  for (const { line, from, y: to, text } of labels) {
    overlay.append(
      drawing('path', { class: 'leader', stroke: `var(${colourOf(line.index)})`, d: `M${area.width + 1} ${from}L${area.width + 12} ${to}` }),
      drawing('text', { class: 'end', x: area.width + 15, y: to + 4.5, style: `fill: var(${colourOf(line.index)})` }, text));
  }
}

/** A narrow picture keeps its room for the lines; the readout has the figures. */
function endLabel(line, figure, chartWidth) {
  return chartWidth < NARROW ? shorten(line.name, 12) : `${shorten(line.name, 16)} ${figure}`;
}

/** Moves labels apart until each has `gap` pixels, keeping their order and staying near where they belong. */
function spreadVertically(labels, gap, height) {
  labels.sort((a, b) => a.from - b.from);
  for (let round = 0; round < 60; round++) {
    for (let below = 1; below < labels.length; below++) {
      const lack = gap - (labels[below].y - labels[below - 1].y);
      if (lack > 0) { labels[below - 1].y -= lack / 2; labels[below].y += lack / 2; }
    }
    for (const label of labels) label.y = Math.min(height - 6, Math.max(6, label.y));
  }
}

/** Calls `redraw` when colours or the width of the page change without an observer noticing in time. */
function onAppearanceChange(redraw) {
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  // A canvas keeps its pixels when the page goes to paper, so it is drawn again first, in light
  // colours and as wide as the paper: `data-printing` makes the page so.
  addEventListener('beforeprint', redraw);
  addEventListener('afterprint', redraw);
}

// Listeners are called in their order: this one comes before those of any chart.
addEventListener('beforeprint', () => {
  document.documentElement.dataset.printing = '';
  for (const tools of document.querySelectorAll('.tools')) writeChoices(tools);
});
addEventListener('afterprint', () => { delete document.documentElement.dataset.printing; });
