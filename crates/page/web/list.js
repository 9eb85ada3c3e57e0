// A list of files that draws only what is seen, with selection and keyboard.

import { date, fullDate, h, icon, nameElement, setText, size, exactSize, visible } from './format.js'
import { setting, keepSetting } from './store.js'
import { t, currentLanguage } from './texts.js'

// Browsers limit the height of an element; longer lists scroll faster than they are high.
const TALLEST = 8_000_000
const OVERSCAN = 6
const TYPING = 800 // ms within which letters make one word

const IMAGES = /\.(png|jpe?g|gif|webp|avif|bmp|ico)$/i
const ARCHIVES = /\.(zip|tar|gz|tgz|xz|bz2|zst|7z|rar|iso|deb|rpm)$/i
const TEXTS = /\.(txt|md|log|csv|tsv|json|jsonl|xml|html?|css|m?js|ts|rs|py|go|c|h|cpp|java|sh|toml|ya?ml|ini|conf|cfg|tex|sql|diff|patch)$/i

export const isImage = entry => IMAGES.test(entry.name)

function iconOf(entry) {
  if (entry.type === 'directory') return 'folder'
  if (entry.type === 'link') return 'link'
  if (IMAGES.test(entry.name)) return 'image'
  if (ARCHIVES.test(entry.name)) return 'archive'
  return TEXTS.test(entry.name) ? 'text' : 'file'
}

