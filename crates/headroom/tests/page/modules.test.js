// Modules of the page alone, without a browser and a server.

import assert from 'node:assert/strict'
import { test } from 'node:test'

const web = new URL('../../../page/web/', import.meta.url)
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
