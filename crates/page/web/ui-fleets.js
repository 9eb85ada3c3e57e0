// The fleets behind `headroom ui`: jobs that other processes run, how far they are, and what steers
// them.

import { ask, tell } from './dialogs.js'
import { duration, h, nameElement, percent, quoted, rate, setText, size, visible } from './format.js'
import { errorText } from './pane.js'
import { t } from './texts.js'
import { unwire } from './ui-session.js'

// What a job does that is not at its end, and what it does while workers work for it.
const OPEN = new Set(['listing', 'copying', 'directories', 'deleting', 'paused'])
const WORKING = new Set(['listing', 'copying', 'directories'])

export class FleetView {
  constructor(root, api) {
    Object.assign(this, { root, api, jobs: [], cards: new Map() })
    this.heading = h('h2')
    this.none = h('div.empty')
    this.list = h('div.runs')
    root.append(h('div.lab-sheet', {}, this.heading, this.none, this.list))
    this.translate()
  }

  translate() {
    setText(this.heading, t('fleet.jobs'))
    this.none.replaceChildren(h('p.headline', {}, t('fleet.none')), h('p', {}, t('fleet.none.text')))
    for (const card of this.cards.values()) card.element.remove()
    this.cards.clear()
    this.take(this.jobs)
  }

  // Takes what the command says of all jobs.
  take(jobs) {
    this.jobs = jobs
    this.none.hidden = jobs.length > 0
    const ids = new Set(jobs.map(job => job.id))
    for (const [id, card] of this.cards) {
      if (ids.has(id)) continue
      card.element.remove()
      this.cards.delete(id)
    }
    jobs.forEach((job, at) => {
      let card = this.cards.get(job.id)
      if (card && card.name !== job.name) {
        card.element.remove()
        card = undefined
      }
      if (!card) this.cards.set(job.id, (card = new Card(job, this.api)))
      if (this.list.children[at] !== card.element) this.list.insertBefore(card.element, this.list.children[at] ?? null)
      card.update(job)
    })
  }
}

let cards = 0