export class FileList extends EventTarget {
  // `grid` is the element that scrolls and has the focus.
  constructor(grid, { draggable = false } = {}) {
    super()
    this.grid = grid
    this.draggable = draggable
    this.entries = []
    this.shown = []
    this.selected = new Set()
    this.active = 0
    this.anchor = 0
    this.filter = ''
    this.sort = setting('sort')
    this.descending = setting('descending')
    this.rows = []
    this.id = `row-${Math.random().toString(36).slice(2, 8)}`
    this.typed = ''
    this.isHeld = false // by the mouse
    this.isDragged = false
    this.held = null
    this.#build()
    new ResizeObserver(() => this.#measure()).observe(grid)
  }

  #build() {
    this.header = h('div.row.header', { role: 'row', 'aria-rowindex': '1' })
    this.body = h('div.rows', { role: 'rowgroup' })
    this.grid.append(h('div.header-group', { role: 'rowgroup' }, this.header), this.body)
    this.grid.addEventListener('scroll', () => this.#draw(), { passive: true })
    this.grid.addEventListener('keydown', event => this.#key(event))
    this.grid.addEventListener('focus', () => this.#draw())
    this.grid.addEventListener('blur', () => this.#draw())
    this.body.addEventListener('click', event => this.#click(event))
    this.body.addEventListener('dblclick', event => {
      const at = this.#indexOf(event)
      if (at >= 0 && !event.target.closest('.check, .filename')) this.#emit('open', this.shown[at])
    })
    this.#watchPointer()
    this.translate()
  }

  translate() {
    const column = name => {
      const label = t(`list.${name}`)
      const sorted = this.sort === name
      const order = sorted ? (this.descending ? 'descending' : 'ascending') : 'none'
      const button = h('button', { type: 'button', onclick: () => this.sortBy(name) }, label, sorted && icon(this.descending ? 'down' : 'up'))
      return h(`div.${name}`, { role: 'columnheader', 'aria-sort': order }, button)
    }
    const all = this.shown.length > 0 && this.selected.size >= this.shown.length
    this.all = h('input.check-all', {
      type: 'checkbox', 'aria-label': t('list.select-all'), checked: all, indeterminate: !all && this.selected.size > 0,
      onchange: () => (this.all.checked ? this.selectAll() : this.clear()),
    })
    const focused = this.header.contains(document.activeElement) && document.activeElement.closest('[role]')?.className
    this.header.replaceChildren(h('div.check', { role: 'columnheader' }, this.all), column('name'), column('size'), column('date'))
    if (focused) this.header.querySelector(`.${focused} :is(button, input)`)?.focus()
    this.rows.forEach(row => (row.entry = null))
    this.collator = new Intl.Collator(currentLanguage(), { numeric: true, sensitivity: 'base' })
    this.#draw()
  }

  sortBy(name) {
    this.descending = this.sort === name ? !this.descending : name !== 'name'
    this.sort = name
    keepSetting('sort', name)
    keepSetting('descending', this.descending)
    this.arrange()
    this.translate()
  }

  // Rows stay where they are from the press of a button to its release, or to the end of a drag:
  // else a click or a drag would meet another entry than the one that was pressed.
  #watchPointer() {
    this.body.addEventListener('pointerdown', () => (this.isHeld = true))
    this.body.addEventListener('dragstart', () => (this.isDragged = true))
    // the click that belongs to a release comes before the next task
    for (const type of ['pointerup', 'pointercancel']) addEventListener(type, () => this.isHeld && setTimeout(() => this.isDragged || this.#release()))
    for (const type of ['dragend', 'drop']) addEventListener(type, () => this.#release(), true)
  }

  #release() {
    const { held } = this
    Object.assign(this, { isHeld: false, isDragged: false, held: null })
    held?.()
  }

  // Changes the rows, at once or when they are released. Of several changes the last one counts.
  #change(change) {
    if (this.isHeld) this.held = change
    else change()
  }

  // Empties the list for another folder.
  reset() {
    this.held = null
    this.entries = []
    this.selected.clear()
    this.active = this.anchor = 0
    this.filter = ''
    this.arrange()
    this.grid.scrollTop = 0
    this.#emit('select')
  }

  append(entries) {
    for (const entry of entries) this.entries.push(entry)
  }

  // Shows what was appended.
  grow() {
    this.#change(() => this.arrange())
  }

  // Replaces all entries and keeps selection, position and the active row by name.
  replace(entries) {
    this.#change(() => {
      const active = this.shown[this.active]?.name
      const known = new Map(this.entries.map(entry => [entry.name, entry]))
      const names = new Set(entries.map(entry => entry.name))
      for (const name of this.selected) if (!names.has(name)) this.selected.delete(name)
      // a row is drawn again only if its entry is another one
      this.entries = entries.map(entry => (isSame(known.get(entry.name), entry) ? known.get(entry.name) : entry))
      this.arrange(active)
      this.#emit('select')
    })
  }

  // Sorts and filters, and keeps the active row where its name is.
  arrange(active = this.shown[this.active]?.name) {
    const { collator, sort } = this
    const wanted = this.filter.normalize('NFC').toLocaleLowerCase()
    this.shown = wanted
      ? this.entries.filter(entry => entry.name.normalize('NFC').toLocaleLowerCase().includes(wanted))
      : this.entries.slice()
    const sign = this.descending ? -1 : 1
    const byName = (a, b) => collator.compare(a.name, b.name) || (a.name < b.name ? -1 : 1)
    const key = { size: entry => (entry.type === 'file' ? entry.size : -1), date: entry => entry.modified }[sort]
    this.shown.sort((a, b) => {
      const folders = (b.type === 'directory') - (a.type === 'directory')
      if (folders) return folders
      return sign * (key ? key(a) - key(b) || byName(a, b) : byName(a, b))
    })
    this.active = Math.max(0, this.shown.findIndex(entry => entry.name === active))
    this.anchor = this.active
    this.grid.setAttribute('aria-rowcount', String(this.shown.length + 1))
    this.#measure()
    this.#emit('arranged')
  }

  setFilter(text) {
    this.filter = text
    this.arrange()
    this.grid.scrollTop = 0
  }

  // Returns the selected entries, or the active one if none is selected.
  chosen() {
    if (this.selected.size) return this.entries.filter(entry => this.selected.has(entry.name))
    return this.shown[this.active] ? [this.shown[this.active]] : []
  }

  selectAll() {
    this.selected = new Set(this.shown.map(entry => entry.name))
    this.#selectionChanged()
  }

  clear() {
    this.selected.clear()
    this.#selectionChanged()
  }

  // Makes the entry with a name the active one and shows it.
  reveal(name) {
    const at = this.shown.findIndex(entry => entry.name === name)
    if (at >= 0) this.#activate(at)
  }

  #emit(type, entry) {
    this.dispatchEvent(Object.assign(new Event(type), { entry }))
  }

  #selectionChanged() {
    const all = this.shown.length > 0 && this.selected.size >= this.shown.length
    this.all.checked = all
    this.all.indeterminate = !all && this.selected.size > 0
    this.#draw()
    this.#emit('select')
  }

  #measure() {
    const before = this.rowHeight
    this.rowHeight = parseFloat(getComputedStyle(this.grid).getPropertyValue('--row')) || 32
    if (this.rowHeight !== before) for (const row of this.rows) row.at = undefined // narrow screens have higher rows
    this.headerHeight = this.header.offsetHeight
    this.viewHeight = Math.max(0, this.grid.clientHeight - this.headerHeight)
    this.height = this.shown.length * this.rowHeight
    this.body.style.height = `${Math.min(this.height, TALLEST)}px`
    const needed = Math.min(this.shown.length, Math.ceil(this.viewHeight / this.rowHeight) + 2 * OVERSCAN)
    while (this.rows.length > needed) this.rows.pop().element.remove()
    while (this.rows.length < needed) this.rows.push(this.#makeRow())
    this.#draw()
  }

  // How far the list is scrolled, in pixels of its whole height.
  #offset() {
    const top = this.grid.scrollTop
    if (this.height <= TALLEST) return top
    return (top / Math.max(1, TALLEST - this.viewHeight)) * (this.height - this.viewHeight)
  }

