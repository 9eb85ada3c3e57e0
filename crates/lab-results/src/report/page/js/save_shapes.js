/* What the page shows of a chart, as shapes that need no style sheet. */

/** The attributes that style sheets give to shapes, with their initial values. */
const SHAPE_STYLE = { fill: 'rgb(0, 0, 0)', 'fill-opacity': '1', stroke: 'none', 'stroke-opacity': '1', 'stroke-width': '1px', 'stroke-dasharray': 'none', 'stroke-linejoin': 'miter' };
const TEXT_STYLE = { ...SHAPE_STYLE, 'font-size': '12px', 'font-weight': '400', 'text-anchor': 'start' };
/** Between the lines of a key. */
const KEY_LINE = 20;

/** Copies of the shapes in an SVG image of the page, moved. */
function copiedShapes(image, x, y) {
  const group = drawing('g', { transform: `translate(${x} ${y})` });
  group.append(...[...image.children].map((child) => child.cloneNode(true)));
  const originals = image.querySelectorAll('*');
  [...group.querySelectorAll('*')].forEach((copy, position) => writeStyle(copy, originals[position]));
  return group;
}

function writeStyle(copy, original) {
  copy.removeAttribute('class');
  copy.removeAttribute('style');
  const isText = original instanceof SVGTextElement;
  if (!isText && !(original instanceof SVGGeometryElement)) return;
  const style = getComputedStyle(original);
  for (const [name, initial] of Object.entries(isText ? TEXT_STYLE : SHAPE_STYLE)) {
    const value = style.getPropertyValue(name);
    if (value === initial) copy.removeAttribute(name); else copy.setAttribute(name, value);
  }
  if (!isText || style.stroke === 'none') return;
  // Some programs do not know `paint-order`: the outline is another text, below.
  copy.before(copy.cloneNode(true));
  for (const name of Object.keys(SHAPE_STYLE)) if (name.startsWith('stroke')) copy.removeAttribute(name);
}

/** What a chart by uPlot shows: its axes and lines, which are on a canvas, and the drawing over them. */
function plotShapes(chart) {
  const outer = chart.root.getBoundingClientRect(), inner = chart.over.getBoundingClientRect();
  const [left, top] = [inner.left - outer.left, inner.top - outer.top];
  const area = { left, top, right: left + inner.width, bottom: top + inner.height };
  const lines = chart.series.flatMap((series, position) => (position > 0 && series.show ? [plotLine(chart, position, area)] : []));
  return {
    width: chart.width, height: chart.height,
    shapes: [...axisShapes(chart, 0, area), ...axisShapes(chart, 1, area), ...lines, copiedShapes(chart.over.querySelector('svg'), left, top)],
  };
}

/** An axis with its grid, where uPlot draws it: 0 is the one below, 1 the one on the left. */
function axisShapes(chart, position, area) {
  const axis = chart.axes[position], isBelow = position === 0, key = isBelow ? 'x' : 'y';
  const { min, max } = chart.scales[key];
  const ticks = axis.splits(chart, position, min, max), texts = axis.values(chart, ticks);
  const beside = axis.ticks.size + axis.gap, size = axis.size(chart, texts, position, 0);
  const ink = cssColour('--soft'), faint = cssColour('--grid');
  const shapes = ticks.flatMap((tick, nth) => {
    const at = pixel(chart.valToPos(tick, key) + (isBelow ? area.left : area.top));
    const line = isBelow
      ? { x1: at, x2: at, y1: area.top, y2: area.bottom + axis.ticks.size }
      : { x1: area.left - axis.ticks.size, x2: area.right, y1: at, y2: at };
    // the baseline: 12 pixels high, below the axis or in the middle of the tick
    const text = isBelow
      ? { x: at, y: area.bottom + beside + 10, 'text-anchor': 'middle' }
      : { x: area.left - beside, y: at + 4, 'text-anchor': 'end' };
    return [drawing('line', { ...line, stroke: faint }), texts[nth] ? drawing('text', { ...text, fill: ink }, texts[nth]) : null];
  });
  const label = isBelow
    ? { x: (area.left + area.right) / 2, y: area.bottom + size + 12 }
    : { transform: `translate(${area.left - size - 4} ${(area.top + area.bottom) / 2}) rotate(-90)` };
  shapes.push(drawing('text', { ...label, 'text-anchor': 'middle', 'font-size': 13, fill: ink }, axis.label));
  return shapes.filter((shape) => shape !== null);
}

function plotLine(chart, position, area) {
  const series = chart.series[position], dash = series.dash ?? [];
  let path = '', pen = 'M';
  chart.data[position].forEach((value, nth) => {
    if (value === null) {
      pen = 'M';
      return;
    }
    path += `${pen}${pixel(area.left + chart.valToPos(chart.data[0][nth], 'x'))} ${pixel(area.top + chart.valToPos(value, 'y'))}`;
    pen = 'L';
  });
  return drawing('path', {
    d: path, fill: 'none', stroke: series.stroke(chart, position), 'stroke-width': series.width,
    'stroke-dasharray': dash.length ? dash.join(' ') : null, 'stroke-linejoin': 'round',
  });
}

/** The same with a key below, from a list on the page, less the lines that are switched off in it. */
function withKey(chart, list) {
  let x = 0, y = chart.height + KEY_LINE;
  const items = [...list.children].filter((item) => item.querySelector('input')?.checked !== false);
  const shapes = items.flatMap((item) => {
    const image = item.querySelector('svg, .swatch'), box = image.getBoundingClientRect(), text = item.textContent.trim();
    const width = box.width + 6 + textWidth(text, '13px');
    if (x > 0 && x + width > chart.width) {
      x = 0;
      y += KEY_LINE;
    }
    const left = pixel(x), top = pixel(y - 4.5 - box.height / 2);
    x += width + 18;
    const mark = image instanceof SVGElement
      ? copiedShapes(image, left, top)
      : drawing('rect', { x: left, y: top, width: pixel(box.width), height: pixel(box.height), fill: backgroundOf(image) });
    return [mark, drawing('text', { x: pixel(left + box.width + 6), y, 'font-size': 13, fill: cssColour('--ink') }, text)];
  });
  return { ...chart, height: y + 8, shapes: [...chart.shapes, ...shapes] };
}

function pixel(value) {
  return Number(value.toFixed(2));
}
