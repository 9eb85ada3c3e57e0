// The queue of transfers: what runs, waits, failed and is done. Knows nothing of elements.

import { allowed, collect, saveAll, sinkFor } from './local.js'
import { RateHistory } from './plot.js'
import * as store from './store.js'
import { join } from './format.js'

// States of a transfer:
//   waiting      for its turn          running     moving, or comparing what is there
//   paused       by the reader         offline     until the connection is back
//   interrupted  by a reload           needs       the same file or folder, picked again
//   failed       `error` says why      done        `failures` counts files that failed
//   cancelled    by the reader
const OPEN = new Set(['waiting', 'running', 'paused', 'offline', 'interrupted', 'needs'])
const MAX_SOURCES = 500 // of one request; a server takes 1024
const SAVE_EVERY = 2000 // ms
const KNOCK_EVERY = 15 // seconds between attempts while the connection is lost
const FLUSH_AFTER = 100 // ms that a verified file may be known to this page alone
const AVERAGE_OVER = 5 // seconds that the present rate is an average of

export const isOpen = transfer => OPEN.has(transfer.state)

class Transfer {
  constructor(fields) {
    Object.assign(this, {
      id: crypto.randomUUID(), direction: 'up', name: '', more: 0, source: '', destination: '', directory: '', folder: false, state: 'waiting', replace: false,
      created: Date.now(), started: 0, finished: 0, total: 0, count: 0, complete: false, seconds: 0, order: Date.now(),
    }, fields)
    this.files = new Map() // path -> {bytes, total, state, reason, hash, time, present}
    this.bytes = 0 // of all files, with what was there already
    this.moved = 0 // since the transfer began here, for the rate
    this.rate = 0
    this.failures = 0
    this.verified = 0
    this.history = new RateHistory()
    this.error = null
    this.current = null
  }

  get left() {
    return this.rate > 0 && this.complete ? (this.total - this.bytes) / this.rate : undefined
  }

  get average() {
    return this.seconds > 0 ? this.moved / this.seconds : 0
  }

  // What the browser's database keeps.
  record(server) {
    const { id, direction, name, more, folder, directory, source, destination, paths, entries, target, origin, state, replace, created, started, finished, total, count, complete, order } = this
    // Files without handles are not kept: the database would copy their content.
    const kept = origin?.handles ? { handles: origin.handles, names: origin.names } : undefined
    return {
      id, server, direction, name, more, folder, directory, source, destination, paths, entries, target, origin: kept,
      names: origin?.names, state, replace, created, started, finished, total, count, complete, order, bytes: this.bytes, failures: this.failures, error: this.error,
    }
  }

  // Takes one report about a file.
  progress({ file, bytes, total, state, reason, code, hash, present }) {
    let known = this.files.get(file)
    if (!known) {
      known = { bytes: 0, total: 0, state: '', present: 0 }
      this.files.set(file, known)
      if (!this.complete || this.files.size > this.count) this.count = this.files.size
    }
    if (known.state === 'verified' || (known.state === 'failed' && state === 'failed')) return known
    const compared = state === 'hashing' || state === 'failed' ? known.bytes : state === 'verified' ? total : bytes
    // What was there already does not count as moved.
    let there = 0
    if (present !== undefined) {
      there = Math.max(0, present - known.present)
      known.present = Math.max(present, known.present)
    } else if (known.state === 'hashing' && state !== 'hashing') there = compared - known.bytes
    const more = compared - known.bytes
    this.bytes += more
    if (more > there) this.moved += more - there
    if (!this.complete) this.total += total - known.total
    if (known.state === 'failed') this.failures -= 1
    Object.assign(known, { bytes: compared, total, state, reason: state === 'failed' ? reasonOf(reason, code) : undefined })
    if (hash) known.hash = hash
    if (state === 'failed') this.failures += 1
    if (state === 'verified') {
      this.verified += 1
      known.time = Date.now()
    }
    this.current = state === 'hashing' || state === 'moving' ? file : this.current
    return known
  }
}

