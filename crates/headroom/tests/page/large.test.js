// A large file, dropped on the page and fetched again, and the memory of the tab meanwhile.
// PAGE_LARGE_MIB sets its size.

import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { open, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { row } from './browser.js'
import { browser, button, drop, select, verified, withServer } from './steps.js'

const MIB = Number(process.env.PAGE_LARGE_MIB ?? 256)
// What the tab may need more than before: pieces that wait and what the browser buffers, not the file.
const MAX_MORE = 160 << 20

// Writes a file of which each MiB differs.
async function make(path) {
  const file = await open(path, 'w')
  const block = randomBytes(1 << 20)
  for (let at = 0; at < MIB; at++) {
    block.writeUInt32LE(at, 0)
    await file.write(block)
  }
  await file.close()
}

async function hashOf(path) {
  const hash = createHash('sha256')
  await pipeline(createReadStream(path), hash)
  return hash.digest('hex')
}

// Returns the anonymous memory of the browser's renderers, in bytes.
async function memory(session) {
  let bytes = 0
  for (const { id, type } of (await session.send('SystemInfo.getProcessInfo')).processInfo) {
    if (type !== 'renderer') continue
    const status = await readFile(`/proc/${id}/status`, 'utf8').catch(() => '')
    bytes += Number(status.match(/RssAnon:\s+(\d+) kB/)?.[1] ?? 0) * 1024
  }
  return bytes
}

// Does something, and returns how much more memory it needed, and how long it took.
async function watched(session, work) {
  const before = await memory(session)
  const start = performance.now()
  let most = 0
  let done = false
  const watching = (async () => {
    while (!done) {
      most = Math.max(most, (await memory(session)) - before)
      await new Promise(resolve => setTimeout(resolve, 100))
    }
  })()
  await work().finally(() => (done = true))
  await watching
  return { most, seconds: (performance.now() - start) / 1000 }
}

withServer(`sends and fetches ${MIB} MiB in little memory`, { timeout: 600_000 }, async server => {
  const source = join(server.home, 'large.bin')
  await make(source)
  const page = await server.enter(browser)
  page.context().setDefaultTimeout(500_000)
  const session = await browser.newBrowserCDPSession()
  const up = await watched(session, async () => {
    await drop(page, [source])
    await verified(page, 'large.bin')
  })
  await row(page, 'large.bin').waitFor()
  const [hash, arrived] = await Promise.all([hashOf(source), hashOf(join(server.root, 'large.bin'))])
  assert.equal(arrived, hash)
  const down = await watched(session, async () => {
    await select(page, 'large.bin')
    await button(page, 'Download 1').click()
    await page.locator('.done .card').nth(1).getByText(/Verified at/).waitFor()
  })
  const size = await page.evaluate(async () => (await (await (await navigator.storage.getDirectory()).getFileHandle('large.bin')).getFile()).size)
  assert.equal(size, MIB << 20)
  for (const [way, { most, seconds }] of Object.entries({ up, down })) {
    console.log(`${way}: ${MIB} MiB in ${seconds.toFixed(1)} s, ${(most / (1 << 20)).toFixed(0)} MiB more memory`)
    assert.ok(most < MAX_MORE, `${way}: ${most} bytes more`)
  }
  assert.deepEqual(page.errors, [])
})
