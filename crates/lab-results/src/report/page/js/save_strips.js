/* The strips of phases as shapes: on the page they are elements with backgrounds. */

const STRIPES = 'stripes';

function stripShapes(grid) {
  const origin = grid.getBoundingClientRect();
  const boxOf = (element) => {
    const { left, top, width, height } = element.getBoundingClientRect();
    return { x: pixel(left - origin.left), y: pixel(top - origin.top), width: pixel(width), height: pixel(height) };
  };
  const segments = [...grid.querySelectorAll('.strip span:not(.beside)')].flatMap((segment) => {
    const box = boxOf(segment), shape = drawing('rect', { ...box, fill: backgroundOf(segment) });
    shape.append(drawing('title', {}, segment.title));
    return [shape, drawing('rect', { ...box, width: Math.min(1, box.width), fill: cssColour('--paper') })];
  });
  const texts = [...grid.querySelectorAll('.name, .total, .strip span, .ruler span')].flatMap((element) => textShapes(element, origin));
  return {
    width: origin.width, height: origin.height,
    shapes: [stripesOfIdle(), ...segments, ...rulerShapes(grid.querySelector('.ruler'), boxOf), ...texts],
  };
}

function rulerShapes(ruler, boxOf) {
  const { x, y, width } = boxOf(ruler);
  const ticks = [...ruler.children].map((tick, nth) => {
    const box = boxOf(tick), at = nth === 0 ? box.x : pixel(box.x + box.width / 2);
    return drawing('line', { x1: at, x2: at, y1: y, y2: y + 5, stroke: cssColour('--soft') });
  });
  return [drawing('line', { x1: x, x2: x + width, y1: y, y2: y, stroke: cssColour('--faint') }), ...ticks];
}

/** The colour behind an element, or the stripes. */
function backgroundOf(element) {
  const style = getComputedStyle(element);
  return style.backgroundImage === 'none' ? style.backgroundColor : `url(#${STRIPES})`;
}

function stripesOfIdle() {
  const pattern = drawing('pattern', { id: STRIPES, width: 7, height: 7, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' });
  pattern.append(
    drawing('rect', { width: 7, height: 7, fill: cssColour('--idle') }),
    drawing('rect', { x: 5, width: 2, height: 7, fill: cssColour('--idle-stripe') }));
  const definitions = drawing('defs', {});
  definitions.append(pattern);
  return definitions;
}

/** The text of an element, line by line as the browser broke it. */
function textShapes(element, origin) {
  const text = element.firstChild, style = getComputedStyle(element), range = document.createRange(), lines = [];
  if (text?.nodeType !== Node.TEXT_NODE) return [];
  let at = 0;
  for (const character of text.data) {
    range.setStart(text, at);
    at += character.length;
    range.setEnd(text, at);
    const [box] = range.getClientRects(), line = lines.at(-1);
    if (!box) continue; // a space at the end of a line
    if (line && Math.abs(line.top - box.top) < 1) line.text += character;
    else lines.push({ left: box.left, top: box.top, text: character });
  }
  measuringContext.font = `${style.fontWeight} ${style.fontSize} ${pageFont()}`;
  const ascent = measuringContext.measureText('x').fontBoundingBoxAscent;
  return lines.map((line) => drawing('text', {
    x: pixel(line.left - origin.left), y: pixel(line.top - origin.top + ascent),
    fill: style.color, 'font-size': style.fontSize, 'font-weight': style.fontWeight,
  }, line.text));
}