export class Queue extends EventTarget {
  constructor() {
    super()
    this.transfers = []
    this.session = null
    this.online = false
    this.offlineSeconds = 0
    this.unsaved = new Map()
    this.releases = new Map()
    this.watched = new Set()
    setInterval(() => this.#second(), 1000)
  }

  // Takes the session that the transfers run by, and those that the last page left.
  async use(session) {
    this.session = session
    this.online = true
    await this.restore()
    this.#next()
  }

  // Transfers of another server, or of another share, are none of this session.
  #scope() {
    return this.session.scope ?? this.session.server.fingerprint
  }

  // The connection is there or not; what it interrupted continues by itself.
  setOnline(online) {
    this.online = online
    if (!online) return
    for (const transfer of this.transfers) if (transfer.state === 'offline') this.#set(transfer, 'waiting')
    this.#next()
  }

  // Tries what waits although the connection is lost: a session connects when it is used.
  knock() {
    for (const transfer of this.transfers) if (transfer.state === 'offline') this.#set(transfer, 'waiting')
    this.#next(true)
  }

  // Reads transfers that no other tab has.
  async restore() {
    const records = await store.transfersKept().catch(() => [])
    records.sort((a, b) => a.order - b.order)
    for (const record of records) {
      if (record.server !== this.#scope() || this.find(record.id)) continue
      if (!(await this.#own(record.id))) {
        this.#watch(record.id)
        continue
      }
      const verified = await store.verifiedOf(record.id)
      const transfer = new Transfer(record)
      Object.assign(transfer, { error: record.error, failures: isOpen(record) ? 0 : record.failures })
      for (const { file, size, hash, time } of verified) {
        transfer.files.set(file, { bytes: size, total: size, state: 'verified', hash, time })
        transfer.bytes += size
        transfer.verified += 1
      }
      transfer.bytesKept = record.bytes
      if (isOpen(transfer)) {
        const again = transfer.direction === 'up' ? transfer.origin : transfer.target
        transfer.state = again ? 'interrupted' : 'needs'
      }
      this.transfers.push(transfer)
      this.#emit('added', transfer)
      const handles = transfer.origin?.handles ?? (transfer.target?.kind === 'disk' ? [transfer.target.handle] : [])
      // Where the browser still grants access, nobody needs to be asked.
      if (transfer.state === 'interrupted' && (await allowed(handles, transfer.direction === 'up' ? 'read' : 'readwrite', false)))
        transfer.granted = true
    }
    this.#emit('change')
  }

  find(id) {
    return this.transfers.find(transfer => transfer.id === id)
  }

  async add(fields) {
    const transfer = new Transfer(fields)
    transfer.order = Math.max(Date.now(), ...this.transfers.map(other => other.order + 1))
    this.transfers.push(transfer)
    await this.#own(transfer.id)
    this.#emit('added', transfer)
    this.#save(transfer)
    this.#next()
    return transfer
  }

  pause(transfer) {
    if (transfer.state === 'running') this.#stop(transfer, 'paused')
    else if (transfer.state === 'waiting' || transfer.state === 'offline') this.#set(transfer, 'paused')
  }

  // Continues a transfer that was paused, interrupted or has failed. Must be called within a click,
  // as the browser may have to ask.
  async resume(transfer) {
    const handles = transfer.origin?.handles ?? (transfer.target?.kind === 'disk' ? [transfer.target.handle] : [])
    const mode = transfer.direction === 'up' ? 'read' : 'readwrite'
    if (transfer.direction === 'up' ? !transfer.origin : !transfer.target) return this.#set(transfer, 'needs')
    if (!(await allowed(handles, mode, true))) {
      transfer.error = { code: 'permission' }
      return this.#set(transfer, 'interrupted')
    }
    transfer.error = null
    this.#set(transfer, 'waiting')
    this.#next()
  }

  // Continues with files that were picked again after a reload.
  again(transfer, fields) {
    Object.assign(transfer, fields, { error: null })
    this.#set(transfer, 'waiting')
    this.#next()
  }

  cancel(transfer) {
    if (transfer.state === 'running') this.#stop(transfer, 'cancelled')
    else this.#end(transfer, 'cancelled')
  }

  async remove(transfer) {
    this.transfers = this.transfers.filter(other => other !== transfer)
    this.unsaved.delete(transfer.id)
    this.#removeParts(transfer)
    this.#emit('removed', transfer)
    await store.forgetTransfer(transfer.id).catch(() => {})
    // another tab that waits for it reads what is kept
    this.releases.get(transfer.id)?.()
    this.releases.delete(transfer.id)
  }

  // Removes what the browser's storage has of a download. Not before the entry goes: a browser
  // copies into its download folder in its own time, and what was cancelled may be resumed.
  async #removeParts({ id, direction, target }) {
    if (direction !== 'down' || !target) return
    try {
      await sinkFor(target, id).remove?.()
    } catch {
      // It is not there, or still being read: the browser removes it with the page's data.
    }
  }

  clearFinished() {
    for (const transfer of this.transfers.filter(other => !isOpen(other) && other.state !== 'failed')) this.remove(transfer)
  }

  // Moves a transfer up (-1) or down (1) among those that are not finished.
  move(transfer, step) {
    const open = this.transfers.filter(isOpen)
    const other = open[open.indexOf(transfer) + step]
    if (!other) return
    ;[transfer.order, other.order] = [other.order, transfer.order]
    this.transfers.sort((a, b) => a.order - b.order)
    this.#save(transfer)
    this.#save(other)
    this.#emit('moved', transfer)
    // A waiting transfer that is now before the running one has precedence.
    const [first, second] = step < 0 ? [transfer, other] : [other, transfer]
    if (first.state === 'waiting' && second.state === 'running' && first.direction === second.direction) this.#stop(second, 'waiting')
  }

  #emit(type, transfer) {
    this.dispatchEvent(Object.assign(new Event(type), { transfer }))
  }

