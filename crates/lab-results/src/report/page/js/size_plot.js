/* Plots over the size of a file: times and models, residuals. */

const SIZE_PLOT_HEIGHT = 330;
const CURVE_STEPS = 160;
const LEAST_RESIDUAL_PCT = 2;

/** uPlot with a logarithmic axis of sizes; `overlay` draws marks over it, in pixels. */
function sizePlot(place, { sizes, series, curves, axis, label, overlay }) {
  const image = drawing('svg', { 'aria-hidden': 'true' });
  const size = () => ({ width: Math.max(280, place.clientWidth), height: SIZE_PLOT_HEIGHT });
  const domain = sizeDomain(sizes);
  const columns = curveSizes(domain);
  const chart = new uPlot({
    ...size(),
    padding: [22, 30, 0, 0],
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: false, distr: 3, range: () => domain }, y: axis.scale },
    axes: [
      chartAxis({ label: 'Size of the file', size: 34, splits: () => sizeTicks(domain), values: (u, ticks) => sizeLabels(u, ticks) }),
      chartAxis({ label: axis.label, size: 62, splits: axis.splits, values: axis.values }),
    ],
    series: [{}, ...series.map(({ name, index }) => ({ label: name, width: 2, dash: dashOf(index), stroke: () => cssColour(colourOf(index)), points: { show: false }, pxAlign: 0 }))],
    hooks: { draw: [(u) => {
      image.setAttribute('width', u.over.clientWidth);
      image.setAttribute('height', u.over.clientHeight);
      image.replaceChildren();
      overlay(image, (bytes) => u.valToPos(bytes, 'x'), (value) => u.valToPos(value, 'y'), u.over);
    }] },
  }, [columns, ...curves(columns)], place);
  chart.over.append(image);
  chart.over.setAttribute('role', 'img');
  chart.over.setAttribute('aria-label', label);
  new ResizeObserver(() => { if (place.isConnected && size().width !== chart.width) chart.setSize(size()); }).observe(place);
  onAppearanceChange(() => { if (place.isConnected) { chart.setSize(size()); chart.redraw(false, true); } });
  return chart;
}

function sizeDomain(sizes) {
  const known = sizes.filter((bytes) => bytes > 0);
  return [Math.min(...known) / 1.6, Math.max(...known) * 1.6];
}

function curveSizes([least, most]) {
  const ratio = Math.log(most / least);
  return Array.from({ length: CURVE_STEPS + 1 }, (_, step) => least * Math.exp(ratio * step / CURVE_STEPS));
}

function sizeTicks([least, most]) {
  const ticks = [];
  for (let bytes = 1; bytes <= most; bytes *= 4) if (bytes >= least) ticks.push(bytes);
  return ticks;
}

function sizeLabels(chart, ticks) {
  let last = -Infinity;
  return ticks.map((bytes) => {
    const at = chart.valToPos(bytes, 'x');
    if (at - last < 62) return '';
    last = at;
    return formatSize(bytes);
  });
}

function timePlot(place, models, crossings, view) {
  const fastest = (bytes) => Math.min(...models.map((model) => model.secondsAt(bytes)).filter((seconds) => seconds > 0));
  const scaled = (seconds, bytes) => (view === 'time' ? seconds : seconds / fastest(bytes));
  const points = models.flatMap((model) => model.points.filter((point) => point.size_bytes > 0 && point.measured_s > 0).map((point) => ({ model, bytes: point.size_bytes, value: scaled(point.measured_s, point.size_bytes), seconds: point.measured_s })));
  const curve = (model) => (bytes) => { const seconds = model.secondsAt(bytes); return seconds > 0 ? scaled(seconds, bytes) : null; };
  const sizes = models.flatMap((model) => model.points.map((point) => point.size_bytes));
  const values = [...points.map((point) => point.value), ...models.flatMap((model) => curveSizes(sizeDomain(sizes)).map(curve(model)))].filter((value) => value > 0);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const range = view === 'time' ? [low / 1.3, high * 1.3] : [Math.min(0.97, low / 1.1), Math.max(1.1, high * 1.1)];
  return sizePlot(place, {
    sizes,
    series: models,
    curves: (columns) => models.map((model) => columns.map(curve(model))),
    axis: {
      label: view === 'time' ? 'Time (log scale)' : 'Times the fastest (log scale)',
      scale: { distr: 3, range: () => range },
      splits: () => logTicks(range),
      values: (u, ticks) => logLabels(u, ticks, view === 'time' ? formatTime : (value) => `×${format3(value)}`),
    },
    label: `Time against size, one line each for ${models.map((model) => model.name).join(', ')}; the table above holds fixed cost and cost per gigabyte.`,
    overlay: (image, x, y, area) => {
      drawCrossings(image, models, crossings, scaled, x, y, area);
      for (const { model, bytes, value, seconds } of points) {
        const mark = markShape(model.index, x(bytes), y(value), { class: 'mark', stroke: `var(${colourOf(model.index)})` });
        mark.append(drawing('title', {}, `${model.name}, ${formatSize(bytes)}: measured ${formatTime(seconds)}, model ${formatTime(model.secondsAt(bytes))}`));
        image.append(mark);
      }
    },
  });
}

