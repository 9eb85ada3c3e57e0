// Starts the page: connection, sign-in, address, and what joins panes and transfers.

import { ask, tell } from './dialogs.js'
import { baseName, duration, h, icon, join, percent, quoted, setText, visible } from './format.js'
import { chooseTarget, keepsHandles, topNames } from './local.js'
import { addressOf, errorText, Pane, pathOf } from './pane.js'
import { Panel } from './panel.js'
import { Preview } from './preview.js'
import { open } from './session.js'
import { applyTheme, offerSettings, toggle } from './settings.js'
import { showShared, shareEntry, showShares } from './shares.js'
import { signIn } from './signin.js'
import { keepSetting, setting } from './store.js'
import { loadLanguage, t } from './texts.js'
import { errorOf, isOpen, Queue } from './transfers.js'

const $ = id => document.getElementById(id)
const SHARE = 'headroom.share' // of this tab: the secret of its share link
const INVITE = 'headroom.invite' // and of its invitation, until the server has answered
const QUARTERS = 4 // how often a screen reader hears of progress

let session
let connection = { state: 'connecting' }
let pane
let panel
let preview
const queue = new Queue()

async function start() {
  $('unstarted').remove()
  applyTheme()
  await loadLanguage(setting('language'))
  const secrets = takeSecrets()
  pane = new Pane($('files'))
  panel = new Panel($('transfers'), queue)
  preview = new Preview($('preview'))
  connectParts()
  showState(connection)
  try {
    session = await open({ onstate: showState })
    $('server').textContent = visible(session.server.name)
    await enter(secrets)
  } catch (error) {
    refuse(error)
    return
  }
  document.body.classList.add('ready')
  preview.use(session)
  pane.use(session)
  pane.translate()
  await queue.use(session)
  panel.applyLimit()
  panel.arrange()
  showDetails()
  $('shares-button').hidden = !session.mayShare
  if (session.listed && !session.share) keepSetting('own', true)
  showShared($('shared'), session, () => pane.downloadAll(), setting('own') ? leaveShare : undefined)
  await route(secrets.path)
}

// Takes the secret of an invitation or a share out of the address and of this entry of the history, so that
// it is neither read over a shoulder nor found later.
function takeSecrets() {
  const parameters = new URLSearchParams(location.hash.slice(1))
  const [invite, shown] = [parameters.get('invite'), parameters.get('share')]
  if (shown) {
    sessionStorage.removeItem(INVITE)
    sessionStorage.setItem(SHARE, shown)
  } else if (invite) {
    sessionStorage.removeItem(SHARE)
    sessionStorage.setItem(INVITE, invite)
  }
  if (invite || shown) history.replaceState({ path: '' }, '', location.pathname)
  // A tab that was opened by a share link stays the share's when it is reloaded.
  const kept = { share: sessionStorage.getItem(SHARE), invite: sessionStorage.getItem(INVITE) }
  return { ...kept, path: history.state?.path ?? pathOf(location.hash) }
}

async function enter({ invite, share }) {
  if (session.authorized && !invite && !share) return
  try {
    await session.signIn({ invite, share })
    sessionStorage.removeItem(INVITE)
  } catch (error) {
    if (error.code !== 'lost') sessionStorage.removeItem(INVITE)
    if (share || (error.code !== 'unauthorized' && error.code !== 'invitation')) throw error
    const reason = invite ? t('sign.invite-refused') : undefined
    document.body.classList.add('signing-in')
    await signIn($('files'), session, reason)
    document.body.classList.remove('signing-in')
  }
}

// Shows the server again as this browser's own key may see it.
function leaveShare() {
  sessionStorage.removeItem(SHARE)
  location.replace(location.pathname)
}

function refuse(error) {
  showState({ state: 'refused' })
  document.body.classList.add('signing-in')
  $('files').append(h('div.sign-in', {}, h('div.sheet', { role: 'alert' }, h('h2', {}, t('refused.title')), h('p.lead', {}, errorText(error)),
    h('div.actions', {}, h('button.primary', { type: 'button', onclick: () => location.reload() }, t('retry')),
      sessionStorage.getItem(SHARE) && setting('own') ? h('button', { type: 'button', onclick: leaveShare }, t('shared.leave')) : ''))))
}

// --- the connection, in words

const wordsOf = ({ state, transport }) => t(state === 'connected' ? `connected.${transport ?? session?.transport}` : `connection.${state}`)

