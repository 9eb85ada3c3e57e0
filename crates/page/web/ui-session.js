// Speaks with `headroom ui`: calls of its local API, and events over a WebSocket. The token of
// this start is in the fragment of the address that the command opened, which no browser sends.

import { TransferError } from './errors.js'
import { join } from './format.js'

const KEPT = 'headroom.token'
const NO_TOKEN = 4001
const AGAIN = 1000 // ms until the next attempt to connect

// Takes the token out of the address and of this entry of the history; a reload finds it kept.
export function takeToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get('token')
  if (!token) return sessionStorage.getItem(KEPT)
  history.replaceState(null, '', location.pathname)
  sessionStorage.setItem(KEPT, token)
  return token
}

// Writes a path for the API: bytes that are not UTF-8, and `%`, as %XX.
export const wire = path =>
  path.replace(/%/g, '%25').replace(/[\udc80-\udcff]/gu, byte => `%${(byte.charCodeAt(0) - 0xdc00).toString(16).toUpperCase()}`).toWellFormed()

export const unwire = text =>
  text.replace(/%([0-9A-F]{2})/g, (_, digits) => {
    const code = parseInt(digits, 16)
    return String.fromCharCode(code < 0x80 ? code : 0xdc00 + code)
  })

function failure({ code, message, ...more }) {
  return Object.assign(new TransferError(code, message), more)
}

export class Api {
  constructor(token) {
    this.token = token
  }

  async #fetch(name, body, signal) {
    let response
    try {
      response = await fetch(`api/${name}`, {
        method: 'POST', headers: { Authorization: `Bearer ${this.token}`, 'Content-Type': 'application/json' },
        body: JSON.stringify(body), signal, cache: 'no-store', credentials: 'omit',
      })
    } catch (error) {
      if (signal?.aborted) throw error
      throw new TransferError('lost', 'headroom ui does not answer')
    }
    if (response.ok) return response
    const failed = await response.json().catch(() => ({ code: 'refused', message: `headroom ui answers ${response.status}` }))
    throw failure(failed)
  }

  async call(name, body = {}, { signal } = {}) {
    return (await this.#fetch(name, body, signal)).json()
  }

  async bytes(name, body, { signal } = {}) {
    return new Uint8Array(await (await this.#fetch(name, body, signal)).arrayBuffer())
  }

  // Calls, and returns the answer's lines as they arrive.
  async *lines(name, body, { signal } = {}) {
    const response = await this.#fetch(name, body, signal)
    let rest = ''
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
    try {
      for (;;) {
        const { value, done } = await reader.read()
        if (done) return
        const parts = (rest + value).split('\n')
        rest = parts.pop()
        for (const part of parts) {
          const message = JSON.parse(part)
          if (message.error) throw failure(message.error)
          yield message
        }
      }
    } finally {
      reader.cancel().catch(() => {})
    }
  }

  // Receives events as long as the page is open. `onstate` hears connected, reconnecting, refused.
  listen(onmessage, onstate) {
    const connect = () => {
      const socket = new WebSocket(`ws://${location.host}/api/events`)
      socket.onopen = () => socket.send(JSON.stringify({ token: this.token }))
      socket.onmessage = ({ data }) => {
        onstate('connected')
        onmessage(JSON.parse(data))
      }
      socket.onclose = ({ code }) => {
        if (this.ended) return
        if (code === NO_TOKEN) return onstate('refused')
        onstate('reconnecting')
        setTimeout(connect, AGAIN)
      }
      this.close = () => {
        this.ended = true
        socket.close()
      }
    }
    connect()
  }
}

// This machine or a server, with the interface that panes and the preview use.
export class PlaceSession {
  constructor(api, place, server) {
    Object.assign(this, { api, place, server: { root: '/', readOnly: false, ...server } })
  }

  async *list(path, { signal } = {}) {
    for await (const { entries } of this.api.lines('list', { place: this.place, path: wire(path) }, { signal })) {
      yield entries.map(entry => {
        const name = unwire(entry.name)
        return { ...entry, name, path: join(path, name), target: entry.target ? unwire(entry.target) : undefined }
      })
    }
  }

  makeDirectory(path) {
    return this.api.call('make-directory', { place: this.place, path: wire(path) })
  }

  rename(from, to) {
    return this.api.call('rename', { place: this.place, from: wire(from), to: wire(to) })
  }

  remove(path, { recursive = false } = {}) {
    return this.api.call('remove', { place: this.place, path: wire(path), recursive })
  }

  read(path, { offset = 0, length, signal } = {}) {
    return this.api.bytes('read', { place: this.place, path: wire(path), offset, length }, { signal })
  }

  // Gives a whole file to a sink, for previews.
  async download(path, sink, { signal } = {}) {
    const bytes = await this.read(path, { length: 26 << 20, signal })
    const file = await sink.open(path, bytes.length)
    file.write(0, bytes)
    file.close()
    return { failed: [] }
  }
}
