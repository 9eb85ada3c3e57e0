// Downloads from servers that lie: the page's module alone, without a browser and a server.

import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'

const web = new URL('../../../page/web/', import.meta.url)
const protocol = await import(new URL('protocol.js', web))
protocol.initSync({ module: await readFile(new URL('protocol_bg.wasm', web)) })
const { Download } = await import(new URL('download.js', web))
const { Pace } = await import(new URL('pace.js', web))

const MIB = 1 << 20
const bytes = text => new TextEncoder().encode(text)
const file = (id, path, size, content) =>
  ({ type: 'entry', id, path: bytes(path), kind: 'file', size, mode: 0o644, modified: 0, ...(content && { content, hash: protocol.hash(content) }) })
const directory = (id, path) => ({ type: 'entry', id, path: bytes(path), kind: 'directory', modified: 0 })
const end = { type: 'entries-end', files: 0, bytes: 0 }

// Downloads from a server that sends these messages; returns what came of it and which files were open.
async function download(sources, messages) {
  const open = new Map()
  const sink = {
    open(path) {
      assert.ok(!open.has(path), `${path} is opened twice`)
      open.set(path, 'open')
      return { have: () => null, write: () => {}, close: () => open.set(path, 'stored'), abort: () => open.set(path, 'given up') }
    },
  }
  const left = [...messages]
  const link = {
    uni: new ReadableStream().getReader(),
    closed: new Promise(() => {}),
    transport: {},
    request: async () => ({
      reader: { expect: async () => left.shift() ?? new Promise(() => {}) },
      writer: { send: async () => {}, close: () => {} },
    }),
  }
  const result = await new Download(sources, sink, () => {}).run(link, new Pace(), null).catch(error => error.code)
  return { result, open: Object.fromEntries(open) }
}

test('stores what was asked for', async () => {
  const { result, open } = await download(['some/tree', 'small'], [directory(0, 'tree'), file(1, 'tree/a', 3, bytes('abc')), file(2, 'small', 0, bytes('')), end])
  assert.deepEqual(result, { files: 2, failed: [] })
  assert.deepEqual(open, { 'tree/a': 'stored', small: 'stored' })
})

test('takes nothing that was not asked for', async () => {
  for (const path of ['other', 'trees/a', 'a']) {
    const { result, open } = await download(['some/tree'], [directory(0, 'tree'), file(1, path, 3, bytes('abc')), end])
    assert.equal(result, 'protocol', path)
    assert.deepEqual(open, {})
  }
})

test('does not count what the server leaves out', async () => {
  const { result } = await download(['there', 'not there'], [file(0, 'there', 3, bytes('abc')), end])
  assert.equal(result.files, 1)
  assert.deepEqual(result.failed.map(it => [it.file, it.code]), [['not there', 'not-found']])
  const told = await download(['not there'], [{ type: 'unreadable', reason: 'there is no such file', code: 'not-found' }, end])
  assert.deepEqual(told.result.failed.map(it => it.code), ['not-found'])
})

test('writes no hole outside its file or longer than a message may have', async () => {
  for (const [size, offset, length] of [[0, 0, MIB], [5 * MIB, 0, 0], [5 * MIB, 1, MIB], [5 * MIB, 4 * MIB, 2 * MIB], [2 ** 49, 0, 2 ** 49]]) {
    const { result, open } = await download(['a'], [file(0, 'a', size), { type: 'hole', id: 0, offset, length }])
    assert.equal(result, 'protocol', `${size} ${offset} ${length}`)
    assert.deepEqual(open, { a: 'given up' })
  }
})

test('closes what it opened where a server numbers entries again or offers too many', async () => {
  const again = await download(['t'], [file(0, 't/a', MIB), file(0, 't/b', MIB)])
  assert.equal(again.result, 'protocol')
  assert.deepEqual(again.open, { 't/a': 'given up' })
  const many = await download(['t'], Array.from({ length: 100 }, (_, id) => file(id, `t/${id}`, MIB)))
  assert.equal(many.result, 'protocol')
  assert.equal(Object.keys(many.open).length, 64)
  assert.ok(Object.values(many.open).every(it => it === 'given up'))
})

test('stores nothing with another hash', async () => {
  const { result, open } = await download(['a'], [{ ...file(0, 'a', 3, bytes('abc')), hash: protocol.hash(bytes('abd')) }, end])
  assert.deepEqual(result.failed.map(it => it.code), ['changed'])
  assert.deepEqual(open, { a: 'given up' })
})