function showState(state) {
  const before = connection.state
  connection = { ...state, transport: state.transport ?? session?.transport }
  document.body.dataset.connection = state.state
  setText($('connection-text'), wordsOf(connection))
  $('connection').setAttribute('aria-label', `${t('connection')}: ${wordsOf(connection)}`)
  if (session) queue.setOnline(state.state === 'connected')
  if (before === 'reconnecting' && state.state === 'connected') {
    say(t('connection.back'))
    if (pane.session) pane.refresh()
  }
  if (before !== state.state && state.state === 'reconnecting') say(t('connection.lost'))
  showNotice()
  showDetails()
}

// A line below the header for what the reader should know, with the time until the next attempt.
function showNotice() {
  const notice = $('notice')
  const { state, retryAt, transport, reason } = connection
  let text = ''
  if (state === 'reconnecting') {
    const seconds = Math.ceil(((retryAt ?? 0) - Date.now()) / 1000)
    text = seconds > 0 ? t('reconnecting.in', { time: duration(seconds) }) : t('reconnecting.now')
    if (reason) text += ` (${visible(reason)})`
    clearTimeout(showNotice.timer)
    showNotice.timer = setTimeout(showNotice, 1000)
  } else if (state === 'refused' && session) text = reason ? `${t('connection.refused')}: ${visible(reason)}` : t('connection.refused')
  else if (state === 'closed') text = t('connection.closed')
  else if (state === 'connected' && transport === 'websocket' && !showNotice.read) text = t(connection.avoidsUdp ? 'udp-avoided' : 'udp-blocked')
  notice.hidden = !text
  const dismissible = state === 'connected'
  if (notice.dataset.text === text) return
  notice.dataset.text = text
  notice.replaceChildren(h('span', {}, text), dismissible && text ? h('button.bare', { type: 'button', title: t('close'), 'aria-label': t('close'), onclick: () => {
    showNotice.read = true
    showNotice()
  } }, icon('close')) : '')
}

function showDetails() {
  const details = $('connection-details')
  if (!session) {
    details.replaceChildren(h('p', {}, wordsOf(connection)))
    return
  }
  const { server, key } = session
  const rows = [
    [t('server'), visible(server.name)],
    [t('server.folder'), visible(server.root ?? '/')],
    [t('server.rights'), t(server.readOnly ? 'rights.read' : 'rights.write')],
    [t('key.server'), h('code', {}, server.fingerprint)],
    ...(key ? [[t('key.yours'), h('code', {}, key.fingerprint)]] : []),
  ]
  details.replaceChildren(
    h('h2', {}, wordsOf(connection)), h('p', {}, t(`transport.${connection.avoidsUdp ? 'avoided' : connection.transport ?? 'webtransport'}`)),
    h('dl.facts', {}, rows.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)])),
  )
}

// --- the address

async function route(path, reveal) {
  document.title = titleOf(path)
  pane.use(session)
  await pane.show(path, reveal)
}

// Tells a screen reader where it is.
function sayPlace() {
  say(`${pane.path ? quoted(baseName(pane.path)) : t('root')}: ${pane.sum.textContent}`)
}

const titleOf = path => `${path ? visible(baseName(path)) : visible(session.server.name)} · Headroom`

function navigate(path) {
  history.pushState({ path }, '', addressOf(path))
  route(path).then(sayPlace)
  pane.grid.focus()
}

// --- panes, transfers, preview

function connectParts() {
  pane.addEventListener('navigate', ({ path }) => navigate(path))
  pane.addEventListener('preview', ({ entry }) => {
    preview.show(entry)
    document.body.classList.add('previewing')
  })
  pane.addEventListener('said', ({ text }) => say(text))
  pane.addEventListener('download', ({ entries }) => startDownload(entries))
  pane.addEventListener('share', ({ entry }) => shareEntry(session, entry))
  pane.addEventListener('upload', ({ origin, folder, entries }) => startUpload(origin, folder, entries))
  preview.addEventListener('download', ({ entry }) => startDownload([entry]))
  preview.addEventListener('close', () => {
    document.body.classList.remove('previewing')
    pane.grid.focus()
  })
  panel.chooseTarget = async transfer => {
    const target = await chooseTarget(transfer.entries).catch(error => tell(t('pick.failed'), errorText(error)))
    if (target) queue.again(transfer, { target, destination: placeOf(target) })
  }
  queue.addEventListener('state', ({ transfer }) => reportState(transfer))
  queue.addEventListener('second', showProgress)
  queue.addEventListener('unkept', () => say(t('unkept')))
  for (const type of ['added', 'state', 'removed', 'change']) queue.addEventListener(type, showCount)
  for (const button of document.querySelectorAll('.tabs button')) button.addEventListener('click', () => view(button.dataset.view))
  view('files')
  $('skip').addEventListener('click', event => {
    event.preventDefault()
    pane.grid.focus()
  })
  $('help-button').addEventListener('click', help)
  $('shares-button').addEventListener('click', () => showShares(session, say))
  offerSettings({
    translate: () => {
      pane.translate()
      panel.translate()
      showState(connection)
    },
    more: () => [toggle('awake', keepAwake), ...(window.Notification ? [toggle('notify', askToNotify)] : [])],
  })
  // A link that is opened in this tab is one for a new page.
  addEventListener('hashchange', () => /^#(invite|share)=/.test(location.hash) && location.reload())
  addEventListener('popstate', event => session && !/^#(invite|share)=/.test(location.hash) && route(event.state?.path ?? pathOf(location.hash)))
  addEventListener('beforeunload', event => {
    // Where the browser keeps handles, the next page continues: nothing is lost.
    const lost = transfer => isOpen(transfer) && transfer.direction === 'up' && !transfer.origin?.handles
    if (!keepsHandles && queue.transfers.some(lost)) event.preventDefault()
  })
  addEventListener('keydown', event => {
    if (event.target.closest?.('input, textarea, select, dialog') || event.ctrlKey || event.metaKey || event.altKey) return
    if (event.key === '?') help()
    else if (event.key === '/') pane.filter.focus()
    else return
    event.preventDefault()
  })
  addEventListener('online', () => session && queue.knock())
  // A drop beside the pane would leave the page.
  for (const type of ['dragover', 'drop']) addEventListener(type, event => event.preventDefault())
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) return
    keepAwake()
    if (session) queue.restore() // what another tab had and has closed
  })
  addEventListener('focus', () => {
    if (session && !queue.transfers.some(transfer => transfer.state === 'running')) document.title = titleOf(pane.path)
  })
}

