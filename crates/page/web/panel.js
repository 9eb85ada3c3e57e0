// Shows the queue of transfers.

import { ask, tell } from './dialogs.js'
import { clock, duration, fullDate, h, icon, nameElement, percent, quoted, rate, setText, size, visible } from './format.js'
import { pick, saveFile } from './local.js'
import { draw } from './plot.js'
import { receipt, receiptJson, receiptText } from './receipt.js'
import { keepSetting, setting } from './store.js'
import { t } from './texts.js'
import { isOpen } from './transfers.js'

const FILES_SHOWN = 200
const ENDED = new Set(['done', 'cancelled'])
// Errors of which the page's own text says all.
const COMPLETE = new Set(['share-ended', 'share-used', 'superseded'])
const LIMITS = [0, 0.5, 1, 2, 5, 10, 25, 50, 100] // MB/s; 0 is none

export class Panel {
  constructor(root, queue) {
    this.root = root
    this.queue = queue
    this.cards = new Map()
    this.heading = h('h2')
    this.sum = h('p.sum')
    this.all = h('button.bare', { type: 'button', onclick: () => this.#pauseAll() })
    this.limit = h('select', { id: 'limit', onchange: () => this.#limit() })
    this.limitLabel = h('label', { for: 'limit' })
    this.clear = h('button.quiet', { type: 'button', onclick: () => this.#clear() })
    this.bar = h('progress', { max: 1, value: 0, hidden: true })
    this.open = h('ol.open')
    this.done = h('ol.done')
    this.nothing = h('div.empty')
    this.doneHeading = h('h3')
    this.doneSection = h('section.finished', {}, h('div.finished-head', {}, this.doneHeading, this.clear), this.done)
    root.append(
      h('div.panel-head', {}, h('div.panel-title', {}, this.heading, this.sum, this.all), this.bar, h('div.limit', {}, this.limitLabel, this.limit)),
      h('div.cards', { tabIndex: -1 }, this.open, this.nothing, this.doneSection),
    )
    for (const type of ['added', 'removed', 'state', 'moved', 'change']) queue.addEventListener(type, () => this.arrange())
    // Four times a second is smooth, and cheap however many reports come.
    setInterval(() => queue.transfers.some(transfer => transfer.state === 'running') && this.update(), 250)
    queue.addEventListener('second', () => this.plots())
    this.translate()
  }

  translate() {
    setText(this.heading, t('transfers'))
    setText(this.limitLabel, t('limit'))
    setText(this.clear, t('clear'))
    setText(this.doneHeading, t('finished'))
    this.bar.setAttribute('aria-label', t('total'))
    this.nothing.replaceChildren(h('p.headline', {}, t('transfers.empty')), h('p', {}, t('transfers.empty.hint')))
    const limit = setting('limit')
    const choices = LIMITS.includes(limit) ? LIMITS : [...LIMITS, limit].sort((a, b) => a - b)
    this.limit.replaceChildren(...choices.map(value => h('option', { value: String(value), selected: value === limit }, value ? rate(value * 1e6) : t('limit.none'))),
      h('option', { value: 'other' }, t('limit.other')))
    for (const card of this.cards.values()) card.element.remove()
    this.cards.clear()
    this.arrange()
  }

  // Makes cards for what is new, removes those that are gone, and puts all in order.
  arrange() {
    const { transfers } = this.queue
    for (const [transfer, card] of this.cards) {
      if (transfers.includes(transfer)) continue
      const had = card.element.contains(document.activeElement)
      card.element.remove()
      this.cards.delete(transfer)
      if (had) this.root.querySelector('.cards').focus()
    }
    const open = transfers.filter(transfer => isOpen(transfer) || transfer.state === 'failed')
    const done = transfers.filter(transfer => !open.includes(transfer)).reverse()
    this.#place(this.open, open)
    this.#place(this.done, done)
    this.nothing.hidden = transfers.length > 0
    this.open.hidden = !open.length
    this.doneSection.hidden = !done.length
    const running = open.filter(transfer => ['running', 'waiting', 'offline'].includes(transfer.state))
    const stopped = open.filter(transfer => ['paused', 'interrupted'].includes(transfer.state))
    this.pausing = running.length > 0
    this.all.hidden = running.length + stopped.length < 1
    this.all.replaceChildren(icon(this.pausing ? 'pause' : 'play'))
    this.all.title = t(this.pausing ? 'pause.all' : 'resume.all')
    this.all.setAttribute('aria-label', this.all.title)
    this.update()
  }

  #place(list, transfers) {
    transfers.forEach((transfer, at) => {
      let card = this.cards.get(transfer)
      if (!card) this.cards.set(transfer, (card = new Card(transfer, this.queue, this)))
      if (list.children[at] === card.element) return
      const focused = card.element.contains(document.activeElement) ? document.activeElement : null
      list.insertBefore(card.element, list.children[at] ?? null)
      focused?.focus() // moving an element takes the focus from it
    })
  }

  update() {
    for (const card of this.cards.values()) {
      card.update()
      card.refreshDetails()
    }
    const totals = this.totals()
    setText(this.sum, totals.running ? [percent(totals.bytes, totals.total), rate(totals.rate), totals.left && t('left', { time: duration(totals.left) })].filter(Boolean).join(' · ') : '')
    this.bar.hidden = !totals.running
    this.bar.value = totals.total ? totals.bytes / totals.total : 0
  }

  totals() {
    const open = this.queue.transfers.filter(transfer => ['running', 'waiting', 'offline', 'paused'].includes(transfer.state))
    const sum = key => open.reduce((total, transfer) => total + (transfer[key] || 0), 0)
    const [bytes, total, moving] = [sum('bytes'), sum('total'), sum('rate')]
    const known = open.every(transfer => transfer.complete)
    return {
      running: open.some(transfer => transfer.state === 'running'), open: open.length, bytes, total, rate: moving,
      left: known && moving > 0 ? (total - bytes) / moving : 0,
    }
  }

  plots() {
    for (const card of this.cards.values()) card.plot()
  }

  #pauseAll() {
    for (const transfer of this.queue.transfers) {
      if (this.pausing) this.queue.pause(transfer)
      else if (['paused', 'interrupted'].includes(transfer.state)) this.queue.resume(transfer)
    }
  }

  async #limit() {
    let limit = Number(this.limit.value)
    if (this.limit.value === 'other') {
      const number = text => Number(text.replace(',', '.'))
      const check = text => (number(text) > 0 ? '' : t('limit.wrong'))
      const answer = await ask({
        title: t('limit.title'),
        field: { label: t('limit.field'), value: '', inputmode: 'decimal', check },
        actions: [{ label: t('limit.set'), value: 'set', kind: 'primary' }],
      })
      limit = answer && !check(answer.text) ? number(answer.text) : setting('limit')
    }
    keepSetting('limit', limit)
    this.applyLimit()
    this.translate()
    this.limit.focus()
  }

  applyLimit() {
    const limit = setting('limit')
    this.queue.session?.setRate(limit ? Math.round(limit * 1e6) : null)
  }

  #clear() {
    this.queue.clearFinished()
    this.root.querySelector('.cards').focus()
  }
}

class Card {
  constructor(transfer, queue, panel) {
    Object.assign(this, { transfer, queue, panel })
    const up = transfer.direction === 'up'
    const id = `transfer-${transfer.id}`
    this.name = h('h3', { id, title: visible(transfer.name) }, nameElement(transfer.name), transfer.more > 0 && h('span.more', {}, ` ${t('and-more', { n: transfer.more })}`))
    this.controls = h('div.controls')
    this.progress = h('progress', { max: 1, value: 0, 'aria-labelledby': id })
    this.state = h('p.state')
    this.left = h('p.aside-figure')
    this.figures = h('p.figures')
    this.rate = h('p.aside-figure')
    this.canvas = h('canvas', { role: 'img', 'aria-label': t('plot') })
    this.average = h('figcaption')
    this.figure = h('figure.plot', { hidden: true }, this.canvas, this.average)
    this.reason = h('div.reason', { hidden: true })
    this.rest = h('div.rest')
    this.details = h('details', { ontoggle: () => this.#details() }, h('summary', {}, t('details')), this.rest)
    const way = h('p.way', {}, h('span', {}, h('span.unseen', {}, `${t('from')} `), nameElement(transfer.source)), h('span.arrow', { 'aria-hidden': 'true' }, '→'), h('span', {}, h('span.unseen', {}, ` ${t('to')} `), nameElement(transfer.destination)))
    this.element = h('li.card', { 'aria-labelledby': id },
      h('div.card-head', {}, h('span.direction', { title: t(up ? 'upload' : 'download') }, icon(up ? 'upload' : 'download')), this.name, this.controls),
      this.progress, h('div.line', {}, this.state, this.left), h('div.line', {}, this.figures, this.rate), way, this.figure, this.reason, this.details)
  }

  update() {
    const { transfer } = this
    const key = `${transfer.state} ${transfer.error?.code ?? ''} ${transfer.failures} ${this.#position()}`
    if (key !== this.key) {
      this.key = key
      this.#controls()
      this.#reason()
      this.element.dataset.state = transfer.state === 'done' && transfer.failures ? 'partly' : transfer.state
    }
    const whole = transfer.total || transfer.bytesKept || 0
    const moved = transfer.state === 'done' && !transfer.failures ? whole : transfer.bytes || (isOpen(transfer) && transfer.bytesKept) || 0
    this.progress.hidden = ENDED.has(transfer.state)
    // Without a value the browser shows that something is going on.
    if (whole || transfer.state !== 'running') this.progress.value = whole ? Math.min(1, moved / whole) : 0
    else this.progress.removeAttribute('value')
    setText(this.state, this.#words())
    setText(this.figures, this.#figures(moved, whole))
    const running = transfer.state === 'running' && transfer.seconds > 0
    setText(this.rate, running ? rate(transfer.rate) : '')
    const time = running && transfer.left !== undefined ? t('left', { time: duration(transfer.left) }) : ''
    setText(this.left, ENDED.has(transfer.state) ? size(transfer.state === 'done' && !transfer.failures ? whole : transfer.bytes) : time)
    setText(this.average, t('average', { rate: rate(transfer.average) }))
    const shown = transfer.history.points.length > 2 && ['running', 'offline', 'paused'].includes(transfer.state)
    if (shown !== this.figure.hidden) return
    this.figure.hidden = !shown
    this.plot()
  }

  refreshDetails() {
    if (this.details.open) this.#details()
  }

  plot() {
    if (!this.figure.hidden) draw(this.canvas, this.transfer.history)
  }

  #position() {
    const open = this.queue.transfers.filter(isOpen)
    const at = open.indexOf(this.transfer)
    return `${at > 0} ${at >= 0 && at < open.length - 1}`
  }

  #words() {
    const { transfer } = this
    const { state, direction } = transfer
    if (state === 'running') {
      const file = transfer.files.get(transfer.current)
      if (file?.state === 'hashing') return t('state.hashing')
      return t(transfer.current ? `state.${direction}` : 'state.preparing')
    }
    if (state === 'done') {
      if (transfer.failures) return t('state.partly', { n: transfer.failures })
      return t('state.done', { time: clock(transfer.finished) })
    }
    return t(`state.${state}`)
  }

  #figures(moved, whole) {
    const { transfer } = this
    const { state } = transfer
    const parts = []
    if (ENDED.has(state)) {
      if (transfer.count > 1) parts.push(t('sum.files', { n: transfer.verified || transfer.count }))
      if (transfer.average) parts.push(t('average', { rate: rate(transfer.average) }))
      return parts.join(' · ')
    }
    if (whole) parts.push(percent(moved, whole), t('of', { part: size(moved), whole: size(whole) }))
    else if (moved) parts.push(size(moved))
    if (transfer.count > 1) parts.push(t('files.of', { n: transfer.count, done: transfer.verified }))
    return parts.join(' · ')
  }

  #controls() {
    const { transfer, queue } = this
    const focused = this.controls.contains(document.activeElement) ? document.activeElement.dataset.action : null
    const button = (name, action) =>
      h('button.bare', { type: 'button', title: t(name), 'aria-label': t('action-for', { action: t(name), name: quoted(transfer.name) }), 'data-action': name, onclick: action }, icon(ICONS[name]))
    const buttons = []
    const { state } = transfer
    if (isOpen(transfer)) {
      const open = queue.transfers.filter(isOpen)
      const at = open.indexOf(transfer)
      if (at > 0) buttons.push(button('earlier', () => queue.move(transfer, -1)))
      if (at < open.length - 1) buttons.push(button('later', () => queue.move(transfer, 1)))
      if (['running', 'waiting', 'offline'].includes(state)) buttons.push(button('pause', () => queue.pause(transfer)))
      if (['paused', 'interrupted'].includes(state)) buttons.push(button('resume', () => queue.resume(transfer)))
      if (state === 'needs') buttons.push(button('choose', () => this.#choose()))
      buttons.push(button('cancel.transfer', () => this.#cancel()))
    } else {
      if (state === 'cancelled' || state === 'failed' || transfer.failures) buttons.push(button('retry', () => this.#retry()))
      if (transfer.verified) buttons.push(button('receipt', () => this.#receipt()))
      buttons.push(button('remove', () => queue.remove(transfer)))
    }
    this.controls.replaceChildren(...buttons)
    if (focused) (this.controls.querySelector(`[data-action="${focused}"]`) ?? this.controls.querySelector('button'))?.focus()
  }

  // Says why, and offers what helps.
  #reason() {
    const { transfer, queue } = this
    const { error, state } = transfer
    const parts = []
    if (error) parts.push(h('p', {}, t(`error.${error.code}`), error.message && !COMPLETE.has(error.code) && h('span.detail', {}, ' ', nameElement(error.message, 'bdi'))))
    if (state === 'done' && transfer.failures) {
      const codes = new Set([...transfer.files.values()].filter(file => file.state === 'failed').map(file => file.reason.code))
      for (const code of codes) parts.push(h('p', {}, t(`error.${code}`)))
    }
    if (state === 'needs') parts.push(h('p', {}, t(transfer.direction === 'up' ? 'needs.up' : 'needs.down')))
    if (state === 'interrupted' && !error) parts.push(h('p', {}, t('interrupted.text')))
    const actions = []
    const add = (label, action, kind = '') => actions.push(h(`button${kind}`, { type: 'button', onclick: action }, t(label)))
    const exists = [...(error ? [error.code] : []), ...[...transfer.files.values()].filter(file => file.state === 'failed').map(file => file.reason.code)].includes('exists')
    if (state === 'interrupted') add('resume', () => queue.resume(transfer), '.primary')
    if (state === 'needs') add(transfer.direction === 'up' ? 'choose.again' : 'resume', () => this.#choose(), '.primary')
    if (state === 'failed' || (state === 'done' && transfer.failures)) {
      if (exists) add('replace.retry', () => {
        transfer.replace = true
        this.#retry()
      })
      else add('retry', () => this.#retry())
    }
    if (actions.length) parts.push(h('div.actions', {}, actions))
    this.reason.hidden = !parts.length
    this.reason.replaceChildren(...parts)
  }

  #retry() {
    const { transfer, queue } = this
    if (transfer.direction === 'up' ? transfer.origin : transfer.target) queue.resume(transfer)
    else this.#choose()
  }

  // Asks for the same files again where the browser did not keep them.
  async #choose() {
    const { transfer, queue } = this
    if (transfer.direction === 'down') {
      this.panel.chooseTarget(transfer)
      return
    }
    try {
      const origin = await pick(transfer.folder)
      if (origin) queue.again(transfer, { origin: { ...origin, names: transfer.names } })
    } catch (error) {
      tell(t('pick.failed'), error.message)
    }
  }

  async #cancel() {
    const { transfer, queue } = this
    if (transfer.bytes > 50e6) {
      const sure = await ask({
        title: t('cancel.title', { name: quoted(transfer.name) }), body: t('cancel.text'),
        actions: [{ label: t('cancel.do'), value: true, kind: 'danger' }],
      })
      if (!sure) return
    }
    queue.cancel(transfer)
  }

  async #receipt() {
    const { transfer, queue } = this
    await queue.readFiles?.(transfer, { all: true })
    const content = receipt(transfer, queue.sessionOf?.(transfer) ?? queue.session)
    const text = receiptText(content)
    const choice = await ask({
      title: t('receipt.title'), wide: true, body: h('pre', { tabIndex: 0 }, text.slice(0, 20_000)),
      actions: [{ label: t('receipt.text'), value: 'txt', kind: 'primary' }, { label: t('receipt.json'), value: 'json' }],
    })
    if (!choice) return
    const blob = choice === 'json' ? new Blob([receiptJson(content)], { type: 'application/json' }) : new Blob([text], { type: 'text/plain' })
    saveFile(blob, `headroom-${new Date(transfer.finished).toISOString().slice(0, 19).replace(/[:T]/g, '-')}.${choice}`)
  }

  // Lists files: those that failed, then those that move, then the others, up to 200.
  #details() {
    if (!this.details.open) return
    const { transfer } = this
    this.queue.readFiles?.(transfer)
    const order = { failed: 0, hashing: 1, moving: 1, verified: 2 }
    const files = [...transfer.files].sort((a, b) => (order[a[1].state] ?? 3) - (order[b[1].state] ?? 3)).slice(0, FILES_SHOWN)
    const lines = files.map(([path, file]) => {
      const words = file.state === 'failed' ? t(`error.${file.reason.code}`) : t(`file.${file.state}`)
      const part = file.state === 'moving' ? ` ${percent(file.bytes, file.total)}` : ''
      return h('li', { 'data-state': file.state }, nameElement(path), h('span.file-state', {}, `${words}${part} · ${size(file.total)}`), file.hash && h('code', { title: 'BLAKE3' }, file.hash))
    })
    if (transfer.files.size > files.length) lines.push(h('li', {}, t('and-more', { n: transfer.files.size - files.length })))
    const started = transfer.started ? [h('p', {}, t('started', { time: fullDate(transfer.started) }))] : []
    this.rest.replaceChildren(...started, lines.length ? h('ul.files', {}, lines) : h('p', {}, t('files.none')))
  }
}

const ICONS = {
  earlier: 'up', later: 'down', pause: 'pause', resume: 'play', choose: 'folder', 'cancel.transfer': 'close', retry: 'retry',
  receipt: 'receipt', remove: 'close',
}