  #scrollTo(offset) {
    this.grid.scrollTop =
      this.height <= TALLEST ? offset : (offset / (this.height - this.viewHeight)) * (TALLEST - this.viewHeight)
  }

  #makeRow() {
    const row = { entry: null }
    row.icon = h('span.kind')
    row.label = h('span.label')
    row.size = h('span.size', { role: 'gridcell' })
    row.date = h('span.date', { role: 'gridcell' })
    row.check = h('span.check', { role: 'gridcell' }, h('span.box', { 'aria-hidden': 'true' }))
    row.element = h('div.row', { role: 'row', draggable: this.draggable }, row.check, h('span.name', { role: 'gridcell' }, row.icon, row.label), row.size, row.date)
    this.body.append(row.element)
    return row
  }

  #draw() {
    if (!this.rows.length) {
      this.grid.removeAttribute('aria-activedescendant')
      return
    }
    const offset = this.#offset()
    const first = Math.max(0, Math.min(this.shown.length - this.rows.length, Math.floor(offset / this.rowHeight) - OVERSCAN))
    const shift = this.grid.scrollTop - offset // where the list is taller than an element may be
    const focused = document.activeElement === this.grid
    for (let at = first; at < first + this.rows.length; at += 1) {
      const row = this.rows[at % this.rows.length]
      const entry = this.shown[at]
      if (row.at !== at || row.shift !== shift) {
        row.at = at
        row.shift = shift
        row.element.style.transform = `translateY(${at * this.rowHeight + shift}px)`
        row.element.setAttribute('aria-rowindex', String(at + 2))
        row.element.id = `${this.id}-${at}`
      }
      if (row.entry !== entry) {
        row.entry = entry
        fill(row, entry)
      }
      const selected = this.selected.has(entry.name)
      row.element.classList.toggle('active', at === this.active && focused)
      if (row.selected !== selected) {
        row.selected = selected
        row.element.setAttribute('aria-selected', String(selected))
      }
    }
    const drawn = this.active >= first && this.active < first + this.rows.length
    if (drawn && this.shown.length) this.grid.setAttribute('aria-activedescendant', `${this.id}-${this.active}`)
    else this.grid.removeAttribute('aria-activedescendant')
  }

  #activate(at, extend = false) {
    this.active = Math.max(0, Math.min(this.shown.length - 1, at))
    if (extend) {
      const [from, to] = [Math.min(this.anchor, this.active), Math.max(this.anchor, this.active)]
      this.selected = new Set(this.shown.slice(from, to + 1).map(entry => entry.name))
      this.#selectionChanged()
    } else {
      this.anchor = this.active
    }
    const top = this.active * this.rowHeight
    const offset = this.#offset()
    if (top < offset) this.#scrollTo(top)
    else if (top + this.rowHeight > offset + this.viewHeight) this.#scrollTo(top + this.rowHeight - this.viewHeight)
    this.#draw()
    this.#emit('activate', this.shown[this.active])
  }

  #toggle(at) {
    const { name } = this.shown[at]
    if (!this.selected.delete(name)) this.selected.add(name)
    this.#selectionChanged()
  }

  // Returns the entry that an event is about. One that is not selected becomes the selection.
  take(event) {
    const entry = this.shown[this.#indexOf(event)]
    if (entry && !this.selected.has(entry.name)) {
      this.selected = new Set([entry.name])
      this.#selectionChanged()
    }
    return entry
  }

  #indexOf(event) {
    const element = event.target.closest('.row')
    return this.rows.find(row => row.element === element)?.at ?? -1
  }

  #click(event) {
    const at = this.#indexOf(event)
    if (at < 0) return
    this.grid.focus({ preventScroll: true })
    if (event.shiftKey) return this.#activate(at, true)
    this.#activate(at)
    if (event.ctrlKey || event.metaKey || event.target.closest('.check')) return this.#toggle(at)
    if (event.target.closest('.filename')) return this.#emit('open', this.shown[at])
    this.selected = new Set([this.shown[at].name])
    this.#selectionChanged()
  }

  #key(event) {
    if (event.target !== this.grid) return
    const page = Math.max(1, Math.floor(this.viewHeight / this.rowHeight) - 1)
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }
    const control = event.ctrlKey || event.metaKey
    const entry = this.shown[this.active]
    if (event.key in moves && !event.altKey && !control) this.#activate(this.active + moves[event.key], event.shiftKey)
    else if (event.key === ' ' && !this.typed && entry) {
      this.#toggle(this.active)
      this.anchor = this.active
    } else if (control && event.key.toLowerCase() === 'a') this.selectAll()
    else if (event.key === 'Enter' && entry) this.#emit('open', entry)
    else if (event.key === 'Backspace' || (event.altKey && event.key === 'ArrowUp')) this.#emit('up')
    else if (event.key === 'Delete') this.#emit('delete')
    else if (event.key === 'F2') this.#emit('rename')
    else if (event.key === '/') this.#emit('filter')
    else if (event.key === 'Escape' && this.selected.size) this.clear()
    else if (event.key === 'Escape') this.#emit('escape')
    else if (event.key.length === 1 && !control && !event.altKey) this.#type(event.key)
    else return
    event.preventDefault()
    event.stopPropagation()
  }

  // Goes to the next name that begins with what is typed.
  #type(letter) {
    clearTimeout(this.typing)
    this.typing = setTimeout(() => (this.typed = ''), TYPING)
    const again = this.typed === letter // the same letter again goes to the next such name
    this.typed = again ? letter : this.typed + letter
    const from = this.active + (this.typed.length === 1 ? 1 : 0)
    const word = this.typed.toLocaleLowerCase()
    for (let step = 0; step < this.shown.length; step += 1) {
      const at = (from + step) % this.shown.length
      if (this.shown[at].name.toLocaleLowerCase().startsWith(word)) return this.#activate(at)
    }
  }
}

const isSame = (a, b) => a?.path === b.path && a.type === b.type && a.size === b.size && a.mode === b.mode && a.modified === b.modified && a.target === b.target

function fill(row, entry) {
  const kind = iconOf(entry)
  if (row.kind !== kind) {
    row.kind = kind
    row.icon.replaceChildren(icon(kind))
    row.icon.className = `kind ${kind}`
  }
  row.label.replaceChildren(nameElement(entry.name))
  if (entry.type === 'link' && entry.target !== undefined) row.label.append(h('span.target', {}, '→ ', nameElement(entry.target, 'bdi')))
  row.label.title = visible(entry.name)
  setText(row.size, entry.type === 'file' ? size(entry.size) : '')
  row.size.title = entry.type === 'file' ? exactSize(entry.size) : ''
  setText(row.date, entry.modified ? date(entry.modified) : '')
  row.date.title = entry.modified ? fullDate(entry.modified) : ''
}