function view(name) {
  document.body.dataset.view = name
  for (const button of document.querySelectorAll('.tabs button')) {
    if (button.dataset.view === name) button.setAttribute('aria-current', 'page')
    else button.removeAttribute('aria-current')
  }
  panel.plots() // a plot that was not seen had no size
}

const onServer = path => `${session.server.name}:/${path}`
const placeOf = target => (target.kind === 'disk' ? join(t('this-computer'), target.handle.name) : t(target.archive ? 'downloads.tar' : 'downloads'))

async function startDownload(entries) {
  if (!entries.length) return
  let target
  try {
    target = await chooseTarget(entries)
    if (!target) return
    const there = target.handle?.kind === 'directory' ? await existing(target.handle, entries) : []
    if (there.length && !(await ask({
      title: t('exists.title', { n: there.length, name: quoted(there[0]) }), body: t('exists.here'),
      actions: [{ label: t('replace'), value: true, kind: 'primary' }],
    }))) return
  } catch (error) {
    tell(t('pick.failed'), errorText(error))
    return
  }
  await queue.add({
    direction: 'down', name: entries[0].name, more: entries.length - 1, paths: entries.map(entry => entry.path),
    entries: entries.map(({ name, path, type, size }) => ({ name, path, type, size })), target,
    source: onServer(entries.length === 1 ? entries[0].path : pane.path), destination: placeOf(target),
  })
  offerNotification()
}

// Names which of the entries a folder of this computer has already.
async function existing(folder, entries) {
  const names = new Set()
  for await (const name of folder.keys()) names.add(name)
  return entries.filter(entry => names.has(entry.name)).map(entry => entry.name)
}

async function startUpload(origin, folder, entries) {
  const tops = topNames(origin)
  if (!tops.length) return
  const taken = new Map(entries.map(entry => [entry.name, entry]))
  const collisions = tops.filter(top => taken.has(top.name))
  // who sends by a share link sees nothing, and meets only files of their own
  let replace = Boolean(session.share?.write)
  if (collisions.length) {
    const merged = collisions.every(top => top.folder && taken.get(top.name).type === 'directory')
    const answer = await ask({
      title: t('exists.title', { n: collisions.length, name: quoted(collisions[0].name) }),
      body: t(merged ? 'exists.folders' : 'exists.there'),
      actions: [
        { label: t('replace'), value: 'replace', kind: 'primary' },
        { label: t('keep-both'), value: 'both' },
        ...(tops.length > collisions.length ? [{ label: t('leave-out', { n: collisions.length }), value: 'skip' }] : []),
        ...(merged ? [{ label: t('add-missing'), value: 'merge' }] : []),
      ],
    })
    if (!answer) return
    replace = answer === 'replace'
    if (answer === 'both' || answer === 'skip') {
      origin.names = new Map()
      for (const { name, folder: isFolder } of collisions) origin.names.set(name, answer === 'skip' ? null : freeName(name, isFolder, taken))
    }
  }
  const kept = tops.filter(top => origin.names?.get(top.name) !== null)
  await queue.add({
    direction: 'up', origin, names: origin.names, directory: folder, folder: tops.some(top => top.folder), replace,
    name: origin.names?.get(kept[0].name) ?? kept[0].name, more: kept.length - 1, source: t('this-computer'), destination: onServer(folder),
  })
  offerNotification()
}

