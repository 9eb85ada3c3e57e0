// The transfers of `headroom ui`, which run in the command: a copy of its list, with the interface
// that the panel uses.

import { unwire } from './ui-session.js'

export class CommandQueue extends EventTarget {
  constructor(api) {
    super()
    this.api = api
    this.transfers = []
    this.known = new Map()
    this.limit = undefined
    this.servers = new Map()
    this.session = { setRate: rate => this.#call('limit', { rate }) }
    this.reads = new Map()
    setInterval(() => this.#emit('second'), 1000)
  }

  // Takes what the command says of its transfers.
  take({ order, limit, changed }) {
    const events = []
    for (const state of changed) {
      const known = this.known.get(state.id)
      const transfer = known ?? { origin: true, target: true, files: new Map(), bytesKept: 0 }
      const before = transfer.state
      fill(transfer, state)
      if (!known) this.known.set(state.id, transfer)
      if (known && before !== transfer.state) events.push(['state', transfer, before])
      if (!known) events.push(['added', transfer, this.limit === undefined ? undefined : 'new'])
    }
    const wanted = order.map(id => this.known.get(id)).filter(Boolean)
    const moved = wanted.length !== this.transfers.length || wanted.some((transfer, at) => transfer !== this.transfers[at])
    for (const id of this.known.keys()) if (!order.includes(id)) this.known.delete(id)
    this.transfers = wanted
    if (moved) events.push(['change'])
    for (const [type, transfer, before] of events) this.#emit(type, transfer, before)
    if (limit !== this.limit) {
      this.limit = limit
      this.#emit('limit')
    }
  }

  #emit(type, transfer, before) {
    this.dispatchEvent(Object.assign(new Event(type), { transfer, before }))
  }

  #call(name, body) {
    return this.api.call(name, body).catch(error => this.dispatchEvent(Object.assign(new Event('failed'), { error })))
  }

  #control(transfer, action) {
    return this.#call('transfer', { id: transfer.id, action })
  }

  pause(transfer) {
    this.#control(transfer, 'pause')
  }

  resume(transfer) {
    this.#control(transfer, 'resume')
  }

  again(transfer) {
    this.resume(transfer)
  }

  cancel(transfer) {
    this.#control(transfer, 'cancel')
  }

  remove(transfer) {
    this.#control(transfer, 'remove')
  }

  move(transfer, step) {
    this.#control(transfer, step < 0 ? 'earlier' : 'later')
  }

  clearFinished() {
    this.#call('clear', {})
  }

  // Reads which files a transfer has stored; at most every second while somebody looks.
  async readFiles(transfer, { all = false } = {}) {
    const last = this.reads.get(transfer.id)
    const version = `${transfer.state} ${transfer.verified} ${transfer.failures}`
    if (!all && last && (last.version === version || Date.now() - last.at < 1000)) return
    this.reads.set(transfer.id, { at: Date.now(), version })
    const { stored, failed } = await this.api.call('files', { id: transfer.id, all }).catch(() => ({ stored: [], failed: [] }))
    transfer.files.clear()
    for (const { reason, code } of failed) transfer.files.set(reason, { state: 'failed', bytes: 0, total: 0, reason: { code, message: reason } })
    for (const { path, time, size, hash } of stored) transfer.files.set(unwire(path), { state: 'verified', bytes: size ?? 0, total: size ?? 0, hash, time })
  }

  // The server of a transfer, for its receipt: its key is proved by the connection.
  sessionOf(transfer) {
    const server = this.servers.get(transfer.server)
    return { transport: 'native', key: null, server: { name: server?.name ?? transfer.server, fingerprint: server?.fingerprint ?? null, proved: true } }
  }
}

// Puts what the command says into the fields that the panel shows.
function fill(transfer, state) {
  const { error, bytes, total, failed, verified, files, current, history } = state
  Object.assign(transfer, state, {
    bytes: Math.min(bytes, total || bytes), count: files, verified, failures: failed,
    error: error && { code: error.code, message: error.message },
    current: current && unwire(current),
    left: state.rate > 0 && state.complete ? Math.max(0, total - bytes) / state.rate : undefined,
    files: transfer.files, history,
  })
}