class Card {
  constructor(job, api) {
    this.api = api
    this.id = job.id
    this.name = job.name
    const id = `fleet-${(cards += 1)}`
    const button = (name, action) => h('button', { type: 'button', onclick: action, 'aria-label': t('action-for', { action: t(name), name: quoted(job.name) }) }, t(name))
    this.state = h('p.state', { role: 'status' })
    this.pause = button('pause', () => this.#call(this.job.state === 'paused' ? 'resume' : 'pause'))
    this.limit = button('fleet.rate', () => this.#rate())
    this.cancel = button('fleet.cancel', () => this.#cancel())
    this.controls = h('div.steering', {}, this.pause, this.limit, this.cancel)
    this.bar = h('progress', { max: 1, value: 0, 'aria-labelledby': id })
    this.figures = h('p.figures')
    this.rate = h('p.aside-figure')
    this.way = h('p.way')
    this.rest = h('p.figures')
    this.note = h('p.aside', { hidden: true })
    this.workers = h('div.cells-table', { tabIndex: 0, role: 'region', 'aria-label': t('fleet.workers') })
    this.reasonsTitle = h('summary')
    this.reasonsList = h('ul.reasons')
    this.reasons = h('details', { hidden: true }, this.reasonsTitle, this.reasonsList)
    this.place = h('p.place-of')
    this.element = h('article.run', { 'aria-labelledby': id, tabIndex: -1 },
      h('div.run-head', {}, h('h3', { id }, nameElement(job.name)), this.state, this.controls),
      this.bar, h('div.line', {}, this.figures, this.rate), this.way, this.rest, this.note, this.workers, this.reasons, this.place)
  }

  update(job) {
    this.job = job
    const { state, error } = job
    const known = !error
    this.element.dataset.state = state
    setText(this.state, t(`fleet.state.${state}`))
    const open = OPEN.has(state)
    // the focus stays at the job when its buttons go
    if (!open && this.controls.contains(document.activeElement)) this.element.focus()
    this.controls.hidden = !open
    this.#pauseButton(state)
    setText(this.place, `${t('fleet.place')}: ${visible(unwire(job.place))}`)
    for (const part of [this.figures, this.rate, this.way, this.rest]) part.hidden = !known
    this.bar.hidden = !known || !open
    this.note.hidden = known && !(WORKING.has(state) && job.live === 0)
    setText(this.note, known ? t('fleet.nobody') : visible(error.message))
    this.workers.hidden = !known || !job.workers.length
    this.reasons.hidden = !known || !job.aside
    if (known) this.#figures(job)
  }

  #pauseButton(state) {
    const name = state === 'paused' ? 'resume' : 'pause'
    if (this.shown === name) return
    this.shown = name
    setText(this.pause, t(name))
    this.pause.setAttribute('aria-label', t('action-for', { action: t(name), name: quoted(this.name) }))
  }

  #figures(job) {
    const { state, listed } = job
    const done = job.copied_bytes + job.in_flight
    // without a value the browser shows that something is going on
    if (listed) this.bar.value = job.bytes ? Math.min(1, done / job.bytes) : 1
    else this.bar.removeAttribute('value')
    const parts = listed
      ? [job.bytes > 0 && percent(done, job.bytes), t('of', { part: size(Math.min(done, job.bytes)), whole: size(job.bytes) }), t('files.of', { n: job.files, done: job.copied_files })]
      : [t('fleet.listed', { n: job.files, size: size(job.bytes) }), t('fleet.copied', { n: job.copied_files, size: size(done) })]
    setText(this.figures, parts.filter(Boolean).join(' · '))
    const moving = ['listing', 'copying'].includes(state)
    setText(this.rate, [moving && rate(job.rate), moving && job.left !== null && t('left', { time: duration(job.left) })].filter(Boolean).join(' · '))
    const way = JSON.stringify([job.from, job.to])
    if (this.wayKey !== way) {
      this.wayKey = way
      this.way.replaceChildren(h('span', {}, h('span.unseen', {}, `${t('from')} `), nameElement(job.from)), h('span.arrow', { 'aria-hidden': 'true' }, '→'),
        h('span', {}, h('span.unseen', {}, ` ${t('to')} `), nameElement(job.to)))
    }
    const counts = [['unchanged', job.unchanged], ['vanished', job.vanished], ['left-out', job.left_out], ['removed', job.removed], ['aside', job.aside]]
    setText(this.rest, [job.limit ? t('fleet.limit', { rate: job.limit }) : t('fleet.limit.none'), t('fleet.queue', { waiting: job.queued, taken: job.leased }),
      ...counts.filter(([, n]) => n > 0).map(([name, n]) => t(`fleet.count.${name}`, { n }))].join(' · '))
    this.#workers(job)
    this.#reasons(job)
  }

  #workers({ workers, live, state }) {
    const key = JSON.stringify([workers, state])
    if (this.workersKey === key) return
    this.workersKey = key
    const does = ({ item, bytes }) => (!item ? t('fleet.worker.waits') : state === 'directories' ? t('fleet.worker.directories') : t('fleet.worker.copies', { size: size(bytes) }))
    const heard = ({ silent }) => (silent < 2 ? t('fleet.worker.now') : t('fleet.worker.ago', { time: duration(silent) }))
    this.workers.replaceChildren(h('table', {},
      h('thead', {}, h('tr', {}, ['name', 'does', 'heard'].map(name => h('th', { scope: 'col' }, t(`fleet.worker.${name}`))))),
      h('tbody', {}, workers.map(worker => h('tr', {}, h('th', { scope: 'row' }, nameElement(worker.name)), h('td', {}, does(worker)), h('td', {}, heard(worker)))))))
    if (live > workers.length) this.workers.append(h('p', {}, t('and-more', { n: live - workers.length })))
  }

  #reasons({ aside, reasons }) {
    const key = JSON.stringify([aside, reasons])
    if (this.reasonsKey === key) return
    this.reasonsKey = key
    setText(this.reasonsTitle, t('fleet.aside', { n: aside }))
    this.reasonsList.replaceChildren(...reasons.map(reason => h('li', {}, visible(reason))))
    if (aside > reasons.length) this.reasonsList.append(h('li', {}, t('and-more', { n: aside - reasons.length })))
  }

  async #call(action, more = {}) {
    try {
      await this.api.call('fleet', { action, id: this.id, ...more })
    } catch (error) {
      tell(t('fleet.failed', { name: quoted(this.name) }), error.message || errorText(error))
    }
  }

  async #rate() {
    const answer = await ask({
      title: t('fleet.rate.title', { name: quoted(this.name) }), field: { label: t('fleet.rate.field'), value: this.job.limit ? this.job.limit.replace(' ', '').replace('/s', '').toLowerCase() : 'none' },
      actions: [{ label: t('limit.set'), value: 'set', kind: 'primary' }],
    })
    if (answer) this.#call('rate', { rate: answer.text })
  }

  async #cancel() {
    const sure = await ask({
      title: t('cancel.title', { name: quoted(this.name) }), body: t('fleet.cancel.text'),
      actions: [{ label: t('fleet.cancel.do'), value: true, kind: 'danger' }],
    })
    if (sure) this.#call('cancel')
  }
}
