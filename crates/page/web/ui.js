// Starts the page of `headroom ui`: this machine and a server side by side. The command serves
// index.html with this module in the place of app.js.

import { ask, tell } from './dialogs.js'
import { baseName, h, icon, join, nameElement, percent, quoted, setText, visible } from './format.js'
import { errorText, Pane } from './pane.js'
import { Panel } from './panel.js'
import { Preview } from './preview.js'
import { applyTheme, offerSettings } from './settings.js'
import { keepSetting, setting } from './store.js'
import { addTexts, loadLanguage, t } from './texts.js'
import { isOpen } from './transfers.js'
import { FleetView } from './ui-fleets.js'
import { LabView } from './ui-lab.js'
import { CommandQueue } from './ui-queue.js'
import { Api, PlaceSession, takeToken, unwire, wire } from './ui-session.js'
import { askToSync } from './ui-sync.js'
import texts from './ui-texts.js'

const $ = id => document.getElementById(id)
const DRAGGED = 'application/x-headroom-pane'
const WHOLE = new Set(['fleets', 'lab']) // views that take the place of all others

let api
let greeting
let queue
let panel
let preview
let lab
let fleets
let left
let right
let chooser
let connection = { state: 'connecting' }
const servers = new Map() // id -> what the command says of it

async function start() {
  document.getElementById('unstarted').remove()
  applyTheme()
  addTexts(texts)
  document.body.classList.add('ui')
  await Promise.all([loadLanguage(setting('language')), loadStyle('ui.css')])
  const token = takeToken()
  if (!token) return end('ui.token')
  api = new Api(token)
  queue = new CommandQueue(api)
  keepSetting('limit', 0) // the command's limit counts
  build()
  const first = new Promise(resolve => (build.greeted = resolve))
  api.listen(receive, showState)
  await first
  document.body.classList.add('ready')
  for (const side of [left, right]) side.pane.translate()
  translate()
  preview.use(left.session)
  await left.show(sessionStorage.getItem('headroom.left') ?? unwire(greeting.folder))
  const wanted = sessionStorage.getItem('headroom.server')
  const known = servers.get(wanted) ?? [...servers.values()][0]
  if (known) await connect(known.name, { ssh: known.ssh, path: known.id === wanted ? sessionStorage.getItem('headroom.right') : undefined })
  else right.showChooser()
  left.pane.grid.focus()
}

function loadStyle(href) {
  return new Promise(resolve => document.head.append(h('link', { rel: 'stylesheet', href, onload: resolve, onerror: resolve })))
}

// Takes a message of the command.
function receive(message) {
  if (!greeting) {
    greeting = message
    left.session = new PlaceSession(api, 'local', { name: t('ui.left') })
    lab = new LabView($('lab'), api, { root: greeting.root, folder: `/${unwire(greeting.folder)}` })
    fleets = new FleetView($('fleets'), api)
    return
  }
  if (message.program) return // again, after the connection was lost
  if (message.servers) takeServers(message.servers)
  if (message.transfers) queue.take(message.transfers)
  if (message.lab) lab.take(message.lab)
  if (message.fleets) fleets.take(message.fleets)
  build.greeted()
}

function takeServers(list) {
  servers.clear()
  for (const server of list) servers.set(server.id, server)
  queue.servers = servers
  chooser?.update()
}

// --- the layout

