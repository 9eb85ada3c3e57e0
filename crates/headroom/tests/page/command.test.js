// `headroom ui` and its page, with a real server in the other pane.

import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { mkdir, readdir, readFile, stat, utimes, writeFile } from 'node:fs/promises'
import { request } from 'node:http'
import { connect as connectTcp } from 'node:net'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { check } from './axe.js'
import { launch } from './browser.js'
import { Command, tree } from './command.js'

let browser
before(async () => (browser = await launch()))
after(() => browser?.close())

// Runs a test with a command of its own.
function withCommand(name, options, work) {
  // The lab makes network namespaces.
  const skip = options.lab && process.getuid() !== 0 && !process.env.CI && process.env.HEADROOM_TESTS !== 'required' && 'needs root'
  test(name, { timeout: 240_000, skip }, async () => {
    const command = await Command.start(options)
    try {
      await work(command)
    } catch (error) {
      for (const page of browser.contexts().flatMap(context => context.pages())) console.log(await page.locator('body').innerText({ timeout: 5000 }).catch(String), page.errors)
      console.log(command.ui.printed)
      throw error
    } finally {
      for (const context of browser.contexts()) await context.close()
      await command.stop()
    }
  })
}

const KNOWN = { known: true }
const here = page => page.locator('#files')
const there = page => page.locator('#remote')
const row = (pane, name) => pane.locator('.rows .row', { has: pane.page().locator(`.filename:text-is(${JSON.stringify(name)})`) })
const select = (pane, name) => row(pane, name).locator('.check').click()
const button = (scope, name) => scope.getByRole('button', { name, exact: true })
const card = (page, state) => page.locator(`.card[data-state="${state}"]`)
const verified = (page, name = '') => card(page, 'done').filter({ hasText: name }).getByText(/Verified at/).first().waitFor()
const ready = async page => {
  await page.locator('body.ready').waitFor()
  await page.locator('#remote .place option:checked:not([value=""])').waitFor({ state: 'attached' })
  return page
}
const exists = path => stat(path).then(() => true, () => false)

// Waits until a condition holds.
async function until(condition) {
  for (let turn = 0; turn < 900; turn += 1) {
    if (await condition()) return
    await new Promise(resolve => setTimeout(resolve, 100))
  }
  assert.fail(`it never holds: ${condition}`)
}

// Makes a request as it stands; returns status, headers and body.
function ask(command, { method = 'POST', path = '/api/status', headers = {}, body = '{}' } = {}) {
  const { port } = new URL(command.origin)
  return new Promise((resolve, reject) => {
    const sent = request({ host: '127.0.0.1', port, method, path, headers, setHost: !('host' in headers) }, response => {
      let text = ''
      response.on('data', data => (text += data))
      response.on('end', () => resolve({ status: response.statusCode, headers: response.headers, body: text }))
    })
    sent.on('error', reject)
    sent.end(method === 'GET' ? undefined : body)
  })
}

const authorized = command => ({ authorization: `Bearer ${command.token}`, 'content-type': 'application/json' })
const call = async (command, name, body) => JSON.parse((await ask(command, { path: `/api/${name}`, headers: authorized(command), body: JSON.stringify(body) })).body)

