// Makes elements, and shows names, numbers, sizes, rates, durations and dates.

import { language } from './texts.js'

// Makes an element. Attributes whose name begins with "on" are listeners; `false` and
// `undefined` leave an attribute out; children are nodes or text, never markup.
export function h(tag, attributes, ...children) {
  const [name, ...classes] = tag.split('.')
  const element = document.createElement(name || 'div')
  if (classes.length) element.className = classes.join(' ')
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === false || value === undefined || value === null) continue
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value)
    else if (key in element && typeof value !== 'string') element[key] = value
    else element.setAttribute(key, value === true ? '' : value)
  }
  element.append(...children.flat(Infinity).filter(child => child !== undefined && child !== null && child !== false))
  return element
}

const SVG = 'http://www.w3.org/2000/svg'

// Makes an icon of those that index.html defines.
export function icon(name) {
  const svg = document.createElementNS(SVG, 'svg')
  svg.setAttribute('aria-hidden', 'true')
  svg.setAttribute('class', 'icon')
  const use = document.createElementNS(SVG, 'use')
  use.setAttribute('href', `#i-${name}`)
  svg.append(use)
  return svg
}

// Sets text only where it differs, so that selections and screen readers are not disturbed.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text
}

// What a name could deceive a reader with: controls, direction marks and overrides, characters
// without width, separators of lines, tags, half surrogates, private use.
const HIDDEN = /[\p{Cc}\p{Cs}\p{Co}\p{Zl}\p{Zp}\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e007f}]|^ +| +$|\u00a0/gu
const JOINED = /[\p{Extended_Pictographic}\ufe0f\p{Emoji_Modifier}]$/u

function split(name) {
  const parts = []
  let end = 0
  for (const match of name.matchAll(HIDDEN)) {
    const before = name.slice(0, match.index)
    if (match[0] === '\u200d' && JOINED.test(before)) continue // a family of emoji
    parts.push([name.slice(end, match.index), match[0]])
    end = match.index + match[0].length
  }
  return [parts, name.slice(end)]
}

function named(hidden) {
  if (/^ +$/.test(hidden)) return '␣'.repeat(hidden.length)
  if (hidden === '\n') return '↵'
  if (hidden === '\t') return '⇥'
  const code = hidden.codePointAt(0)
  if (code >= 0xdc80 && code <= 0xdcff) return `\\x${(code - 0xdc00).toString(16)}` // a byte that is not UTF-8
  return `U+${code.toString(16).toUpperCase().padStart(4, '0')}`
}

// Returns a name as text that shows what is hidden in it.
export function visible(name) {
  const [parts, rest] = split(name)
  return parts.map(([text, hidden]) => `${text}⟨${named(hidden)}⟩`).join('') + rest
}

// Returns a name for the middle of a sentence, which its direction does not disturb.
export const quoted = name => `\u2068${visible(name)}\u2069`

// Returns a name as an element that shows what is hidden in it.
export function nameElement(name, tag = 'bdi.filename') {
  const [parts, rest] = split(name)
  if (!parts.length) return h(tag, {}, rest)
  return h(tag, {}, parts.map(([text, hidden]) => [text, h('span.hidden-character', {}, named(hidden))]), rest)
}

let formats
function made() {
  if (formats?.language === language()) return formats
  const unit = (name, digits, display = 'short') =>
    new Intl.NumberFormat(language(), { style: 'unit', unit: name, unitDisplay: display, maximumFractionDigits: digits, minimumFractionDigits: digits })
  const cache = new Map()
  formats = {
    language: language(),
    unit: (name, digits, display) => {
      const key = `${name} ${digits} ${display}`
      if (!cache.has(key)) cache.set(key, unit(name, digits, display))
      return cache.get(key)
    },
    number: new Intl.NumberFormat(language()),
    percent: new Intl.NumberFormat(language(), { style: 'percent', maximumFractionDigits: 0 }),
    date: new Intl.DateTimeFormat(language(), { year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit' }),
    full: new Intl.DateTimeFormat(language(), { dateStyle: 'full', timeStyle: 'long' }),
    time: new Intl.DateTimeFormat(language(), { hour: '2-digit', minute: '2-digit' }),
  }
  return formats
}

const UNITS = ['byte', 'kilobyte', 'megabyte', 'gigabyte', 'terabyte', 'petabyte']

function scaled(bytes, suffix) {
  let value = Math.max(0, bytes)
  let at = 0
  while (value >= 999.5 && at < UNITS.length - 1) {
    value /= 1000
    at += 1
  }
  const digits = !at || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2
  return made().unit(UNITS[at] + suffix, digits, at || suffix ? 'short' : 'long').format(value)
}

export const size = bytes => scaled(bytes, '')
export const rate = bytesPerSecond => scaled(Math.max(bytesPerSecond, 0), '-per-second')
export const number = value => made().number.format(value)
export const exactSize = bytes => made().unit('byte', 0, 'long').format(bytes)
export const date = ms => made().date.format(ms)
export const fullDate = ms => made().full.format(ms)
export const clock = ms => made().time.format(ms)

// Returns whole percent. 100 % is only what is complete.
export const percent = (part, whole) => made().percent.format(part >= whole ? 1 : Math.min(part / whole, 0.99))

export function duration(seconds) {
  const unit = (value, name) => made().unit(name, 0, 'narrow').format(value)
  const whole = Math.max(1, Math.round(seconds))
  if (whole < 60) return unit(whole, 'second')
  if (whole < 3600) return `${unit(Math.floor(whole / 60), 'minute')} ${whole < 600 ? unit(whole % 60, 'second') : ''}`.trim()
  if (whole < 86400) return `${unit(Math.floor(whole / 3600), 'hour')} ${unit(Math.floor(whole / 60) % 60, 'minute')}`
  return `${unit(Math.floor(whole / 86400), 'day')} ${unit(Math.floor(whole / 3600) % 24, 'hour')}`
}

export const baseName = path => path.slice(path.lastIndexOf('/') + 1)
export const parentOf = path => path.slice(0, Math.max(0, path.lastIndexOf('/')))
export const join = (folder, name) => (folder ? `${folder}/${name}` : name)