function build() {
  for (const id of ['remote', 'lab', 'fleets']) $('files').after(h('section', { id, tabIndex: -1 }))
  left = new Side($('files'), 'left')
  right = new Side($('remote'), 'right')
  left.other = right
  right.other = left
  chooser = new Chooser(right)
  panel = new Panel($('transfers'), queue)
  preview = new Preview($('preview'), { verb: 'copy' })
  preview.addEventListener('close', () => {
    document.body.classList.remove('previewing')
    preview.side?.pane.grid.focus()
  })
  preview.addEventListener('download', ({ entry }) => preview.side.copy([entry]))
  const tab = (view, name, count) => h('button', { type: 'button', 'data-view': view, onclick: () => show(view) }, icon(name), h('span'), count && h('span.count'))
  document.querySelector('.tabs').replaceChildren(tab('files', 'home'), tab('remote', 'folder'), tab('transfers', 'transfers', true), tab('fleets', 'copy'), tab('lab', 'receipt'))
  const switches = h('nav.switch', {}, tab('files', 'folder'), tab('fleets', 'copy'), tab('lab', 'receipt'))
  $('server').replaceWith(switches)
  const quit = h('button.quiet', { id: 'quit', type: 'button', onclick: () => leave() })
  document.querySelector('.top').append(quit)
  for (const type of ['added', 'removed', 'state', 'change']) queue.addEventListener(type, showCount)
  queue.addEventListener('state', ({ transfer }) => report(transfer))
  // a short one is done before anything else is heard of it
  queue.addEventListener('added', ({ transfer, before }) => before === 'new' && report(transfer))
  queue.addEventListener('limit', () => {
    keepSetting('limit', queue.limit ? queue.limit / 1e6 : 0)
    panel.translate()
  })
  queue.addEventListener('failed', ({ error }) => say(errorText(error)))
  queue.addEventListener('second', showTitle)
  $('help-button').addEventListener('click', help)
  offerSettings({
    translate: () => {
      for (const side of [left, right]) side.pane.translate()
      panel.translate()
      lab?.translate()
      fleets?.translate()
      translate()
    },
  })
  $('skip').addEventListener('click', event => {
    event.preventDefault()
    left.pane.grid.focus()
  })
  addEventListener('keydown', shortcut)
  for (const type of ['dragover', 'drop']) addEventListener(type, event => event.preventDefault())
  addEventListener('hashchange', () => takeToken() && location.reload())
  show('files')
}

function show(view) {
  document.body.dataset.view = view
  for (const button of document.querySelectorAll('.tabs button, .switch button')) {
    const isCurrent = button.dataset.view === view || (button.closest('.switch') && button.dataset.view === 'files' && !WHOLE.has(view))
    if (isCurrent) button.setAttribute('aria-current', 'page')
    else button.removeAttribute('aria-current')
  }
  if (view === 'lab') lab?.refresh()
  panel?.plots()
}

function translate() {
  const names = { files: 'ui.left', remote: 'ui.servers', transfers: 'transfers', fleets: 'ui.fleets', lab: 'ui.lab' }
  for (const button of document.querySelectorAll('.tabs button')) setText(button.querySelector('span'), t(names[button.dataset.view]))
  for (const button of document.querySelectorAll('.switch button')) setText(button.querySelector('span'), t(button.dataset.view === 'files' ? 'files' : names[button.dataset.view]))
  document.querySelector('.switch').setAttribute('aria-label', t('views'))
  $('files').setAttribute('aria-label', t('ui.left'))
  $('remote').setAttribute('aria-label', t('ui.servers'))
  $('lab').setAttribute('aria-label', t('ui.lab'))
  $('fleets').setAttribute('aria-label', t('ui.fleets'))
  setText($('quit'), t('ui.quit'))
  $('quit').title = t('ui.quit.title')
  for (const side of [left, right]) side.translate()
  showState(connection.state)
  showCount()
}

// --- a side: this machine, or a server

class Side {
  constructor(root, name) {
    Object.assign(this, { root, name, session: null })
    this.place = h('div.place')
    root.append(this.place)
    this.pane = new Pane(root, { verb: 'copy', uploads: false })
    const { pane } = this
    this.sync = h('button.action', { type: 'button', onclick: () => this.startSync() }, icon('retry'), h('span'))
    pane.newFolder.before(this.sync)
    pane.addEventListener('navigate', ({ path }) => this.show(path).then(() => pane.grid.focus()))
    pane.addEventListener('preview', ({ entry }) => {
      preview.side = this
      preview.use(this.session)
      preview.show(entry)
      document.body.classList.add('previewing')
    })
    pane.addEventListener('said', ({ text }) => say(text))
    pane.addEventListener('download', ({ entries }) => this.copy(entries))
    pane.grid.addEventListener('focus', () => (Side.last = this))
    pane.grid.addEventListener('dragstart', event => {
      if (!pane.list.take(event)) return
      event.dataTransfer.setData(DRAGGED, this.name)
      event.dataTransfer.effectAllowed = 'copy'
      Side.dragging = this
      this.dragged = pane.list.chosen()
    })
    pane.grid.addEventListener('dragend', () => {
      Side.dragging = null
      for (const side of [left, right]) side.pane.drop.hidden = true
    })
    root.addEventListener('dragover', event => {
      if (Side.dragging !== this.other || !this.session) return
      event.preventDefault()
      event.dataTransfer.dropEffect = 'copy'
      pane.drop.querySelector('span').textContent = t('ui.drop', { folder: quoted(pane.path ? baseName(pane.path) : t('root')) })
      pane.drop.hidden = false
    })
    root.addEventListener('dragleave', event => root.contains(event.relatedTarget) || (pane.drop.hidden = true))
    root.addEventListener('drop', event => {
      event.preventDefault()
      pane.drop.hidden = true
      if (Side.dragging === this.other && this.session) this.other.copy(this.other.dragged)
    })
  }

