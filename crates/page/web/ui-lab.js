// The lab behind `headroom ui`: plans to start, runs to watch, reports to open.

import { tell } from './dialogs.js'
import { clock, date, h, nameElement, number, setText, size } from './format.js'
import { errorText } from './pane.js'
import { t } from './texts.js'
import { unwire } from './ui-session.js'

const ACTIVE = new Set(['running', 'stopping'])

export class LabView {
  constructor(root, api, { root: isRoot, folder }) {
    Object.assign(this, { root, api, isRoot, folder, runs: [], cards: new Map() })
    this.plan = h('select', { id: 'lab-plan', onchange: () => (this.file.parentElement.hidden = this.plan.value !== '') })
    this.file = h('input', { type: 'text', id: 'lab-file', autocomplete: 'off', spellcheck: false })
    this.scale = h('select', { id: 'lab-scale' })
    this.start = h('button.primary', { type: 'submit' })
    this.planLabel = h('label', { for: 'lab-plan' })
    this.fileLabel = h('label', { for: 'lab-file' })
    this.scaleLabel = h('label', { for: 'lab-scale' })
    this.heading = h('h2')
    this.note = h('p.aside')
    this.now = h('h2')
    this.current = h('div.runs')
    this.resultsHeading = h('h2')
    this.results = h('ul.results')
    this.form = h('form.lab-form', { onsubmit: event => {
      event.preventDefault()
      this.#start()
    } }, h('div.field', {}, this.planLabel, this.plan), h('div.field', {}, this.fileLabel, this.file), h('div.field', {}, this.scaleLabel, this.scale), this.start)
    root.append(h('div.lab-sheet', {}, this.heading, this.form, this.note, this.now, this.current, this.resultsHeading, this.results))
    this.translate()
  }

  translate() {
    setText(this.heading, t('lab.start'))
    setText(this.planLabel, t('lab.plan'))
    setText(this.fileLabel, t('lab.plan.file'))
    setText(this.scaleLabel, t('lab.scale'))
    setText(this.start, t('lab.run'))
    setText(this.now, t('lab.now'))
    setText(this.resultsHeading, t('lab.results', { folder: `${this.folder}/results` }))
    const chosen = this.scale.value
    this.scale.replaceChildren(...['full', 'quick', 'smoke'].map(name => h('option', { value: name, selected: name === chosen }, t(`lab.scale.${name}`))))
    for (const card of this.cards.values()) card.element.remove()
    this.cards.clear()
    this.take(this.runs)
    if (this.listed) this.#list()
  }

  // Reads which plans and results there are.
  async refresh() {
    try {
      this.listed = await this.api.call('lab', { action: 'list' })
      this.#list()
    } catch (error) {
      tell(t('lab.failed'), errorText(error))
    }
  }