  #set(transfer, state) {
    transfer.state = state
    if (state !== 'running') {
      transfer.rate = 0
      transfer.current = null
    }
    this.#save(transfer)
    this.#emit('state', transfer)
  }

  #end(transfer, state) {
    transfer.finished = Date.now()
    this.#flush(transfer)
    this.#set(transfer, state)
  }

  // One upload and one download run at a time: each has the line to itself, and a short one in the
  // other direction need not wait.
  #next(anyway = false) {
    if (!this.online && !anyway) return
    for (const direction of ['up', 'down']) {
      const mine = this.transfers.filter(transfer => transfer.direction === direction)
      if (mine.some(transfer => transfer.state === 'running')) continue
      const next = mine.find(transfer => transfer.state === 'waiting')
      if (next) this.#run(next)
    }
  }

  #stop(transfer, intent) {
    transfer.intent = intent
    transfer.controller.abort(new DOMException(intent, 'AbortError'))
  }

  async #run(transfer) {
    const controller = new AbortController()
    const { signal } = controller
    transfer.controller = controller
    transfer.intent = null
    transfer.error = null
    transfer.started ||= Date.now()
    this.#set(transfer, 'running')
    const onprogress = report => {
      const file = transfer.progress(report)
      if (report.state === 'verified') this.#verified(transfer, report.file, file)
    }
    let end = 'done'
    try {
      const outcome = await (transfer.direction === 'up' ? this.#upload(transfer, signal, onprogress) : this.#download(transfer, signal, onprogress))
      for (const { file: path, reason, code } of outcome?.failed ?? []) {
        const file = path || transfer.name // what could not be listed has no path
        if (transfer.files.get(file)?.state !== 'failed') {
          const known = transfer.files.get(file)
          transfer.progress({ file, bytes: known?.bytes ?? 0, total: known?.total ?? 0, state: 'failed', reason, code })
        }
      }
      const missing = transfer.direction === 'down' && transfer.complete ? transfer.count - transfer.verified - transfer.failures : 0
      if (missing > 0) {
        transfer.failures += missing
        transfer.error = { code: 'incomplete' }
        if (!transfer.verified) end = 'failed'
      } else if (transfer.failures && !transfer.verified) {
        const first = [...transfer.files.values()].find(file => file.state === 'failed')
        transfer.error = first.reason
        end = 'failed'
      }
    } catch (error) {
      if (transfer.intent) end = transfer.intent
      else if (error.code === 'lost') end = 'offline'
      else {
        transfer.error = errorOf(error)
        end = transfer.error.code === 'local-gone' && transfer.direction === 'up' && !transfer.origin?.handles ? 'needs' : 'failed'
      }
    }
    if (end === 'done' || end === 'failed' || end === 'cancelled') this.#end(transfer, end)
    else this.#set(transfer, end)
    if (end === 'offline' && this.online) this.#set(transfer, 'waiting')
    this.#next()
  }

  async #upload(transfer, signal, onprogress) {
    const { files, folders } = await collect(transfer.origin, signal)
    transfer.count = files.length
    transfer.total = files.reduce((sum, { file }) => sum + file.size, 0)
    transfer.complete = true
    this.#retryFailed(transfer)
    const verified = path => transfer.files.get(path)?.state === 'verified'
    for (const folder of folders) await this.#makeFolders(join(transfer.directory, folder))
    const missing = files.filter(({ path }) => !verified(path))
    return this.session.upload(missing, transfer.directory, { signal, onprogress, replace: transfer.replace })
  }

  // Makes a folder without files in it and those above it.
  async #makeFolders(path) {
    const names = path.split('/')
    for (let at = 1; at <= names.length; at += 1) {
      try {
        await this.session.makeDirectory(names.slice(0, at).join('/'))
      } catch (error) {
        if (error.code !== 'exists') throw error
      }
    }
  }

  async #download(transfer, signal, onprogress) {
    this.#retryFailed(transfer)
    const counting = this.#count(transfer, signal)
    const sink = sinkFor(transfer.target, transfer.id)
    const failed = []
    for (let at = 0; at < transfer.paths.length; at += MAX_SOURCES) {
      const outcome = await this.session.download(transfer.paths.slice(at, at + MAX_SOURCES), sink, { signal, onprogress })
      for (const failure of outcome.failed) failed.push(failure)
    }
    await counting
    if (transfer.target.kind === 'browser') {
      saveAll(await sink.result(), transfer.name)
    }
    return { failed }
  }

  // Finds out how much a download is, while it runs.
  async #count(transfer, signal) {
    let total = 0
    let count = 0
    try {
      for (const entry of transfer.entries) {
        if (entry.type === 'file') {
          total += entry.size
          count += 1
        } else if (entry.type === 'directory') {
          const sum = await countBelow(this.session, entry.path, signal)
          total += sum.bytes
          count += sum.files
        }
      }
    } catch {
      return // The transfer itself says what is wrong.
    }
    Object.assign(transfer, { total, count, complete: true })
  }

  #retryFailed(transfer) {
    for (const [path, file] of transfer.files) {
      if (file.state === 'verified') continue
      transfer.bytes -= file.bytes
      transfer.files.delete(path)
    }
    // what is not counted yet grows with what comes
    if (!transfer.complete) transfer.total = transfer.bytes
    transfer.failures = 0
  }

  #verified(transfer, file, { total, hash, time }) {
    const list = this.unsaved.get(transfer.id) ?? []
    if (!list.length) setTimeout(() => this.#flush(transfer), FLUSH_AFTER)
    list.push({ id: transfer.id, file, size: total, hash, time })
    this.unsaved.set(transfer.id, list)
  }

  #flush(transfer) {
    const files = this.unsaved.get(transfer.id)
    if (!files) return
    this.unsaved.delete(transfer.id)
    store.saveVerified(files).catch(() => {})
  }

  #save(transfer) {
    transfer.saved = Date.now()
    if (!this.session) return
    this.#flush(transfer)
    store.saveTransfer(transfer.record(this.#scope())).catch(() => this.#emit('unkept', transfer))
  }

  #second() {
    for (const transfer of this.transfers) {
      if (transfer.state !== 'running') continue
      const moved = transfer.moved - (transfer.movedBefore ?? 0)
      transfer.movedBefore = transfer.moved
      transfer.seconds += 1
      const weight = transfer.seconds < AVERAGE_OVER ? 1 / transfer.seconds : 2 / (AVERAGE_OVER + 1)
      transfer.rate += (moved - transfer.rate) * weight
      transfer.history.add(moved)
      if (Date.now() - transfer.saved > SAVE_EVERY) this.#save(transfer)
    }
    this.#emit('second')
    this.offlineSeconds = this.online || !this.session ? 0 : this.offlineSeconds + 1
    if (this.offlineSeconds % KNOCK_EVERY === KNOCK_EVERY - 1) this.knock()
  }

  // Looks again when the tab that has a transfer is closed or removes it.
  #watch(id) {
    if (this.watched.has(id)) return
    this.watched.add(id)
    navigator.locks
      .request(`headroom-transfer-${id}`, () => {})
      .then(() => {
        this.watched.delete(id)
        return this.restore()
      })
      .catch(() => {})
  }

  // Takes a transfer for this tab, until it is removed or the tab is closed.
  #own(id) {
    if (!navigator.locks) return Promise.resolve(true)
    return new Promise(resolve => {
      navigator.locks
        .request(`headroom-transfer-${id}`, { ifAvailable: true }, lock => {
          resolve(Boolean(lock))
          return lock && new Promise(release => this.releases.set(id, release))
        })
        .catch(() => resolve(true))
    })
  }
}

