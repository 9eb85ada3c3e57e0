/* Saves a chart as it is drawn: as SVG, or as PNG made from that. Nothing is fetched; the page's policy allows images of its own data alone. */

/** Space around a saved chart, in pixels of the page. */
const SAVED_MARGIN = 12;
/** Pixels of a PNG for each of the page's, both ways. */
const PNG_SCALE = 2;
const MAX_OF_FILE_NAME = 100;
/** What XML 1.0 allows nowhere, lone surrogates included. */
const NOT_IN_XML = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;

/** Two buttons that save a chart; `drawn` is called when one is pressed, and gives the chart's detail (the rest of its title), description, size and shapes. */
function saveButtons(report, name, drawn) {
  const problem = make('output');
  const button = (kind, contentOf) => make('button', { type: 'button', 'aria-label': `Save as ${kind}: ${name}`, onclick: async () => {
    problem.textContent = '';
    try {
      saveFile(`${fileName(report.plan.name, name)}.${kind.toLowerCase()}`, await contentOf(svgFile(name, drawn())));
    } catch (error) {
      problem.textContent = `The ${kind} could not be made (${error.message}).`;
    }
  } }, kind);
  return make('div', { class: 'save' }, problem, button('SVG', svgContent), button('PNG', pngContent));
}

/** A chart as a file that needs nothing else; sizes in pixels. */
function svgFile(name, { detail, description, width, height, shapes }) {
  const wide = Math.ceil(width) + 2 * SAVED_MARGIN, high = Math.ceil(height) + 2 * SAVED_MARGIN;
  const image = drawing('svg', { width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, role: 'img', 'font-family': pageFont(), 'font-size': 12 });
  const content = drawing('g', { transform: `translate(${SAVED_MARGIN} ${SAVED_MARGIN})` });
  content.append(...shapes);
  image.append(
    drawing('title', {}, `${name}: ${detail}`), drawing('desc', {}, description),
    drawing('rect', { width: wide, height: high, fill: cssColour('--paper') }), content);
  const text = new XMLSerializer().serializeToString(image).replace(NOT_IN_XML, '\ufffd');
  return { text: `<?xml version="1.0" encoding="UTF-8"?>\n${text}\n`, width: wide, height: high };
}

function svgContent({ text }) {
  return new Blob([text], { type: 'image/svg+xml' });
}

async function pngContent({ text, width, height }) {
  const image = new Image();
  await new Promise((resolve, reject) => {
    image.addEventListener('load', resolve);
    image.addEventListener('error', () => reject(new Error('this browser does not draw the SVG')));
    image.src = `data:image/svg+xml,${encodeURIComponent(text)}`;
  });
  const canvas = make('canvas', { width: PNG_SCALE * width, height: PNG_SCALE * height });
  canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
  const [, base64] = canvas.toDataURL('image/png').split(',');
  if (!base64) throw new Error(`this browser draws no image of ${canvas.width} × ${canvas.height} pixels`);
  return new Blob([Uint8Array.from(atob(base64), (byte) => byte.charCodeAt(0))], { type: 'image/png' });
}

/** A name that every system takes: lower-case ASCII letters, digits and hyphens. */
function fileName(...parts) {
  const words = parts.map((part) => asText(part ?? '')).join(' ').toLowerCase().replace(/[^a-z0-9]+/g, '-');
  return words.replace(/^-|-$/g, '').slice(0, MAX_OF_FILE_NAME);
}

function saveFile(name, content) {
  const address = URL.createObjectURL(content);
  make('a', { href: address, download: name }).click();
  // Not at once: the browser may still read it.
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