  translate() {
    setText(this.sync.lastChild, t('ui.sync'))
    this.sync.title = t('ui.sync.title')
    const name = this === left ? t('ui.left') : (this.session?.server.name ?? t('ui.servers'))
    this.pane.grid.setAttribute('aria-label', `${t('list')}: ${name}`)
    this.pane.trail.setAttribute('aria-label', `${t('path')}: ${name}`)
    if (this === left) this.place.replaceChildren(h('h2', {}, t('ui.left')))
    else chooser.translate()
  }

  async show(path, reveal) {
    sessionStorage.setItem(`headroom.${this.name}`, path)
    this.pane.use(this.session)
    await this.pane.show(path, reveal)
  }

  showChooser() {
    chooser.showForm()
  }

  // Says where a path is.
  label(path) {
    return visible(this === left ? `/${path}` : `${this.session.server.name}:${path || '/'}`)
  }

  get ready() {
    if (right.session) return true
    tell(t('ui.nowhere'), t('ui.nowhere.text'))
    return false
  }

  // Copies entries into the folder of the other side.
  async copy(entries) {
    entries = entries.filter(entry => entry.type !== 'other')
    if (!entries.length || !this.ready) return
    const { pane } = this.other
    const to = pane.path
    const taken = new Set(pane.list.entries.map(entry => entry.name))
    const there = entries.filter(entry => taken.has(entry.name))
    if (there.length && !(await ask({
      title: t('exists.title', { n: there.length, name: quoted(there[0].name) }), body: t('ui.exists.copy'),
      actions: [{ label: t('replace'), value: true, kind: 'primary' }],
    }))) return
    const source = this.label(entries.length === 1 ? entries[0].path : this.pane.path)
    const labels = { name: visible(entries[0].name), more: entries.length - 1, source, destination: this.other.label(to) }
    try {
      await api.call('copy', { server: right.session.place, upload: this === left, from: entries.map(entry => wire(entry.path)), to: wire(to), labels })
    } catch (error) {
      tell(t('pick.failed'), errorText(error))
    }
  }

  // Makes the folder of the other side the same as this one's, after a preview.
  async startSync() {
    if (!this.ready) return
    const [from, to] = [this.pane.path, this.other.pane.path]
    const labels = { name: t('ui.sync.name', { name: visible(baseName(from) || '/') }), more: 0, source: this.label(from), destination: this.other.label(to) }
    const options = await askToSync(api, { server: right.session.place, upload: this === left, from, to }, labels)
    this.pane.grid.focus()
    if (!options) return
    try {
      await api.call('sync', { ...options, dry_run: false })
    } catch (error) {
      tell(t('pick.failed'), errorText(error))
    }
  }
}

// --- servers

