// Finds the reader's language and its texts. Another language is another file texts.XX.js.

import english from './texts.en.js'

export const LANGUAGES = { en: 'English', de: 'Deutsch' }

let current = 'en'
let texts = english
let plural = new Intl.PluralRules('en')
let numbers = new Intl.NumberFormat('en')

// Returns the language with the reader's region, for dates and numbers.
export function language() {
  return navigator.languages.find(wanted => wanted.split('-')[0] === current) ?? current
}

export const currentLanguage = () => current

// Loads the wanted language, else the first of the browser's that there is.
export async function loadLanguage(wanted) {
  const candidates = [wanted, ...navigator.languages.map(name => name.split('-')[0]), 'en']
  current = candidates.find(name => Object.hasOwn(LANGUAGES, name ?? ''))
  try {
    texts = current === 'en' ? english : (await import(`./texts.${current}.js`)).default
  } catch {
    // the network failed: the page is of more use in English than not at all
    current = 'en'
    texts = english
  }
  plural = new Intl.PluralRules(current)
  numbers = new Intl.NumberFormat(language())
  document.documentElement.lang = current
  translate(document)
}

// Adds texts of a module that only some pages have: {en: {…}, de: {…}}.
const added = {}
export function addTexts(more) {
  for (const [name, texts] of Object.entries(more)) added[name] = { ...added[name], ...texts }
}

// Returns the text of a key with its values; `n` chooses between singular and plural.
export function t(key, values = {}) {
  let text = texts[key] ?? english[key] ?? added[current]?.[key] ?? added.en?.[key] ?? key
  if (typeof text === 'object') text = text[plural.select(values.n)] ?? text.other
  return text.replace(/\{(\w+)\}/g, (_, name) =>
    typeof values[name] === 'number' ? numbers.format(values[name]) : String(values[name] ?? ''))
}

// Puts texts into elements that name one: data-t is the content, data-t-label the accessible
// name, data-t-title the tooltip and the accessible name, data-t-placeholder.
export function translate(root) {
  for (const element of root.querySelectorAll('[data-t]')) element.textContent = t(element.dataset.t)
  for (const element of root.querySelectorAll('[data-t-label]')) element.setAttribute('aria-label', t(element.dataset.tLabel))
  for (const element of root.querySelectorAll('[data-t-title]')) {
    element.title = t(element.dataset.tTitle)
    element.setAttribute('aria-label', element.title)
  }
  for (const element of root.querySelectorAll('[data-t-placeholder]')) element.placeholder = t(element.dataset.tPlaceholder)
}