// Counts the files below a folder and their bytes. An error has what was `counted` until then.
export async function countBelow(session, path, signal, onprogress) {
  const counted = { files: 0, folders: 0, others: 0, bytes: 0 }
  const waiting = [path]
  try {
    while (waiting.length) {
      for await (const batch of session.list(waiting.pop(), { signal })) {
        signal?.throwIfAborted()
        for (const entry of batch) {
          if (entry.type === 'directory') {
            counted.folders += 1
            waiting.push(entry.path)
          } else if (entry.type === 'file') {
            counted.files += 1
            counted.bytes += entry.size
          } else {
            counted.others += 1 // links, which are deleted and not downloaded
          }
        }
        onprogress?.(counted)
      }
    }
  } catch (error) {
    throw Object.assign(new Error(error.message), { code: error.code, counted })
  }
  return counted
}

const CODES = new Set(['unauthorized', 'refused', 'lost', 'changed', 'exists', 'no-space', 'not-found', 'protocol', 'read-only', 'share-ended', 'share-used', 'not-shared', 'superseded'])

// Makes what can be kept and shown of an error: of the session, or of this computer's files.
export function errorOf(error) {
  if (CODES.has(error.code)) return { code: error.code, message: error.message }
  const local = { NotAllowedError: 'permission', SecurityError: 'permission', NotFoundError: 'local-gone', NotReadableError: 'local-gone', QuotaExceededError: 'local-space' }
  return { code: local[error.name] ?? 'unknown', message: error.message }
}

// Makes the same of a file's reason: a text with a code, a code alone, "code: message", or an error.
function reasonOf(reason, given) {
  if (CODES.has(given)) return { code: given, message: String(reason ?? '') }
  if (reason && typeof reason === 'object') return errorOf(reason)
  const [code, ...rest] = String(reason ?? '').split(': ')
  return CODES.has(code) ? { code, message: rest.join(': ') } : { code: 'unknown', message: String(reason ?? '') }
}