  #list() {
    const { plans, runs, folder } = this.listed
    const chosen = this.plan.value
    this.plan.replaceChildren(...plans.map(({ name, path }) => h('option', { value: path, selected: path === chosen }, unwire(name))), h('option', { value: '' }, t('lab.plan.file')))
    if (!plans.length) this.plan.value = ''
    this.file.parentElement.hidden = this.plan.value !== ''
    const notes = [!plans.length && `${t('lab.none', { folder: `${unwire(folder)}/plans` })}. ${t('lab.none.text')}`, !this.isRoot && t('lab.root')].filter(Boolean)
    this.note.hidden = !notes.length
    setText(this.note, notes.join(' '))
    const sorted = [...runs].sort((a, b) => b.modified - a.modified)
    this.results.replaceChildren(...sorted.map(({ name, modified, report, unfinished }) => h('li', {}, nameElement(name), h('span.when', {}, date(modified)),
      report ? this.#reportButton(name) : h('span.when', {}, unfinished ? t('lab.unfinished') : ''))))
    if (!sorted.length) this.results.append(h('li.empty', {}, t('lab.results.none')))
  }

  #reportButton(name) {
    return h('button', { type: 'button', 'aria-label': t('action-for', { action: t('lab.report'), name }), onclick: () => this.#open(name) }, t('lab.report'))
  }

  async #open(run) {
    try {
      const { path } = await this.api.call('lab', { action: 'report', run })
      // a document of no origin, which knows nothing of this page
      window.open(new URL(path, location.href).href, '_blank', 'noopener')
    } catch (error) {
      tell(t('lab.failed'), errorText(error))
    }
  }

  async #start() {
    const plan = this.plan.value || this.file.value.trim().replace(/^\//, '')
    const scale = this.scale.value === 'full' ? {} : { scale: this.scale.value }
    try {
      await this.api.call('lab', { action: 'start', plan, ...scale })
    } catch (error) {
      tell(t('lab.failed'), errorText(error))
    }
  }

  // Takes what the command says of the runs that it started.
  take(runs) {
    const ended = this.runs.some(before => ACTIVE.has(before.state) && !ACTIVE.has(runs.find(run => run.id === before.id)?.state))
    this.runs = runs
    this.now.hidden = !runs.length
    for (const run of runs) {
      let card = this.cards.get(run.id)
      if (!card) {
        this.cards.set(run.id, (card = this.#card(run)))
        this.current.prepend(card.element)
      }
      this.#update(card, run)
    }
    this.start.disabled = runs.some(run => ACTIVE.has(run.state))
    if (ended) this.refresh()
  }

  #card({ id, name, plan }) {
    const heading = h('h3', { id: `run-${id}` }, nameElement(unwire(name ?? plan)))
    const state = h('p.state', { role: 'status' })
    const bar = h('progress', { max: 1, value: 0, 'aria-labelledby': `run-${id}` })
    const stop = h('button', { type: 'button', onclick: () => this.api.call('lab', { action: 'stop', id }).catch(error => tell(t('lab.failed'), errorText(error))) }, t('lab.stop'))
    const report = this.#reportButton(unwire(name ?? ''))
    const table = h('div.cells-table', { tabIndex: 0, role: 'region', 'aria-label': t('lab.progress') })
    const output = h('pre', { tabIndex: 0, 'aria-label': t('lab.output') })
    const details = h('details', {}, h('summary', {}, t('lab.output')), output)
    const element = h('article.run', { 'aria-labelledby': `run-${id}` }, h('div.run-head', {}, heading, state, report, stop), bar, table, details)
    return { element, state, bar, stop, report, table, output, details }
  }

  #update(card, run) {
    const { cells, repetitions, state } = run
    const active = ACTIVE.has(state)
    card.element.dataset.state = state
    setText(card.state, `${t(`lab.state.${state}`)} · ${clock(run.finished || run.started)}`)
    card.stop.hidden = !active
    card.stop.disabled = state === 'stopping'
    card.report.hidden = active || !run.report
    const done = cells.reduce((sum, cell) => sum + Math.min(cell.samples, repetitions || cell.samples), 0)
    card.bar.hidden = !active
    if (cells.length && repetitions) card.bar.value = done / (cells.length * repetitions)
    else card.bar.removeAttribute('value')
    setText(card.output, run.lines.map(line => line.replace(/\x1b\[[0-9;]*[A-Za-z]/g, '')).join('\n'))
    if (state === 'failed' && card.failed !== true) card.failed = card.details.open = true
    this.#cells(card, cells, repetitions)
  }

  // A row for each stack, a column for each workload and size; cells fill as blocks are complete.
  #cells(card, cells, repetitions) {
    const key = JSON.stringify(cells)
    if (card.key === key) return
    card.key = key
    card.table.hidden = !cells.length
    const column = cell => `${cell.workload} ${size(cell.size)}`
    const columns = [...new Set(cells.map(column))]
    const stacks = [...new Set(cells.map(cell => cell.stack))]
    const of = new Map(cells.map(cell => [`${cell.stack}\n${column(cell)}`, cell]))
    card.table.replaceChildren(h('table', {},
      h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, t('lab.stack')), columns.map(name => h('th', { scope: 'col' }, name)))),
      h('tbody', {}, stacks.map(stack => h('tr', {}, h('th', { scope: 'row' }, stack), columns.map(name => this.#cell(of.get(`${stack}\n${name}`), repetitions)))))))
  }

  #cell(cell, repetitions) {
    if (!cell) return h('td')
    const values = { done: number(cell.samples), n: number(Math.max(repetitions, cell.samples)) }
    const text = cell.seconds === null ? t('lab.cell.open', values) : t('lab.cell', { ...values, time: seconds(cell.seconds) })
    const element = h('td', { class: cell.samples >= repetitions ? 'full' : cell.samples ? 'part' : 'open' }, text)
    if (cell.failed) element.append(' ', h('span.wrong', {}, t('lab.cell.failed', { n: cell.failed })))
    return element
  }
}

function seconds(value) {
  return value < 1 ? `${number(Math.round(value * 1e4) / 10)} ms` : `${number(Math.round(value * 1000) / 1000)} s`
}
