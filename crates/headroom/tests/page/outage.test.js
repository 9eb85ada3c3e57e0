// The page while the network is down, over a real link.

import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { browser, button, fill, limit, onDisk, plant, select, underway, verified, withServer } from './steps.js'

const OUTAGE = 15_000

withServer('continues both ways after 15 seconds without a network', { network: true }, async server => {
  await plant(server, { 'down.bin': 12_000_000 })
  const page = await server.enter(browser)
  const hash = await fill(page, 'picked.bin', 12_000_000)
  await limit(page, '500 kB/s')
  await button(page, 'Upload files').click()
  await select(page, 'down.bin')
  await button(page, 'Download 1').click()
  await underway(page, 10)
  await server.network.down()
  await sleep(OUTAGE)
  await server.network.up()
  await limit(page, 'None')
  await verified(page, 'picked.bin')
  await verified(page, 'down.bin')
  assert.equal((await onDisk(server.root))['picked.bin'], hash)
  // By the same way as before.
  await page.locator('#connection-text', { hasText: 'Connected by WebTransport' }).waitFor()
  assert.deepEqual(page.errors, [])
})
