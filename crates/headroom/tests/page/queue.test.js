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