// Returns "name (2).txt", or the first number that is free.
function freeName(name, isFolder, taken) {
  const dot = isFolder ? -1 : name.lastIndexOf('.')
  const [stem, extension] = dot > 0 ? [name.slice(0, dot), name.slice(dot)] : [name, '']
  let number = 2
  while (taken.has(`${stem} (${number})${extension}`)) number += 1
  taken.set(`${stem} (${number})${extension}`, null)
  return `${stem} (${number})${extension}`
}

// --- what the page tells beside itself

function say(text) {
  $('live').textContent = text
}

function reportState(transfer) {
  const { state } = transfer
  const name = quoted(transfer.name)
  keepAwake()
  if (state === 'running') {
    if (!transfer.told) say(t(transfer.direction === 'up' ? 'say.up' : 'say.down', { name }))
    transfer.told ??= 0
    return
  }
  if (['paused', 'cancelled', 'offline'].includes(state)) say(t('say.state', { name, state: t(`state.${state}`) }))
  if (state !== 'done' && state !== 'failed') return
  const good = state === 'done' && !transfer.failures
  const text = good ? t('say.done', { name }) : t('say.failed', { name })
  say(text)
  if (!queue.transfers.some(other => ['running', 'waiting'].includes(other.state))) document.title = `${good ? '✓' : '!'} ${text} · Headroom`
  if (document.hidden && setting('notify') && window.Notification?.permission === 'granted') {
    new Notification(text, { body: transfer.destination, icon: 'icon.svg', tag: transfer.id }).onclick = () => window.focus()
  }
  if (transfer.direction === 'up' && transfer.directory === pane.path) pane.refreshSoon()
}

function showProgress() {
  const totals = panel.totals()
  if (!totals.running) return
  document.title = `${totals.total ? `${percent(totals.bytes, totals.total)} · ` : ''}${titleOf(pane.path)}`
  for (const transfer of queue.transfers) {
    if (transfer.state !== 'running' || !transfer.complete || !transfer.total) continue
    const quarter = Math.min(QUARTERS - 1, Math.floor((transfer.bytes / transfer.total) * QUARTERS))
    // Short ones end before anybody wants to hear of quarters.
    if (quarter > (transfer.told ?? 0) && transfer.seconds > 10) say(t('say.percent', { name: quoted(transfer.name), percent: percent(quarter, QUARTERS) }))
    transfer.told = Math.max(quarter, transfer.told ?? 0)
  }
}

function showCount() {
  const open = queue.transfers.filter(isOpen).length
  $('count').textContent = open || ''
  document.body.classList.toggle('transferring', queue.transfers.length > 0)
}

// Asks once, when the first transfer has begun, and only if the browser has no answer yet.
function offerNotification() {
  if (window.Notification?.permission !== 'default' || setting('notify') || offerNotification.done) return
  offerNotification.done = true
  const offer = h('p.offer', {}, h('button.quiet', { type: 'button', onclick: async () => {
    keepSetting('notify', (await Notification.requestPermission()) === 'granted')
    offer.remove()
    panel.limit.focus()
  } }, t('notify.offer')))
  panel.root.querySelector('.panel-head').append(offer)
}

// Asks the browser to allow notifications that a setting wants.
async function askToNotify(element) {
  if (element.checked && Notification.permission !== 'granted') element.checked = (await Notification.requestPermission()) === 'granted'
  keepSetting('notify', element.checked)
}

let lock
async function keepAwake() {
  const wanted = setting('awake') && queue.transfers.some(transfer => transfer.state === 'running')
  if (!wanted) {
    lock?.release()
    lock = null
  } else if (!document.hidden && (!lock || lock.released)) {
    lock = await navigator.wakeLock?.request('screen').catch(() => null)
  }
}

// --- help

function help() {
  const keys = [['↑ ↓', 'help.move'], ['⏎', 'help.open'], ['⌫', 'help.up'], ['␣', 'help.select'], ['⇧ ↑ ↓', 'help.extend'], [t('help.ctrl-a'), 'help.all'], ['F2', 'help.rename'],
    [t('help.del'), 'help.delete'], ['/', 'help.filter'], ['a–z', 'help.type'], ['Esc', 'help.escape'], ['?', 'help.title']]
  ask({ title: t('help.title'), body: h('dl.keys', {}, keys.flatMap(([key, text]) => [h('dt', {}, h('kbd', {}, key)), h('dd', {}, t(text))])) })
}

start().catch(error => refuse(errorOf(error)))