withCommand('asks about an unknown server, then copies a tree there and back', {}, async command => {
  await mkdir(join(command.here, 'photos/deep'), { recursive: true })
  await writeFile(join(command.here, 'photos/a.bin'), randomBytes(3_000_000))
  await writeFile(join(command.here, 'photos/deep/größe %41.txt'), 'hello')
  const page = await command.open(browser)
  await page.getByRole('dialog').getByText(command.serving.event.fingerprint).waitFor()
  await page.getByRole('button', { name: 'Trust it from now on' }).click()
  await ready(page)
  assert.equal(new URL(page.url()).hash, '', 'the token is not in the address any more')
  await select(here(page), 'photos')
  await button(here(page), 'Copy 1').click()
  await verified(page, 'photos')
  assert.deepEqual(await tree(command.there), await tree(command.here))
  assert.match(await readFile(join(command.home, 'config/headroom/known_hosts'), 'utf8'), /ssh-ed25519/)
  await row(there(page), 'photos').locator('.filename').click()
  await row(there(page), 'deep').waitFor()
  await button(here(page), 'New folder').click()
  await page.getByLabel('Name', { exact: true }).fill('back')
  await button(page, 'Make folder').click()
  await row(here(page), 'back').locator('.filename').click()
  await here(page).getByText('This folder is empty').waitFor()
  await button(there(page), 'Copy all').click()
  await verified(page, 'deep')
  const back = await tree(join(command.here, 'back'))
  const sent = await tree(join(command.there, 'photos'))
  assert.deepEqual(back, sent)
  await card(page, 'done').first().getByRole('button', { name: /^Receipt/ }).click()
  const receipt = await page.getByRole('dialog').locator('pre').innerText()
  assert.match(receipt, /a\.bin\n {2}3,000,000 bytes {2}BLAKE3 [0-9a-f]{64} {2}20/)
  assert.ok(receipt.includes(`Server’s key: ${command.serving.event.fingerprint}`))
})

withCommand('shows what a sync would do, and does that', KNOWN, async command => {
  const time = new Date('2026-01-01T00:00:00Z')
  for (const folder of [command.here, command.there]) {
    await writeFile(join(folder, 'same.txt'), 'same')
    await utimes(join(folder, 'same.txt'), time, time)
  }
  await writeFile(join(command.here, 'new.txt'), 'new')
  await writeFile(join(command.here, 'left out.o'), 'object')
  await writeFile(join(command.there, 'gone.txt'), 'gone')
  const page = await ready(await command.open(browser))
  await row(there(page), 'gone.txt').waitFor()
  await button(here(page), 'Sync').click()
  const dialog = page.getByRole('dialog')
  await dialog.getByLabel(/Leave out/).fill('*.o')
  await dialog.getByLabel('Delete there what is not here').check()
  await dialog.getByRole('button', { name: 'Preview' }).click()
  await dialog.getByText(/To send: 1 entries.*To delete: 1.*Unchanged: 1/).waitFor()
  assert.deepEqual((await dialog.locator('.plan li .filename').allInnerTexts()).sort(), ['gone.txt', 'new.txt'])
  await check(page)
  assert.ok(await exists(join(command.there, 'gone.txt')), 'a preview changes nothing')
  await dialog.getByRole('button', { name: 'Sync now' }).click()
  await verified(page)
  assert.deepEqual((await readdir(command.there)).sort(), ['new.txt', 'same.txt'])
})

withCommand('pauses, goes on, and keeps on while the page is reloaded or closed', KNOWN, async command => {
  const content = randomBytes(24_000_000)
  await writeFile(join(command.here, 'big.bin'), content)
  const page = await ready(await command.open(browser))
  await page.getByLabel('Rate limit').selectOption('1')
  await select(here(page), 'big.bin')
  await page.keyboard.press('F5')
  await card(page, 'running').getByText(/%/).waitFor()
  // another tab sees it, and so does this one after a reload
  const other = await command.open(browser)
  await card(other, 'running').waitFor()
  await page.reload()
  await card(page, 'running').waitFor()
  await card(page, 'running').getByRole('button', { name: /^Pause/ }).click()
  await card(page, 'paused').waitFor()
  await card(other, 'paused').waitFor()
  await until(async () => (await readdir(command.there)).some(name => name.endsWith('.headroom-part')))
  await page.close()
  await other.getByRole('button', { name: /^Resume: / }).click()
  await card(other, 'running').waitFor()
  const context = other.context()
  await other.close()
  // the limit goes while nobody looks
  await call(command, 'limit', { rate: null })
  await until(() => exists(join(command.there, 'big.bin')))
  const last = await ready(await command.open(browser, { context }))
  await verified(last, 'big.bin')
  assert.deepEqual(await tree(command.there), await tree(command.here))
})