class Chooser {
  constructor(side) {
    this.side = side
    this.select = h('select', { id: 'place', onchange: () => this.#chosen() })
    this.label = h('label.unseen', { for: 'place' })
    this.details = h('button.bare', { type: 'button', onclick: () => this.#showDetails() }, icon('help'))
    this.add = h('button.bare', { type: 'button', onclick: () => this.showForm() }, icon('new-folder'))
    side.place.append(h('h2.unseen', {}, ''), this.label, this.select, this.details, this.add)
    this.form = h('div.sign-in', { hidden: true })
    side.root.append(this.form)
  }

  translate() {
    setText(this.side.place.firstChild, t('ui.servers'))
    setText(this.label, t('ui.servers'))
    for (const [button, key] of [[this.details, 'ui.details'], [this.add, 'ui.add']]) {
      button.title = t(key)
      button.setAttribute('aria-label', t(key))
    }
    this.update()
    if (!this.form.hidden) this.showForm()
  }

  update() {
    const current = this.side.session?.place ?? ''
    this.select.replaceChildren(
      ...(current ? [] : [h('option', { value: '', selected: true }, t('ui.none'))]),
      ...[...servers.values()].map(({ id, name, ssh }) => h('option', { value: id, selected: id === current }, ssh ? `${name} (ssh)` : name)),
    )
    this.details.hidden = !current
  }

  #chosen() {
    const server = servers.get(this.select.value)
    if (server) connect(server.name, { ssh: server.ssh })
  }

  showForm() {
    const address = h('input', { type: 'text', id: 'address', autocomplete: 'off', spellcheck: false, list: 'known', required: true })
    const ssh = h('input', { type: 'checkbox' })
    const state = h('p.state', { role: 'status' })
    const form = h('form.sheet', { onsubmit: async event => {
      event.preventDefault()
      setText(state, t('ui.connecting', { name: quoted(address.value) }))
      await connect(address.value.trim(), { ssh: ssh.checked })
      setText(state, '')
    } },
    h('h2', {}, servers.size ? t('ui.add') : t('ui.none')), h('p.lead', {}, t('ui.none.text')),
    h('label', { for: 'address' }, t('ui.address')), address, h('p', {}, t('ui.address.hint')),
    h('datalist', { id: 'known' }, greeting.suggestions.map(name => h('option', { value: name }))),
    h('label.check-line', {}, ssh, h('span', {}, t('ui.ssh'))), state,
    h('div.actions', {}, h('button.primary', { type: 'submit' }, t('ui.connect')),
      this.side.session && h('button.quiet', { type: 'button', onclick: () => this.hideForm() }, t('cancel'))))
    this.form.replaceChildren(form)
    this.form.hidden = false
    address.focus()
  }

  hideForm() {
    this.form.hidden = true
    this.side.pane.grid.focus()
  }

  async #showDetails() {
    const server = servers.get(this.side.session.place)
    const rows = [[t('ui.address'), server.name], [t('ui.by'), t(server.ssh ? 'ui.by.ssh' : 'ui.by.quic')], [t('ui.key'), h('code', {}, server.fingerprint ?? '?')]]
    const forget = await ask({
      title: t('ui.details'), body: h('dl.facts', {}, rows.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)])),
      actions: [{ label: t('ui.forget'), value: true }],
    })
    if (!forget) return
    await api.call('disconnect', { server: server.id })
    this.side.session = null
    servers.delete(server.id)
    this.update()
    this.showForm()
  }
}

// Connects the right side to a server. An unknown host is asked about.
async function connect(name, { ssh = false, fingerprint, path } = {}) {
  let server
  try {
    server = await api.call('connect', { address: name, ssh, ...(fingerprint ? { fingerprint } : {}) })
  } catch (error) {
    if (error.code === 'unknown-host' && !fingerprint) {
      const trusted = await ask({
        title: t('ui.unknown', { name: quoted(error.host) }), body: [t('ui.unknown.text'), h('p', {}, h('code', {}, error.fingerprint))],
        actions: [{ label: t('ui.trust'), value: true, kind: 'danger' }],
      })
      if (trusted) return connect(name, { ssh, path, fingerprint: error.fingerprint })
    } else await tell(t('ui.connect.failed', { name: quoted(name) }), error.message || errorText(error))
    chooser.update()
    if (!right.session && chooser.form.hidden) chooser.showForm()
    return
  }
  const { id } = server
  servers.set(id, server)
  right.session = new PlaceSession(api, id, server)
  sessionStorage.setItem('headroom.server', id)
  chooser.update()
  chooser.form.hidden = true
  right.translate()
  await right.show(path ?? unwire(server.home ?? ''))
}

// --- keys

function shortcut(event) {
  const typing = event.target.closest?.('input, textarea, select, dialog')
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return
  const side = Side.last ?? left
  const actions = {
    F5: () => side.copy(side.pane.list.chosen()), F7: () => side.pane.makeFolder(), F8: () => side.pane.deleteChosen(), F9: () => side.startSync(),
    F6: () => side.other.pane.grid.focus(), '?': help, '/': () => side.pane.filter.focus(),
  }
  const action = WHOLE.has(document.body.dataset.view) ? event.key === '?' && help : actions[event.key]
  if (!action) return
  event.preventDefault()
  if (side.session || event.key === 'F6' || event.key === '?') action()
}

