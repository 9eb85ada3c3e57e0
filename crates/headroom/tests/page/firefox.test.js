// The page in Firefox, from the real server.

import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { launchFirefox, row } from './browser.js'
import { Server } from './server.js'
import { button, limit, onDisk, plant, select, underway, verified } from './steps.js'

let firefox
before(async () => (firefox = await launchFirefox()))
after(() => firefox?.close())

test('signs in, lists, previews, sends and fetches in Firefox', { timeout: 240_000 }, async () => {
  const server = await Server.start({})
  try {
    await plant(server, { 'hello.txt': 'hello', 'down.bin': 8_000_000, 'tree/a': 'a', 'tree/Grüße.txt': 'Grüße' })
    const outside = join(server.home, 'outside')
    await mkdir(outside)
    await writeFile(join(outside, 'up.bin'), randomBytes(8_000_000))
    const page = await server.enter(firefox, { pickers: false })
    await row(page, 'hello.txt').waitFor()
    await page.getByText('Sent over TCP, as Firefox’s WebTransport is not reliable').waitFor()
    await page.locator('.filename', { hasText: 'hello.txt' }).click()
    await page.locator('#preview pre', { hasText: 'hello' }).waitFor()
    await page.keyboard.press('Escape')

    const choosing = page.waitForEvent('filechooser')
    await button(page, 'Upload files').click()
    await (await choosing).setFiles(join(outside, 'up.bin'))
    await verified(page, 'up.bin')
    assert.equal((await onDisk(server.root))['up.bin'], (await onDisk(outside))['up.bin'])

    await limit(page, '1.00 MB/s')
    await select(page, 'down.bin')
    await button(page, 'Download 1').click()
    await underway(page, 10)
    await server.kill()
    await page.getByText(/^Connection lost/).first().waitFor()
    await server.restart()
    await limit(page, 'None')
    await verified(page, 'down.bin')
    await page.locator('.list').press('Escape')
    await select(page, 'tree')
    await button(page, 'Download 1').click()
    await verified(page, 'tree')
    assert.deepEqual(page.errors, [])
  } catch (error) {
    for (const page of firefox.contexts().flatMap(context => context.pages())) console.log(await page.locator('body').innerText({ timeout: 5000 }).catch(String), page.errors)
    throw error
  } finally {
    for (const context of firefox.contexts()) await context.close()
    await server.stop()
  }
})