withCommand('cancels, tries again, and moves what waits', KNOWN, async command => {
  for (const name of ['one.bin', 'two.bin']) await writeFile(join(command.here, name), randomBytes(9_000_000))
  await call(command, 'limit', { rate: 500_000 })
  const page = await ready(await command.open(browser))
  for (const name of ['one.bin', 'two.bin']) {
    await row(here(page), name).locator('.date').click()
    await page.keyboard.press('F5')
    await page.locator('.card').filter({ hasText: name }).waitFor() // two calls at once have no order
  }
  await card(page, 'running').filter({ hasText: 'one.bin' }).waitFor()
  await card(page, 'waiting').filter({ hasText: 'two.bin' }).waitFor()
  await page.getByRole('button', { name: 'Move up: ⁨two.bin⁩' }).click()
  await card(page, 'running').filter({ hasText: 'two.bin' }).waitFor()
  await card(page, 'waiting').filter({ hasText: 'one.bin' }).getByRole('button', { name: /^Cancel/ }).click()
  await card(page, 'cancelled').waitFor()
  await call(command, 'limit', { rate: null })
  await verified(page, 'two.bin')
  await card(page, 'cancelled').getByRole('button', { name: /^Try again/ }).click()
  await verified(page, 'one.bin')
  assert.deepEqual(await tree(command.there), await tree(command.here))
})

withCommand('goes on when a server is back that was away', KNOWN, async command => {
  await writeFile(join(command.here, 'big.bin'), randomBytes(6_000_000))
  await call(command, 'limit', { rate: 500_000 })
  const page = await ready(await command.open(browser))
  await select(here(page), 'big.bin')
  await button(here(page), 'Copy 1').click()
  await card(page, 'running').getByText(/[1-9]\d?%/).waitFor()
  command.serving.kill('SIGINT')
  await command.serving.ended
  await card(page, 'offline').waitFor()
  await command.serve(command.server)
  await call(command, 'limit', { rate: null })
  await verified(page, 'big.bin')
  assert.deepEqual(await tree(command.there), await tree(command.here))
})

withCommand('makes, renames and deletes on both sides, after a question that names how many files', KNOWN, async command => {
  for (const folder of [command.here, command.there]) {
    await mkdir(join(folder, 'old/deep'), { recursive: true })
    for (const name of ['old/a', 'old/deep/b', 'taken']) await writeFile(join(folder, name), 'x')
  }
  const page = await ready(await command.open(browser))
  for (const [pane, folder] of [[here(page), command.here], [there(page), command.there]]) {
    await button(pane, 'New folder').click()
    await page.getByLabel('Name', { exact: true }).fill('made')
    await button(page, 'Make folder').click()
    await row(pane, 'made').waitFor()
    await select(pane, 'made')
    await page.keyboard.press('F2')
    await page.getByLabel('New name').fill('renamed')
    await button(page.getByRole('dialog'), 'Rename').click()
    await row(pane, 'renamed').waitFor()
    await row(pane, 'old').locator('.date').click()
    await page.keyboard.press('F8')
    await page.getByRole('dialog').getByText('2 files', { exact: false }).first().waitFor()
    await button(page, 'Delete 2 files').click()
    await row(pane, 'old').waitFor({ state: 'detached' })
    assert.deepEqual((await readdir(folder)).sort(), ['renamed', 'taken'])
  }
  // nothing is replaced by a rename
  const answer = await ask(command, { path: '/api/rename', headers: authorized(command), body: JSON.stringify({ place: 'local', from: join(command.here, 'renamed').slice(1), to: join(command.here, 'taken').slice(1) }) })
  assert.equal(JSON.parse(answer.body).code, 'exists')
})

