// Modules of the page alone, without a browser and a server.

import assert from 'node:assert/strict'
import { test } from 'node:test'

const web = new URL('../../../page/web/', import.meta.url)
const { Link } = await import(new URL('link.js', web))
const { MuxTransport } = await import(new URL('mux.js', web))
const { saveToDirectory } = await import(new URL('sinks.js', web))
const { Pace } = await import(new URL('pace.js', web))

test('a new rate holds for every stream that waits', { timeout: 20_000 }, async () => {
  const pace = new Pace()
  pace.setRate(1)
  await pace.take(3600)
  const waiting = Array.from({ length: 5 }, () => pace.take(3600)) // for hours
  await new Promise(setImmediate) // they have begun to wait
  pace.setRate(null)
  await Promise.all(waiting)
})

// A folder of the reader's, as File System Access has them; its files are `written`, by path.
function folder(written, path = '') {
  return {
    name: path,
    getDirectoryHandle: async name => folder(written, `${path}${name}/`),
    async getFileHandle(name) {
      const key = path + name
      written[key] ??= ''
      const createWritable = async () => new WritableStream({ write: part => { written[key] += new TextDecoder().decode(part) } })
      return { createWritable, getFile: async () => new File(['abc'], name) }
    },
  }
}

test('a download into a folder makes a file when it is verified, not before', async () => {
  globalThis.Worker = class {
    postMessage({ call }) {
      setImmediate(() => this.onmessage({ data: { call, result: { there: 0 } } }))
    }
  }
  Object.defineProperty(globalThis, 'navigator', { value: { storage: { getDirectory: async () => folder({}) } } })
  const written = {}
  const sink = saveToDirectory(folder(written))
  const [failing, arriving] = [await sink.open('tree/failing', 3), await sink.open('tree/arriving', 3)]
  assert.deepEqual(written, {})
  await failing.abort()
  await arriving.close()
  assert.deepEqual(written, { 'tree/arriving': 'abc' })
})

// The error of a page that signs in while the server closes its WebSocket.
async function closed(code, reason = '') {
  let socket
  globalThis.WebSocket = class extends EventTarget {
    constructor() {
      super()
      socket = this
    }
    send() {}
  }
  const link = new Link(new MuxTransport('wss://server/'), 'websocket', {})
  const failing = link.signIn(null).catch(error => link.why(error))
  await new Promise(setImmediate)
  socket.onclose({ code, reason })
  const { code: kind, message } = await failing
  return [kind, message]
}

test('a connection that the server closes ends with what the server said', async () => {
  assert.deepEqual(await closed(4003, 'too many connections'), ['lost', 'too many connections'])
  assert.deepEqual(await closed(4001, 'the server is shutting down'), ['lost', 'the server is shutting down'])
  assert.deepEqual(await closed(4003), ['lost', 'the server has too many connections'])
  // another attempt would take over from the newer one, or fail as well
  assert.equal((await closed(4004))[0], 'superseded')
  assert.equal((await closed(4002))[0], 'protocol')
  assert.deepEqual(await closed(1006), ['lost', 'the connection was lost'])
})