function help() {
  const keys = [['F5', 'help.copy'], ['F6', 'help.pane'], ['F7', 'help.new-folder'], ['F8', 'help.delete'], ['F9', 'help.sync'], ['↑ ↓', 'help.move'], ['⏎', 'help.open'], ['⌫', 'help.up'],
    ['␣', 'help.select'], ['⇧ ↑ ↓', 'help.extend'], [t('help.ctrl-a'), 'help.all'], ['F2', 'help.rename'], ['/', 'help.filter'], ['a–z', 'help.type'], ['Esc', 'help.escape'], ['?', 'help.title']]
  ask({ title: t('help.title'), body: h('dl.keys', {}, keys.flatMap(([key, text]) => [h('dt', {}, h('kbd', {}, key)), h('dd', {}, t(text))])) })
}

// --- what the page tells

function say(text) {
  $('live').textContent = text
}

function report(transfer) {
  const { state } = transfer
  const name = quoted(transfer.name)
  if (state === 'running') return say(t(transfer.direction === 'up' ? 'say.up' : 'say.down', { name }))
  if (['paused', 'cancelled', 'offline'].includes(state)) say(t('say.state', { name, state: t(`state.${state}`) }))
  if (state !== 'done' && state !== 'failed') return
  say(t(state === 'done' && !transfer.failures ? 'say.done' : 'say.failed', { name }))
  const side = transfer.direction === 'up' ? right : left
  if (side.session && (side === left || transfer.server === right.session.place)) side.pane.refreshSoon()
}

function showCount() {
  const open = queue.transfers.filter(isOpen).length
  const count = document.querySelector('.tabs .count')
  if (count) count.textContent = open || ''
  showTitle()
}

function showTitle() {
  const totals = panel.totals()
  document.title = `${totals.running && totals.total ? `${percent(totals.bytes, totals.total)} · ` : ''}${t('ui.left')} · Headroom`
}

function showState(state) {
  connection = { state }
  if (state === 'refused') return end('ui.token')
  if (showState.ended) return
  document.body.dataset.connection = state
  const words = state === 'connected' ? t('connected.native') : t(`connection.${state}`)
  setText($('connection-text'), words)
  $('connection').setAttribute('aria-label', `${t('connection')}: ${words}`)
  const notice = $('notice')
  notice.hidden = state !== 'reconnecting'
  if (!notice.hidden) notice.replaceChildren(h('span', {}, t('ui.lost')))
  if (!greeting) return
  const rows = [[t('ui.program'), greeting.program], [t('ui.local.folder'), nameElement(`/${unwire(greeting.folder)}`)]]
  $('connection-details').replaceChildren(h('h2', {}, words), h('p', {}, t('transport.native')), h('dl.facts', {}, rows.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)])))
}

// Shows why there is nothing more to do here.
function end(key, text = t(`${key}.text`)) {
  if (showState.ended) return
  showState.ended = true
  api?.close?.()
  document.body.dataset.connection = 'closed'
  setText($('connection-text'), t(key))
  $('connection').setAttribute('aria-label', `${t('connection')}: ${t(key)}`)
  document.body.classList.add('signing-in')
  document.body.classList.remove('ready')
  show('files')
  $('files').append(h('div.sign-in', {}, h('div.sheet', { role: 'alert' }, h('h2', {}, t(key)), h('p.lead', {}, text))))
}

async function leave() {
  let answer = await api.call('quit', { force: false }).catch(() => ({ quits: true }))
  if (!answer.quits) {
    const sure = await ask({
      title: t('ui.quit.title'), body: t('ui.quit.running', { transfers: answer.transfers, runs: answer.runs }),
      actions: [{ label: t('ui.quit.do'), value: true, kind: 'danger' }],
    })
    if (!sure) return
    answer = await api.call('quit', { force: true }).catch(() => ({ quits: true }))
  }
  if (answer.quits) end('ui.ended')
}

start().catch(error => {
  console.error(error)
  end('ui.failed', errorText(error))
})