/** A band for the interval and a dot where the two lines meet; open ends reach the edge. */
function drawCrossings(image, models, crossings, scaled, x, y, area) {
  const width = area.clientWidth, height = area.clientHeight;
  for (const crossing of crossings) {
    const at = x(crossing.size_bytes);
    if (!(at >= 0 && at <= width)) continue;
    const [low, high] = list(crossing.ci95_bytes).map((end, side) => (number(end) === null ? side * width : Math.min(width, Math.max(0, x(end)))));
    const text = `${asText(crossing.below)} is cheaper than ${asText(crossing.above)} below ${crossingText(crossing)}`;
    const group = drawing('g', { class: crossing.significant === true ? 'crossing' : 'crossing open' });
    group.append(drawing('title', {}, text));
    const first = models.find((model) => model.name === crossing.below);
    const level = first ? y(scaled(first.secondsAt(crossing.size_bytes), crossing.size_bytes)) : 0;
    if (crossing.significant === true) group.append(drawing('line', { class: 'site', x1: at, x2: at, y1: 0, y2: height }));
    group.append(drawing('path', { class: 'span', d: `M${low} ${level}H${high}` }));
    group.append(drawing('circle', { cx: at, cy: level, r: 4 }));
    image.append(group);
  }
  labelCrossings(image, crossings.filter((crossing) => crossing.significant === true), x, width);
}

function labelCrossings(image, crossings, x, width) {
  let last = -Infinity;
  for (const crossing of crossings) {
    const text = formatBytes(crossing.size_bytes), half = textWidth(text, '12px') / 2, at = x(crossing.size_bytes);
    if (!(at >= 0 && at <= width) || at - half < last + 6) continue;
    last = at + half;
    image.append(drawing('text', { x: at, y: -7, 'text-anchor': 'middle' }, text));
  }
}

function residualPlot(place, models) {
  const residuals = models.flatMap((model, turn) => model.residuals.filter((residual) => residual.size_bytes > 0).map((residual) => ({
    model, turn, bytes: residual.size_bytes, pct: 100 * Math.expm1(residual.log_ratio), block: residual.block, outlier: residual.outlier,
  })));
  const reach = 1.12 * Math.max(LEAST_RESIDUAL_PCT, ...residuals.map((residual) => Math.abs(residual.pct)));
  const apart = Math.min(9, 48 / models.length);
  return sizePlot(place, {
    sizes: residuals.length ? residuals.map((residual) => residual.bytes) : [KIB, MIB],
    series: [],
    curves: () => [],
    axis: { label: `Measured − model (${SYMMETRIC_LOG})`, scale: { distr: 4, asinh: LEAST_RESIDUAL_PCT, range: () => [-reach, reach] }, splits: overheadTicks, values: (_, ticks) => ticks.map((tick) => `${signed(tick, format3)} %`.replace('±', '')) },
    label: 'Residuals in per cent against size, one kind of mark each stack. They lie within the figures of the column "fits within" but for the noise of single runs.',
    overlay: (image, x, y, area) => {
      image.append(drawing('line', { class: 'zero', x1: 0, x2: area.clientWidth, y1: y(0), y2: y(0) }));
      for (const { model, turn, bytes, pct, block, outlier } of residuals) {
        const across = x(bytes) + (turn - (models.length - 1) / 2) * apart, down = y(pct);
        const mark = markShape(model.index, across, down, { class: 'mark small', stroke: `var(${colourOf(model.index)})` });
        mark.append(drawing('title', {}, `${model.name}, ${formatSize(bytes)}, block ${asText(block)}: ${formatPct(pct)}${outlier ? ', an outlier' : ''}`));
        image.append(mark);
        if (outlier) image.append(drawing('circle', { class: 'outlier', cx: across, cy: down, r: 9 }));
      }
    },
  });
}

function logTicks([low, high]) {
  const ticks = [];
  for (let decade = 10 ** Math.floor(Math.log10(low)); decade <= high; decade *= 10) {
    for (const factor of [1, 2, 5]) if (decade * factor >= low && decade * factor <= high) ticks.push(decade * factor);
  }
  return ticks;
}

function logLabels(chart, ticks, format) {
  let last = Infinity;
  return ticks.map((tick) => {
    const at = chart.valToPos(tick, 'y');
    if (last - at < 20) return '';
    last = at;
    return format(tick);
  });
}