withCommand('is dragged from pane to pane, and previews both', KNOWN, async command => {
  await writeFile(join(command.here, 'local.txt'), 'text of this machine')
  await writeFile(join(command.there, 'remote.txt'), 'text of the server')
  const page = await ready(await command.open(browser))
  await row(here(page), 'local.txt').dragTo(there(page).locator('.stage'))
  await verified(page, 'local.txt')
  await row(there(page), 'local.txt').waitFor() // rows have moved
  await row(there(page), 'remote.txt').locator('.label').dragTo(here(page).locator('.stage'))
  await verified(page, 'remote.txt')
  assert.deepEqual(await tree(command.there), await tree(command.here))
  for (const [pane, name, text] of [[here(page), 'local.txt', 'text of this machine'], [there(page), 'remote.txt', 'text of the server']]) {
    await row(pane, name).locator('.filename').click()
    await page.locator('#preview pre').getByText(text).waitFor()
    await page.keyboard.press('Escape')
  }
})

withCommand('copies names that are not UTF-8, and shows what is hidden in names', KNOWN, async command => {
  const name = Buffer.concat([Buffer.from(command.here + '/'), Buffer.from([0x62, 0xe9, 0x25])])
  await writeFile(name, 'bytes')
  const page = await ready(await command.open(browser))
  await here(page).locator('.rows .row').getByText('\\xe9').waitFor()
  await page.locator('#files .check-all').check()
  await button(here(page), 'Copy 1').click()
  await verified(page)
  assert.deepEqual(await readdir(command.there, { encoding: 'buffer' }), [Buffer.from([0x62, 0xe9, 0x25])])
})

withCommand('answers only the page that has the token, under the names of this machine', { served: false }, async command => {
  const own = new URL(command.origin).host
  const status = async options => (await ask(command, options)).status
  const good = authorized(command)
  assert.equal(await status({ headers: good }), 200)
  for (const authorization of [undefined, '', 'Bearer ', `Bearer ${command.token}x`, `Bearer ${command.token.slice(1)}`, `Basic ${command.token}`]) {
    assert.equal(await status({ headers: { 'content-type': 'application/json', ...(authorization === undefined ? {} : { authorization }) } }), 401)
  }
  assert.equal(await status({ path: `/api/status?token=${command.token}`, headers: { 'content-type': 'application/json' } }), 401)
  for (const host of ['evil.example', `evil.example:${new URL(command.origin).port}`, '127.0.0.1', 'localhost.evil.example', '[::1]:1']) {
    assert.equal(await status({ headers: { ...good, host } }), 421, host)
    assert.equal(await status({ method: 'GET', path: '/', headers: { host } }), 421, host)
  }
  for (const origin of ['http://evil.example', 'null', `https://${own}`, 'http://127.0.0.1:1']) {
    const answer = await ask(command, { headers: { ...good, origin } })
    assert.equal(answer.status, 403, origin)
    assert.equal(answer.headers['access-control-allow-origin'], undefined)
    assert.equal(await status({ method: 'OPTIONS', headers: { origin, 'access-control-request-method': 'POST' } }), 403)
  }
  assert.equal(await status({ method: 'OPTIONS', headers: {} }), 405)
  assert.equal(await status({ headers: { ...good, 'sec-fetch-site': 'cross-site' } }), 403)
  assert.equal(await status({ headers: { ...good, 'content-type': 'text/plain' } }), 415)
  assert.equal(await status({ headers: good, body: 'x'.repeat(5 << 20) }).catch(() => 413), 413)
  for (const body of ['', '[]', '{"place":1}', '{"place":"local","path":"../etc"}', '{"place":"local","path":"a//b"}', '{"place":"local","path":"%00"}']) assert.equal(await status({ path: '/api/list', headers: good, body }), 400, body)
  assert.equal(await status({ path: '/api/nothing', headers: good }), 400)
  assert.equal(await status({ method: 'GET', path: '/etc/passwd' }), 404)
  assert.equal(await status({ method: 'GET', path: '/report/x' }), 404)
  const page = await ask(command, { method: 'GET', path: '/' })
  assert.match(page.headers['content-security-policy'], /default-src 'none'; script-src 'self';/)
  assert.equal(page.headers['x-frame-options'], 'DENY')
  const { refused } = await call(command, 'status', {})
  assert.ok(refused.wrong_token >= 6 && refused.foreign_host >= 10 && refused.foreign_origin >= 8, JSON.stringify(refused))
  assert.ok(!command.ui.printed.includes(command.token), 'the token is in no log')
})

