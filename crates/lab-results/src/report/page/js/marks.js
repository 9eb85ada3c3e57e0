/* How a stack looks wherever it is drawn: colour, dash, mark; and the small pictures of keys. */

const DASHES = [[], [9, 4], [2, 3], [9, 3, 2, 3], [16, 4], [5, 2], [12, 3, 2, 3, 2, 3]];
const COLOURS = 7;

function colourOf(index) {
  return index < 0 ? '--soft' : `--stack-${index % COLOURS}`;
}

function dashOf(index) {
  // Past the last colour the same colours return with other dashes.
  return DASHES[(turnOf(index) + Math.floor(turnOf(index) / COLOURS)) % DASHES.length];
}

/** Baselines, counted below 0, take dashes and marks in their own turn. */
function turnOf(index) {
  return index < 0 ? -1 - index : index;
}

function markShape(index, x, y, attributes) {
  const shapes = [
    `M${x - 4.5} ${y}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0`,
    `M${x - 4} ${y - 4}h8v8h-8z`,
    `M${x} ${y - 5}l5 9h-10z`,
    `M${x} ${y - 5.5}l5.5 5.5l-5.5 5.5l-5.5 -5.5z`,
  ];
  return drawing('path', { d: shapes[turnOf(index) % shapes.length], ...attributes });
}

function lineSwatch({ index }) {
  const image = drawing('svg', { width: 34, height: 12, 'aria-hidden': 'true' });
  image.append(drawing('line', { x1: 0, y1: 6, x2: 34, y2: 6, stroke: `var(${colourOf(index)})`, 'stroke-width': 2.5, 'stroke-dasharray': dashOf(index).join(' ') || 'none' }));
  image.append(markShape(index, 17, 6, { fill: 'var(--paper)', stroke: `var(${colourOf(index)})`, 'stroke-width': 2 }));
  return image;
}

function kneeSwatch() {
  const image = drawing('svg', { width: 12, height: 12, 'aria-hidden': 'true' });
  image.append(drawing('circle', { cx: 6, cy: 6, r: 5, fill: 'var(--soft)' }));
  return image;
}

function markSwatch() {
  const image = drawing('svg', { width: 12, height: 18, 'aria-hidden': 'true' });
  image.append(drawing('path', { d: 'M6 1V17M2 1H10M2 17H10', stroke: 'var(--soft)', fill: 'none' }), drawing('circle', { cx: 6, cy: 9, r: 4, fill: 'var(--paper)', stroke: 'var(--soft)', 'stroke-width': 2 }));
  return image;
}

function crossingSwatch() {
  const image = drawing('svg', { width: 30, height: 12, class: 'swatch-image', 'aria-hidden': 'true' });
  const group = drawing('g', { class: 'crossing' });
  group.append(drawing('path', { class: 'span', d: 'M0 6H30' }), drawing('circle', { cx: 15, cy: 6, r: 4 }));
  image.append(group);
  return image;
}

function outlierSwatch() {
  const image = drawing('svg', { width: 18, height: 18, class: 'swatch-image', 'aria-hidden': 'true' });
  image.append(drawing('circle', { class: 'outlier', cx: 9, cy: 9, r: 8 }));
  return image;
}
