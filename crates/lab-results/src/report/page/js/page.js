/* Pieces of page. Whatever comes from a file or a program reaches it only as a text node. */

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  setAll(node, attributes);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function drawing(tag, attributes, text) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  setAll(node, attributes);
  if (text !== undefined) node.textContent = text;
  return node;
}

function setAll(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) node.setAttribute(name, value === true ? '' : value);
  }
}

function columnHead(text, attributes = {}) {
  return make('th', { scope: 'col', ...attributes }, text);
}

function rowHead(text) {
  return make('th', { scope: 'row' }, ...breakable(asText(text)));
}

/** Lets a name break after its slashes and commas, and a senselessly long one anywhere. */
function breakable(text) {
  const pieces = text.match(/[^/,]{1,18}[/,]?|[/,]/g) ?? [];
  return pieces.flatMap((piece) => [piece, make('wbr')]);
}

function segmented(title, name, choices, chosen, choose) {
  if (choices.length < 2) return null;
  return make('fieldset', {}, make('legend', {}, title), ...choices.map(([value, text]) => make('label', {},
    make('input', { type: 'radio', name, value, checked: value === chosen, onchange: () => choose(value) }), text)));
}

function linkSelect(names, chosen, choose) {
  if (names.length < 2) return null;
  const select = make('select', { onchange: () => choose(select.value) }, ...names.map((name) => make('option', { value: name, selected: name === chosen }, name)));
  return make('label', {}, 'Link', select);
}

function sizeSelect(sizes, chosen, choose) {
  if (sizes.length < 2) return null;
  const select = make('select', { onchange: () => choose(Number(select.value)) }, ...sizes.map((size) => make('option', { value: size, selected: size === chosen }, formatSize(size))));
  return make('label', {}, 'File size', select);
}

function addTools(body, ...tools) {
  body.parentElement.querySelector('.tools').append(...tools.filter((tool) => tool !== null));
}

/** Writes what is chosen in controls beside them: paper shows that in their place. */
function writeChoices(tools) {
  const controls = [...tools.querySelectorAll('fieldset, label:not(fieldset label), .scale')];
  const texts = controls.map((control) => {
    const chosen = control.querySelector('input:checked, select, input[type=number]');
    if (!chosen) return '';
    const value = chosen.type === 'radio' ? chosen.parentElement.textContent : chosen.selectedOptions?.[0]?.textContent ?? chosen.value;
    const words = [...control.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE || node.nodeName === 'LEGEND').map((node) => node.textContent.trim());
    const [name, unit] = words;
    return [`${name}:`, value.trim(), unit].filter(Boolean).join(' ');
  });
  const choices = tools.parentElement.querySelector('.choices') ?? make('p', { class: 'choices' });
  choices.textContent = texts.filter(Boolean).join(' · ');
  tools.after(choices);
}

/** The meaning of a table's columns, folded away. */
function columnNotes(notes) {
  return make('details', { class: 'explain' }, make('summary', {}, 'What the columns mean'),
    make('dl', {}, ...notes.flatMap(([name, text]) => [make('dt', {}, name), make('dd', {}, text)])));
}

function noteList(notes) {
  return make('ul', { class: 'notes' }, ...notes.map((note) => make('li', {}, note)));
}

function factList(facts) {
  const known = facts.filter(([, value]) => value !== null && value !== undefined && value !== '');
  return make('dl', { class: 'facts' }, ...known.map(([name, value]) => make('div', {}, make('dt', {}, readable(name)), make('dd', {}, asText(value)))));
}

function folded(title, content) {
  return make('details', {}, make('summary', {}, title), make('div', { class: 'scroll' }, content));
}

function cssColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function pageFont() {
  return getComputedStyle(document.body).fontFamily;
}

const measuringContext = document.createElement('canvas').getContext('2d');

function textWidth(text, font) {
  measuringContext.font = `${font} ${pageFont()}`;
  return measuringContext.measureText(text).width;
}
