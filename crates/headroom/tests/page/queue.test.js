// The queue of transfers over a browser's database and locks, without a browser.

import assert from 'node:assert/strict'
import { test } from 'node:test'

// What the page did to its database and its locks, in order.
const log = []
const kept = { transfers: new Map(), verified: new Map() }

const database = {
  transaction(_, mode) {
    const transaction = {
      objectStore: name => ({
        put: record => kept[name].set(record.id, record),
        getAll: () => ({ result: [...kept[name].values()] }),
        delete: id => kept[name].delete(id),
      }),
    }
    setImmediate(() => {
      log.push(mode)
      transaction.oncomplete()
    })
    return transaction
  },
}

globalThis.window = globalThis
globalThis.setInterval = () => {} // rates are measured as long as the page is open
globalThis.IDBKeyRange = { bound: () => 'range' }
globalThis.indexedDB = {
  open() {
    const request = { result: database }
    setImmediate(() => request.onsuccess())
    return request
  },
}
const locks = {
  async request(name, _, hold) {
    await hold({ name })
    log.push('released')
  },
}
Object.defineProperty(globalThis, 'navigator', { value: { locks } })
const { Queue } = await import(new URL('../../../page/web/transfers.js', import.meta.url))

test('a transfer that is removed is free for other tabs when it is forgotten, not before', async () => {
  const queue = new Queue()
  const transfer = await queue.add({ name: 'a' })
  log.length = 0
  await queue.remove(transfer)
  await new Promise(setImmediate)
  assert.deepEqual(log, ['readwrite', 'released'])
})

test('a folder that was not counted before a reload is counted as it comes', async () => {
  const record = { id: 'b', server: 'scope', direction: 'down', name: 'tree', state: 'running', paths: ['tree'], entries: [{ type: 'directory', path: 'tree' }], target: { kind: 'browser' }, created: 1, order: 1, bytes: 30, failures: 0, error: null }
  kept.transfers.set('b', { ...record, total: 30, count: 3, complete: false })
  kept.transfers.set('c', { ...record, id: 'c', total: 500, count: 5, complete: true, state: 'paused' })
  const queue = new Queue()
  let arrive
  const session = {
    scope: 'scope',
    async *list() {
      await new Promise(() => {})
    },
    download: (paths, sink, { onprogress }) => new Promise(() => (arrive = onprogress)),
  }
  await queue.use(session)
  const [transfer, counted] = [queue.find('b'), queue.find('c')]
  assert.deepEqual([transfer.state, transfer.complete, transfer.total], ['interrupted', false, 30])
  assert.deepEqual([counted.complete, counted.total, counted.count], [true, 500, 5])
  await queue.resume(transfer)
  arrive({ file: 'tree/d', bytes: 10, total: 100, state: 'moving' })
  assert.deepEqual([transfer.bytes, transfer.total, transfer.left], [10, 100, undefined])
  assert.equal(kept.transfers.get('b').complete, false)
})
