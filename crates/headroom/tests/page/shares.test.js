// Share links, made on the command line and in the page, opened by other browsers.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'
import { check } from './axe.js'
import { launch, putPrivate, row } from './browser.js'
import { Server } from './server.js'

let browser
before(async () => (browser = await launch()))
after(() => browser?.close())

// Runs a test with a server of its own.
function withServer(name, work) {
  test(name, { timeout: 240_000 }, async () => {
    const server = await Server.start()
    try {
      await work(server)
    } catch (error) {
      for (const page of browser.contexts().flatMap(context => context.pages())) console.log(await page.locator('body').innerText({ timeout: 5000 }).catch(String), page.errors)
      throw error
    } finally {
      for (const context of browser.contexts()) await context.close()
      await server.stop()
    }
  })
}

const button = (page, name) => page.getByRole('button', { name, exact: true })
const card = (page, state) => page.locator(`.card[data-state="${state}"]`)
const verified = page => card(page, 'done').getByText(/Verified at/).waitFor()
const limit = (page, label) => page.getByLabel('Rate limit').selectOption({ label })

const underway = (page, least) => page.waitForFunction(least => {
  const bar = document.querySelector('.card[data-state="running"] progress')
  return bar && bar.value * 100 > least && bar.value < 1
}, least)

// Runs `headroom share` as the user of the server; resolves with what it prints as JSON.
async function share(server, ...words) {
  const env = { PATH: process.env.PATH, HOME: server.home, XDG_CONFIG_HOME: join(server.home, 'config') }
  const { stdout } = await promisify(execFile)(process.env.HEADROOM, ['share', '--json', ...words], { env })
  return stdout.split('\n').filter(Boolean).map(line => JSON.parse(line))
}

async function plant(server, tree) {
  for (const [path, content] of Object.entries(tree)) {
    await mkdir(join(server.root, path, '..'), { recursive: true })
    await writeFile(join(server.root, path), typeof content === 'number' ? randomBytes(content) : content)
  }
}

withServer('a link for one browser shows and downloads one folder, and is used up for the next', async server => {
  await plant(server, { 'docs/a.txt': 'content of a', 'docs/sub/b.bin': 300_000, 'secret.txt': 'no' })
  const [link] = await share(server, join(server.root, 'docs'), '--once', '--name', 'for Alice')
  assert.equal(link.path, '/docs')
  const late = await server.open(browser, { url: link.url })
  await row(late, 'a.txt').waitFor() // looking takes no use
  const page = await server.open(browser, { url: link.url })
  await row(page, 'a.txt').waitFor()
  assert.equal(await page.evaluate(() => location.hash), '')
  assert.match(await page.locator('#shared').innerText(), /for Alice/)
  assert.equal(await row(page, 'secret.txt').count(), 0)
  assert.equal(await button(page, 'Upload files').count(), 0)
  await check(page, 'the page of a share link')
  await button(page, 'Download everything').click()
  await verified(page)
  const stored = await page.evaluate(async () => {
    const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle('picked')
    const sub = await folder.getDirectoryHandle('sub')
    return [await (await (await folder.getFileHandle('a.txt')).getFile()).text(), (await (await sub.getFileHandle('b.bin')).getFile()).size]
  })
  assert.deepEqual(stored, ['content of a', 300_000])
  await page.reload()
  await row(page, 'a.txt').waitFor() // the same use
  await button(late, 'Download everything').click()
  await card(late, 'failed').getByText('This link was used as often as it may be').first().waitFor()
  const other = await server.open(browser, { url: link.url })
  await other.getByText('This link was used as often as it may be').waitFor()
  const [listed] = await share(server, '--list')
  assert.deepEqual([listed.id, listed.used, listed.uses], [link.id, 1, 1])
  assert.deepEqual(page.errors, [])
})

withServer('a shared download resumes after a reload, and a revoked one ends in mid-transfer', async server => {
  await plant(server, { 'big.bin': 12_000_000 })
  const [link] = await share(server, join(server.root, 'big.bin'), '--expires', '1h')
  const page = await server.open(browser, { url: link.url })
  await row(page, 'big.bin').waitFor()
  await limit(page, '500 kB/s')
  await button(page, 'Download everything').click()
  await underway(page, 10)
  await page.reload()
  await card(page, 'interrupted').getByText('Only what is missing is sent').waitFor()
  await page.locator('.reason').getByRole('button', { name: 'Resume' }).click()
  await underway(page, 15)
  await share(server, '--revoke', link.id)
  await card(page, 'failed').getByText('This link has expired or was revoked').waitFor()
  assert.equal(await card(page, 'failed').locator('.reason .detail').count(), 0, 'the server’s words say the same once more')
  const other = await server.open(browser, { url: link.url })
  await other.getByText('This link has expired or was revoked').waitFor()
  assert.deepEqual(await share(server, '--list'), [])
})

withServer('a link for sending takes files into a folder of the browser, and shows none', async server => {
  await plant(server, { 'inbox/theirs.txt': 'theirs' })
  const [link] = await share(server, join(server.root, 'inbox'), '--put')
  const page = await server.open(browser, { url: link.url, prepare: () => {
    // where UDP is blocked
    globalThis.WebTransport = class {
      ready = Promise.reject(new Error('UDP is blocked'))
      closed = this.ready
      close() {}
    }
  } })
  await page.getByText('Drop files here, or choose them above').waitFor()
  assert.doesNotMatch(await page.locator('body').innerText(), /theirs/)
  await check(page, 'the page of a link for sending')
  await putPrivate(page, { 'picked.bin': 'sent by a link' })
  await button(page, 'Upload files').click()
  await verified(page)
  const [folder] = (await readdir(join(server.root, 'inbox'))).filter(name => name.startsWith('upload-'))
  assert.equal(await readFile(join(server.root, 'inbox', folder, 'picked.bin'), 'utf8'), 'sent by a link')
  assert.equal(await readFile(join(server.root, 'inbox/theirs.txt'), 'utf8'), 'theirs')
  assert.deepEqual(page.errors, [])
})

withServer('the page makes links, lists them and revokes them', async server => {
  await plant(server, { 'docs/a.txt': 'content of a' })
  const page = await server.enter(browser)
  await row(page, 'docs').locator('.check').click()
  await button(page, 'Share').click()
  await page.getByLabel('It may be used by').selectOption({ label: 'one browser' })
  await page.getByLabel('Note, which the page shows').fill('for Bob')
  await check(page, 'the question about a share link')
  await button(page, 'Make the link').click()
  const link = await page.getByLabel('Link', { exact: true }).inputValue()
  await check(page, 'the link')
  await page.keyboard.press('Escape')
  const guest = await server.open(browser, { url: link })
  await row(guest, 'a.txt').waitFor()
  await guest.locator('#shared').getByText('for Bob').waitFor()
  // a tab that is led into a link says so, and leaves it
  await page.goto(link)
  await page.locator('#shared').getByText('This browser has access of its own').waitFor()
  await check(page, 'the page of a link in a browser with access of its own')
  await button(page, 'Leave the link').click()
  await row(page, 'docs').waitFor()
  assert.ok(await page.locator('#shared').isHidden())
  await button(page, 'Share links').click()
  await check(page, 'the list of share links')
  await page.getByRole('button', { name: /^Revoke the link to/ }).click()
  await page.getByText('There are no open links of yours.').waitFor()
  await button(guest, 'Download everything').click()
  await card(guest, 'failed').getByText('This link has expired or was revoked').waitFor()
  assert.deepEqual([...page.errors, ...guest.errors], [])
})