withCommand('keeps its WebSocket from others', { served: false }, async command => {
  const page = await command.open(browser)
  await page.locator('body.ready').waitFor()
  const attempts = await page.evaluate(() => Promise.all(['{"token":"wrong"}', 'no json', '[]'].map(first => new Promise(resolve => {
    const socket = new WebSocket(`ws://${location.host}/api/events`)
    let heard = 0
    socket.onopen = () => socket.send(first)
    socket.onmessage = () => (heard += 1)
    socket.onclose = ({ code }) => resolve([code, heard])
  }))))
  assert.deepEqual(attempts, [[4001, 0], [4001, 0], [4001, 0]])
  const upgrade = { connection: 'upgrade', upgrade: 'websocket', 'sec-websocket-version': '13', 'sec-websocket-key': 'AAAAAAAAAAAAAAAAAAAAAA==' }
  const status = async headers => (await ask(command, { method: 'GET', path: '/api/events', headers })).status
  assert.equal(await status(upgrade), 403, 'without an origin')
  assert.equal(await status({ ...upgrade, origin: 'http://evil.example' }), 403)
  assert.equal(await status({ origin: command.origin }), 400, 'no upgrade')
  // a page of another origin, in the same browser, gets nothing
  const foreign = await page.context().newPage()
  await foreign.route('http://evil.example/**', route => route.fulfill({ contentType: 'text/html', body: '<p>evil' }))
  await foreign.goto('http://evil.example/')
  const heard = await foreign.evaluate(async origin => {
    const post = await fetch(`${origin}/api/status`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{}' }).then(() => 'answered', () => 'refused')
    const socket = await new Promise(resolve => {
      const socket = new WebSocket(`${origin.replace('http', 'ws')}/api/events`)
      socket.onopen = () => resolve('open')
      socket.onerror = () => resolve('refused')
    })
    return [post, socket]
  }, command.origin)
  assert.deepEqual(heard, ['refused', 'refused'])
})

withCommand('does without the token what it can: it says so', { served: false }, async command => {
  const page = await command.open(browser, { url: `${command.origin}/` })
  await page.getByRole('heading', { name: 'This page needs the whole address' }).waitFor()
  const wrong = await command.open(browser, { url: `${command.origin}/#token=${'A'.repeat(43)}` })
  await wrong.getByRole('heading', { name: 'This page needs the whole address' }).waitFor()
  await check(wrong)
})

withCommand('says what failed at its start', { served: false }, async command => {
  const context = await browser.newContext({ locale: 'en-GB' })
  await context.addInitScript(() => {
    const { getItem } = Storage.prototype
    Storage.prototype.getItem = function (name) {
      if (name === 'headroom.left') throw new Error('the storage is broken')
      return getItem.call(this, name)
    }
  })
  const page = await command.open(browser, { context })
  await page.getByRole('heading', { name: 'The page could not start' }).waitFor()
  await page.getByText('the storage is broken').waitFor()
})

withCommand('bounds connections', { served: false }, async command => {
  const { port } = new URL(command.origin)
  const sockets = await Promise.all(Array.from({ length: 80 }, () => new Promise(resolve => {
    const socket = connectTcp(Number(port), '127.0.0.1', () => resolve(socket))
    socket.on('close', () => (socket.gone = true))
    socket.on('error', () => {})
  })))
  await until(() => sockets.filter(socket => socket.gone).length >= 16)
  for (const socket of sockets) socket.destroy()
  await until(async () => (await ask(command, { headers: authorized(command) }).catch(() => ({}))).status === 200)
  assert.ok((await call(command, 'status', {})).refused.too_many_connections >= 16)
})

withCommand('quits when it is told to, and says what runs', KNOWN, async command => {
  await writeFile(join(command.here, 'big.bin'), randomBytes(6_000_000))
  await call(command, 'limit', { rate: 200_000 })
  const page = await ready(await command.open(browser))
  await select(here(page), 'big.bin')
  await button(here(page), 'Copy 1').click()
  await card(page, 'running').waitFor()
  command.ui.kill('SIGINT')
  await until(() => command.ui.printed.includes('1 transfers and 0 runs'))
  await button(page, 'Quit').click()
  await page.getByRole('dialog').getByText(/1 and 0/).waitFor()
  await button(page, 'Stop them and quit').click()
  await page.getByRole('heading', { name: 'headroom ui has ended' }).waitFor()
  assert.deepEqual(await command.ui.ended, { code: 0, signal: null })
})

withCommand('reaches a host by ssh, from its home on', { served: false, ssh: true }, async command => {
  await writeFile(join(command.here, 'a.txt'), 'by ssh')
  const page = await ready(await command.open(browser))
  await row(there(page), 'there').locator('.filename').click()
  await there(page).getByText('This folder is empty').waitFor()
  await select(here(page), 'a.txt')
  await button(here(page), 'Copy 1').click()
  await verified(page, 'a.txt')
  assert.equal(await readFile(join(command.there, 'a.txt'), 'utf8'), 'by ssh')
  await page.getByRole('button', { name: 'About this server' }).click()
  await page.getByText('ssh, which starts a server for this session').waitFor()
})

withCommand('starts a plan of the lab, shows its cells as they fill, stops it, and opens its report', { served: false, lab: true }, async command => {
  await mkdir(join(command.here, 'plans'))
  await writeFile(join(command.here, 'plans/tiny.toml'), 'stacks = ["headroom"]\nfamily = "ipv4"\nrepetitions = 1000\ncount-packets = false\n[[workload]]\nkind = "download"\nsizes = ["1KiB"]\n')
  const page = await command.open(browser)
  await page.locator('body.ready').waitFor()
  await page.locator('.switch').getByRole('button', { name: 'Lab' }).click()
  await page.getByLabel('Plan or study').selectOption({ label: 'tiny' })
  await button(page, 'Start').click()
  await page.locator('.run td').getByText(/^[1-9]\d* of 1,000, last .*s$/).waitFor()
  await check(page)
  const answer = await ask(command, { path: '/api/lab', headers: authorized(command), body: JSON.stringify({ action: 'start', plan: join(command.here, 'plans/tiny.toml').slice(1) }) })
  assert.equal(JSON.parse(answer.body).code, 'refused', 'two at once would disturb each other')
  await page.reload()
  await page.locator('.switch').getByRole('button', { name: 'Lab' }).click()
  await page.locator('.run').getByRole('button', { name: 'Stop' }).click()
  await page.locator('.run').getByText(/^Stopped/).waitFor()
  const opened = page.context().waitForEvent('page')
  await page.locator('.run').getByRole('button', { name: /^Open report/ }).click()
  const report = await opened
  await report.locator('h1').first().waitFor()
  assert.equal(await report.evaluate(() => origin), 'null')
  assert.equal(await report.evaluate(() => fetch('/').then(() => 'reached', () => 'refused')), 'refused')
})

withCommand('shows a fleet that another process runs, and pauses, limits, resumes and cancels it', KNOWN, async command => {
  const from = join(command.home, 'photos')
  await mkdir(from)
  for (let n = 0; n < 5; n += 1) await writeFile(join(from, `${n}.raw`), randomBytes(1_000_000))
  const file = join(command.home, 'archive.toml')
  // 5 MB in 400 s: it does not end before it is cancelled
  await writeFile(file, `name = "archive"\nfrom = "photos"\nto = "${command.server}:to"\nworkers = 1\nrate = "100kbit"\n`)
  const page = await ready(await command.open(browser))
  await page.locator('.switch').getByRole('button', { name: 'Fleets' }).click()
  await page.getByText('No jobs').waitFor()
  await check(page)
  const run = await command.runFleet(file)
  const job = page.getByRole('article', { name: 'archive' })
  await job.getByText('Copying', { exact: true }).waitFor()
  await job.getByText(/5\.00 MB · \d of 5 files/).waitFor()
  await job.getByText('Limit 100 kbit/s').waitFor()
  await job.getByRole('row').getByText(/^Copies an item/).waitFor()
  await check(page)
  await job.getByRole('button', { name: 'Pause: ' }).click()
  await job.getByText('Paused', { exact: true }).waitFor()
  await job.getByText('workers have 0').waitFor()
  await job.getByRole('button', { name: 'Rate: ' }).click()
  const dialog = page.getByRole('dialog')
  assert.equal(await dialog.getByRole('textbox').inputValue(), '100kbit')
  await dialog.getByRole('textbox').fill('fast')
  await button(dialog, 'Set limit').click()
  await page.getByRole('dialog', { name: 'This was not done' }).getByText('a rate such as').waitFor()
  await button(dialog, 'Close').click()
  await job.getByRole('button', { name: 'Rate: ' }).click()
  await dialog.getByRole('textbox').fill('80kbit')
  await page.keyboard.press('Enter')
  await job.getByText('Limit 80 kbit/s').waitFor()
  await page.reload() // and somebody who comes later sees the same
  await page.locator('.switch').getByRole('button', { name: 'Fleets' }).click()
  await job.getByText('Paused', { exact: true }).waitFor()
  await job.getByRole('button', { name: 'Resume: ' }).click()
  await job.getByText('Copying', { exact: true }).waitFor()
  await job.getByRole('button', { name: 'Cancel job: ' }).click()
  await button(dialog, 'Cancel').click()
  await job.getByRole('button', { name: 'Cancel job: ' }).click()
  await button(dialog, 'Cancel job').click()
  await job.getByText('Cancelled', { exact: true }).waitFor()
  assert.equal(await job.getByRole('button').count(), 0)
  assert.equal((await run.ended).code, 130)
})

withCommand('has no barriers, in German as well, in all views', KNOWN, async command => {
  await writeFile(join(command.here, 'a.txt'), 'a')
  await writeFile(join(command.there, 'b.txt'), 'b')
  const page = await ready(await command.open(browser, { locale: 'de-DE' }))
  await page.getByRole('heading', { name: 'Dieser Rechner' }).waitFor()
  await select(here(page), 'a.txt')
  await button(here(page), '1 kopieren').click()
  await card(page, 'done').waitFor()
  await check(page)
  await page.getByRole('button', { name: 'Server hinzufügen' }).click()
  await page.getByLabel('Adresse').waitFor()
  await check(page)
  await page.getByRole('button', { name: 'Abbrechen' }).click()
  await page.locator('.switch').getByRole('button', { name: 'Labor' }).click()
  await page.getByRole('heading', { name: 'Messung starten' }).waitFor()
  await check(page)
  await page.locator('.switch').getByRole('button', { name: 'Flotten' }).click()
  await page.getByText('Keine Aufträge', { exact: true }).waitFor()
  await check(page)
  await page.setViewportSize({ width: 390, height: 844 })
  await page.locator('.tabs').getByRole('button', { name: 'Server' }).click()
  await row(there(page), 'b.txt').waitFor()
  assert.ok(!(await here(page).isVisible()))
  await check(page)
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'nothing is wider than the screen')
  assert.deepEqual(page.errors, [])
})
