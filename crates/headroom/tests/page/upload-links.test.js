// How many connections an upload gets, over links that carry more or less on each.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { UploadLinks } from '../../../page/web/upload-links.js'

const PIECE = 512 << 10

// A server of connections that carry `each` bytes per millisecond, and `all` together. It tells
// what has arrived every 50 ms, by the clock: a slow machine sees the same rates.
class Network {
  links = []
  #since = performance.now()

  constructor(each, all) {
    this.timer = setInterval(() => {
      const elapsed = performance.now() - this.#since
      this.#since += elapsed
      const rate = Math.min(each, all / this.links.length)
      for (const link of this.links) {
        link.arrived = Math.min(link.sent, link.arrived + rate * elapsed)
        link.tell({ type: 'arrived', bytes: link.arrived, streams: Math.floor(link.arrived / PIECE) })
      }
    }, 50)
  }

  connect() {
    const link = { sent: 0, arrived: 0, streams: 0, closed: new Promise(() => {}), tell: () => {}, close: () => {} }
    link.transport = {
      createUnidirectionalStream: async () => {
        link.streams++
        assert.ok(link.streams - Math.floor(link.arrived / PIECE) <= 16, 'the server allows 16 streams')
        link.sent += PIECE
        return { getWriter: () => ({ abort: async () => {} }) }
      },
    }
    this.links.push(link)
    return link
  }

  join() {
    const link = this.connect()
    const messages = []
    let wake = () => {}
    link.tell = message => { messages.push(message); wake() }
    const reader = {
      next: async () => {
        while (messages.length === 0) await new Promise(resolve => { wake = resolve })
        return messages.shift()
      },
    }
    return Promise.resolve({ link, reader })
  }
}

// Uploads until it has had time to get all its connections; returns how many it has.
async function connections(each, all) {
  const network = new Network(each, all)
  const first = network.connect()
  const links = new UploadLinks(first, () => network.join(), () => assert.fail('lost'))
  first.tell = message => links.arrived(message)
  let ended = false
  const sending = (async () => {
    while (!ended) await links.open(PIECE)
  })()
  await links.grow({ isHeld: false })
  ended = true
  links.end()
  await sending
  clearInterval(network.timer)
  return network.links.length
}

test('an upload gets more connections where each carries little', async () => {
  assert.equal(await connections(600, 12_000), 16)
})

test('an upload gets no more connections than help', async () => {
  assert.equal(await connections(12_000, 12_000), 4)
  assert.equal(await connections(100_000, 100_000), 4)
})

test('an upload without other connections goes on with one', async () => {
  const network = new Network(600, 600)
  const first = network.connect()
  const links = new UploadLinks(first, undefined, () => assert.fail('lost'))
  await links.grow({ isHeld: false })
  for (let piece = 0; piece < 2; piece++) await links.open(PIECE)
  links.end()
  clearInterval(network.timer)
  assert.equal(network.links.length, 1)
})

test('streams that were given up leave no room for more than the server allows', async () => {
  const link = { closed: new Promise(() => {}) }
  link.transport = { createUnidirectionalStream: async () => ({ getWriter: () => ({ abort: async () => {} }) }) }
  const links = new UploadLinks(link, undefined, () => assert.fail('lost'))
  for (let given = 1; given <= 20; given++) {
    const { abort } = await links.open(1)
    links.arrived({ bytes: given, streams: given })
    abort()
    links.arrived({ bytes: given, streams: given })
  }
  let opened = 0
  const opening = (async () => {
    for (; opened < 40; opened++) await links.open(1)
  })()
  await new Promise(resolve => setTimeout(resolve, 100))
  assert.equal(opened, 12)
  links.end()
  await opening
})
