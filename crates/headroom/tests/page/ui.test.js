// The page over a session without a server: what it shows, and what keys and buttons do.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { after, before, test } from 'node:test'
import { gzipSync } from 'node:zlib'
import { check } from './axe.js'
import { launch, openFake, putPrivate, row, shown } from './browser.js'
import { serve } from './serve.js'

const WEB = new URL('../../../page/web/', import.meta.url)

let browser
let server
before(async () => {
  server = await serve()
  browser = await launch()
})
after(async () => {
  await browser?.close()
  await server?.stop()
})

// Runs a test on a page that may not report an error.
function onPage(name, options, work) {
  test(name, async () => {
    const page = await openFake(browser, server.address, options)
    try {
      await work(page)
      assert.deepEqual(page.errors, [])
    } finally {
      await page.context().close()
    }
  })
}

const names = page => page.locator('.rows .row').evaluateAll(rows =>
  rows.sort((a, b) => a.getAttribute('aria-rowindex') - b.getAttribute('aria-rowindex')).map(row => row.querySelector('.filename').textContent))
const active = page => page.evaluate(() => document.getElementById(document.querySelector('.list').getAttribute('aria-activedescendant'))?.querySelector('.filename').textContent)
const button = (page, name) => page.getByRole('button', { name, exact: true })
const card = (page, state) => page.locator(`.card[data-state="${state}"]`)
const status = (page, text) => page.locator('.status .sum', { hasText: text }).waitFor()
const select = (page, name) => row(page, name).locator('.check').click()

onPage('sorts by name, size and date, folders first', {}, async page => {
  await shown(page)
  assert.equal((await names(page))[0], 'Annual report 2025')
  await button(page, 'Size').click()
  assert.equal((await names(page))[5], 'backup-2026-11-23.tar.zst')
  await button(page, 'Size').click()
  assert.equal((await names(page)).at(-1), 'backup-2026-11-23.tar.zst')
  await button(page, 'Modified').click()
  assert.equal((await names(page))[0], 'Photographs')
})

onPage('keeps its rows under a button that is pressed', {}, async page => {
  await shown(page)
  const { x, y, height } = await row(page, 'Notes.md').boundingBox()
  await page.mouse.move(x + 300, y + height / 2)
  await page.mouse.down()
  // a file that comes before it, and the list is read again
  const lists = await page.evaluate(() => {
    fakeControl.tree.children.set('A new one.txt', { type: 'file', size: 3, modified: 0, content: new Uint8Array(3) })
    fakeControl.state({ state: 'reconnecting', retryAt: Date.now() })
    fakeControl.state({ state: 'connected' })
    return fakeControl.lists
  })
  await page.waitForFunction(lists => fakeControl.lists > lists, lists)
  assert.equal(await row(page, 'A new one.txt').count(), 0)
  await page.mouse.up()
  await row(page, 'A new one.txt').waitFor()
  await status(page, '1 selected')
  assert.equal(await active(page), 'Notes.md')
})

onPage('says why the server closed the connection', {}, async page => {
  await shown(page)
  await page.evaluate(() => fakeControl.state({ state: 'reconnecting', retryAt: Date.now(), reason: 'the server is shutting down' }))
  await page.locator('#notice', { hasText: '(the server is shutting down)' }).waitFor()
})

onPage('filters by what is typed after a slash', {}, async page => {
  await shown(page)
  await page.locator('.list').focus()
  await page.keyboard.press('/')
  await page.keyboard.type('ÜBER')
  assert.deepEqual(await names(page), ['Übersicht Messstellen.csv'])
  await page.keyboard.press('Escape')
  assert.equal((await names(page)).length, 15)
  assert.equal(await page.evaluate(() => document.activeElement.className), 'list')
})

onPage('is used by keyboard alone', {}, async page => {
  await shown(page)
  await page.locator('.list').focus()
  await page.keyboard.press('ArrowDown')
  await page.keyboard.press('ArrowUp')
  await page.keyboard.press('Enter')
  await row(page, 'Charts').waitFor()
  assert.match(page.url(), /#\/Annual%20report%202025$/)
  await page.keyboard.press('Backspace')
  await row(page, 'Photographs').waitFor()
  assert.equal(await active(page), 'Annual report 2025')
  await page.keyboard.press('n')
  assert.equal(await active(page), 'Notes.md')
  await page.keyboard.press('Space')
  await page.keyboard.press('Shift+ArrowDown')
  await status(page, '2 selected')
  await page.keyboard.press('Control+a')
  await status(page, '15 selected')
  await page.keyboard.press('Escape')
  await status(page, '5 folders · 10 files')
  await page.keyboard.press('End')
  assert.equal(await active(page), 'Übersicht Messstellen.csv')
  await page.keyboard.press('F2')
  await page.keyboard.type('overview')
  await page.keyboard.press('Enter')
  await row(page, 'overview.csv').waitFor()
  assert.equal(await active(page), 'overview.csv')
  await page.keyboard.press('Delete')
  await page.locator('dialog').waitFor()
  await page.keyboard.press('Tab') // Cancel has the focus: nothing is deleted by one key
  await page.keyboard.press('Escape')
  await row(page, 'overview.csv').waitFor()
})

onPage('asks before it deletes and names the number of files', {}, async page => {
  await shown(page)
  await select(page, 'Annual report 2025')
  await select(page, 'Notes.md')
  await button(page, 'Delete').click()
  const dialog = page.getByRole('dialog', { name: 'Delete 2 entries?' })
  await dialog.getByText('5 files, 18.7 MB').waitFor()
  await dialog.getByRole('button', { name: 'Delete 5 files' }).click()
  await row(page, 'Notes.md').waitFor({ state: 'detached' })
  await status(page, '4 folders · 9 files')
})

onPage('makes folders and refuses names that cannot be one', {}, async page => {
  await shown(page)
  await button(page, 'New folder').click()
  const field = page.getByLabel('Name', { exact: true })
  await field.fill('a/b')
  await page.getByText('has no slash').waitFor()
  await field.fill('Photographs')
  await page.getByText('This name is taken.').waitFor()
  await field.fill('Neue Bilder')
  await page.keyboard.press('Enter')
  await row(page, 'Neue Bilder').waitFor()
  assert.equal(await active(page), 'Neue Bilder')
})

onPage('draws only what is seen of 100 000 entries', { fake: { files: 100_000 } }, async page => {
  await shown(page)
  await row(page, 'many').locator('.filename').click()
  await status(page, '100,000 files')
  assert.ok((await page.locator('.rows .row').count()) < 100)
  await page.locator('.list').focus()
  await page.keyboard.press('End')
  await row(page, 'measurement 99999.csv').waitFor()
  await page.keyboard.press('Home')
  await row(page, 'measurement 0.csv').waitFor()
})

onPage('shows hostile names as they are and runs nothing of them', { fake: { hostile: true } }, async page => {
  await shown(page)
  const all = await page.locator('.rows').innerText()
  for (const text of ['invoiceU+202Efdp.exe', 'two↵lines.txt', '<img src=x', '␣leading and trailing␣', 'bytes\\xe9.txt', '__proto__', "'; alert(1); '.js"]) {
    assert.ok(all.includes(text), `${text} in ${all}`)
  }
  assert.equal(await page.locator('.rows img').count(), 0)
  await page.locator('.filename', { hasText: '<img' }).click()
  await page.locator('#preview pre', { hasText: 'onerror' }).waitFor()
  await page.locator('#preview').press('Escape')
  await page.locator('.check').nth(9).click()
  await page.locator('.filename', { hasText: '__proto__' }).click()
  await page.getByText('This folder is empty').waitFor()
  assert.equal(await page.evaluate(() => window.pwned), undefined)
})

onPage('previews text as text and pictures as pictures', {}, async page => {
  await shown(page)
  await row(page, 'Notes.md').locator('.filename').click()
  await page.locator('#preview pre', { hasText: '<script>window.pwned = 1</script>' }).waitFor()
  await page.locator('#preview').press('Escape')
  assert.equal(await active(page), 'Notes.md')
  await row(page, 'picture.png').locator('.filename').click()
  await page.locator('#preview img[src^="blob:"]').waitFor()
  await page.keyboard.press('Escape')
  assert.equal(await page.evaluate(() => window.pwned), undefined)
})

onPage('pauses, resumes, limits, reorders and cancels transfers', { fake: { speed: 20e6 } }, async page => {
  await shown(page)
  for (const name of ['debian-12.9.0-amd64-netinst.iso', 'seismic-2026-10.h5']) {
    await select(page, name)
    await button(page, 'Download 1').click()
    await select(page, name)
  }
  await card(page, 'running').getByText('Receiving').waitFor()
  await page.getByRole('button', { name: /Pause: .*debian/ }).click()
  await card(page, 'paused').getByText('Paused').waitFor()
  await card(page, 'running').filter({ hasText: 'seismic' }).waitFor()
  await page.getByLabel('Rate limit').selectOption({ label: '5.00 MB/s' })
  assert.equal(await page.evaluate(() => fakeControl.rate), 5e6)
  await page.getByRole('button', { name: /Resume: .*debian/ }).click()
  await card(page, 'waiting').filter({ hasText: 'debian' }).waitFor()
  await page.getByRole('button', { name: /Move down: .*debian/ }).click()
  assert.match(await page.locator('.open .card').first().innerText(), /seismic/)
  await page.getByRole('button', { name: /Move up: .*debian/ }).click()
  await card(page, 'running').filter({ hasText: 'debian' }).waitFor()
  await page.getByRole('button', { name: /Cancel transfer: .*seismic/ }).click()
  if (await page.locator('dialog').count()) await page.locator('dialog').getByRole('button', { name: 'Cancel transfer' }).click()
  await card(page, 'cancelled').filter({ hasText: 'seismic' }).waitFor()
  await page.waitForFunction(() => document.title.includes('% · '))
})

onPage('uploads a folder, tells the end, and saves a receipt', {}, async page => {
  await shown(page)
  await putPrivate(page, { 'picked/a.txt': 'one', 'picked/sub/b.txt': 'two', 'picked/Ümläut.bin': 70_000 })
  await button(page, 'Upload folder').click()
  await card(page, 'done').getByText(/Verified at/).waitFor()
  await row(page, 'picked').waitFor()
  await page.waitForFunction(() => document.title.startsWith('✓'))
  await page.locator('#live', { hasText: 'picked' }).filter({ hasText: 'is complete and verified' }).waitFor({ state: 'attached' })
  await page.getByRole('button', { name: /^Receipt: / }).click()
  const [download] = await Promise.all([page.waitForEvent('download'), button(page, 'Save as JSON').click()])
  const receipt = JSON.parse(await readFile(await download.path(), 'utf8'))
  assert.equal(receipt.format, 'headroom-receipt/1')
  assert.match(receipt.server.key_stated, /^SHA256:/)
  assert.deepEqual(receipt.files.map(file => [file.path, file.size]).sort(), [['picked/a.txt', 3], ['picked/sub/b.txt', 3], ['picked/Ümläut.bin', 70_000]])
  assert.ok(receipt.files.every(file => /^[0-9a-f]{64}$/.test(file.blake3) && file.verified))
})

onPage('saves a folder as a tar archive where a page has no folders', { pickers: false }, async page => {
  await shown(page)
  await select(page, 'Annual report 2025')
  const [download] = await Promise.all([page.waitForEvent('download'), button(page, 'Download 1').click()])
  assert.equal(download.suggestedFilename(), 'Annual report 2025.tar')
  const names = execFileSync('tar', ['-tf', await download.path()], { encoding: 'utf8' }).trim().split('\n')
  assert.deepEqual(names.sort(), ['Charts/Headcount.png', 'Charts/Revenue.svg', 'Figures.xlsx', 'Report 2025.pdf'].map(name => `Annual report 2025/${name}`))
  await card(page, 'done').getByText('Downloads, as one tar file').waitFor()
})

onPage('asks for the same files again where the browser keeps no access to them', { pickers: false, fake: { speed: 2e5 } }, async page => {
  const choose = async name => {
    const [chooser] = await Promise.all([page.waitForEvent('filechooser'), page.getByRole('button', { name, exact: true }).last().click()])
    await chooser.setFiles({ name: 'mine.bin', mimeType: 'application/octet-stream', buffer: Buffer.alloc(4_000_000) })
  }
  await shown(page)
  await choose('Upload files')
  await page.waitForFunction(() => Number(sessionStorage.getItem('partial mine.bin')) > 1e5)
  page.on('dialog', dialog => dialog.accept()) // the browser's own question before a reload
  await page.reload()
  await card(page, 'needs').getByText('does not keep access').waitFor()
  await page.evaluate(() => (fakeControl.options.speed = 1e8))
  await choose('Choose again')
  await card(page, 'done').getByText(/Verified at/).waitFor()
})

onPage('offers to resume after a reload and sends only what is missing', { fake: { speed: 2e6 } }, async page => {
  await shown(page)
  await putPrivate(page, { 'picked/1.bin': 1_000_000, 'picked/2.bin': 30_000_000 })
  await button(page, 'Upload folder').click()
  await page.waitForFunction(() => Number(sessionStorage.getItem('partial picked/2.bin')) > 1e6)
  await page.locator('.card', { hasText: '1 of 2 files' }).waitFor()
  await page.reload()
  await card(page, 'interrupted').getByText('Only what is missing is sent').waitFor()
  const before = await page.evaluate(() => Number(sessionStorage.getItem('partial picked/2.bin')))
  await page.evaluate(() => (fakeControl.options.speed = 100e6))
  await page.locator('.reason').getByRole('button', { name: 'Resume' }).click()
  await card(page, 'done').getByText(/Verified at/).waitFor()
  assert.ok(before > 1e6)
  await page.getByRole('button', { name: /^Receipt: / }).click()
  await page.locator('dialog pre', { hasText: 'picked/1.bin' }).waitFor() // of before the reload
})

onPage('says why a transfer failed and tries again', { fake: { full: 4e6 } }, async page => {
  await shown(page)
  await putPrivate(page, { 'picked/a.bin': 9_000_000 })
  await button(page, 'Upload folder').click()
  await card(page, 'failed').getByText('disk of the receiver is full').waitFor()
  await page.evaluate(() => (fakeControl.options.full = Infinity))
  await page.locator('.reason').getByRole('button', { name: 'Try again' }).click()
  await card(page, 'done').getByText(/Verified at/).waitFor()
})

onPage('does not believe a server that sends less than it lists', { fake: { leaveOut: true } }, async page => {
  await shown(page)
  await select(page, 'Annual report 2025')
  await button(page, 'Download 1').click()
  await card(page, 'failed').getByText('did not send all files').waitFor()
})

onPage('asks what to do with names that are taken', {}, async page => {
  await shown(page)
  await putPrivate(page, { 'Notes.md': 'mine', 'new.txt': 'new' })
  await page.evaluate(() => (globalThis.pickedFiles = ['Notes.md', 'new.txt']))
  await button(page, 'Upload files').click()
  const dialog = page.getByRole('dialog', { name: /Notes.md.* is already there/ })
  await dialog.getByRole('button', { name: 'Keep both' }).click()
  await row(page, 'Notes (2).md').waitFor()
  await row(page, 'new.txt').waitFor()
  await button(page, 'Upload files').click()
  await page.locator('dialog').getByRole('button', { name: 'Replace' }).click()
  await page.locator('.done .card').nth(1).waitFor()
  assert.equal(await page.evaluate(() => new TextDecoder().decode(fakeControl.tree.children.get('Notes.md').content)), 'mine')
})

onPage('shows the key until the server knows it', { fake: { authorized: false, known: false } }, async page => {
  await page.getByRole('heading', { name: 'The server does not know this browser yet' }).waitFor()
  assert.match(await page.getByLabel('This browser’s public key').inputValue(), /^ssh-ed25519 /)
  await button(page, 'Check now').click()
  await page.getByText('does not know the key yet').waitFor()
  await page.evaluate(() => (fakeControl.options.known = true))
  await button(page, 'Check now').click()
  await shown(page)
})

onPage('signs in by an invitation and keeps it out of the address', { fake: { authorized: false, known: false }, hash: '#invite=good' }, async page => {
  await shown(page)
  assert.equal(new URL(page.url()).hash, '')
  assert.equal(await page.evaluate(() => fakeControl.secrets.invite), 'good')
})

onPage('hides what may not be done on a server that is read-only', { fake: { readOnly: true } }, async page => {
  await shown(page)
  assert.equal(await button(page, 'Upload files').count(), 0)
  await select(page, 'Notes.md')
  assert.equal(await button(page, 'Delete').count(), 0)
})

onPage('tells the state of the connection in words', { fake: { transport: 'websocket' } }, async page => {
  await shown(page)
  await page.getByText('UDP is blocked here: slower, same verification.').waitFor()
  await page.evaluate(() => fakeControl.drop(6))
  await page.getByText(/Connection lost. (Next attempt in|Connecting again)/).waitFor()
  await page.locator('#connection-text', { hasText: 'Connected by HTTPS' }).waitFor()
})

onPage('says why it cannot connect', { fake: { refuse: 'refused' } }, async page => {
  await page.getByRole('heading', { name: 'No connection to the server' }).waitFor()
})

onPage('speaks German with German numbers', { locale: 'de-DE' }, async page => {
  await shown(page)
  await page.getByRole('button', { name: 'Neuer Ordner' }).waitFor()
  await page.getByText('5 Ordner · 10 Dateien · 54,7 GB').waitFor()
  await page.getByRole('button', { name: 'Einstellungen' }).click()
  await page.getByLabel('Sprache').selectOption('en')
  await page.getByText('5 folders · 10 files').waitFor()
})

test('shows a transfer in one tab only', async () => {
  const page = await openFake(browser, server.address, { fake: { speed: 5e6 } })
  await shown(page)
  await select(page, 'debian-12.9.0-amd64-netinst.iso')
  await button(page, 'Download 1').click()
  await card(page, 'running').waitFor()
  const other = await page.context().newPage()
  await other.goto(server.address)
  await shown(other)
  await other.getByText('No transfers').waitFor()
  await page.close() // the other takes it over by itself
  await card(other, 'interrupted').waitFor()
  await other.context().close()
})

for (const colorScheme of ['light', 'dark']) {
  for (const width of [390, 1280]) {
    onPage(`has no barrier that axe finds: ${colorScheme}, ${width} px`, { colorScheme, viewport: { width, height: 800 }, fake: { hostile: true, full: 40e6, transport: 'websocket' } }, async page => {
      await shown(page)
      await check(page, 'the list')
      await putPrivate(page, { 'picked/a.bin': 30_000_000, 'picked/b.bin': 30_000_000 })
      await page.getByRole('button', { name: 'Upload folder' }).click()
      await card(page, 'partly').waitFor({ state: 'attached' })
      await select(page, 'debian-12.9.0-amd64-netinst.iso')
      await button(page, 'Download 1').click()
      await card(page, 'failed').waitFor({ state: 'attached' })
      await check(page, 'a selection')
      if (width < 800) await page.getByRole('button', { name: /^Transfers/ }).click()
      await page.locator('details summary').first().click()
      await check(page, 'transfers')
      if (width < 800) await page.getByRole('button', { name: 'Files', exact: true }).click()
      await button(page, 'Delete').click()
      await page.locator('dialog').waitFor()
      await check(page, 'a question')
      await page.keyboard.press('Escape')
      await row(page, 'Notes.md').locator('.filename').click()
      await page.locator('#preview pre').waitFor()
      await check(page, 'a preview')
      await page.keyboard.press('Escape')
      await page.getByRole('button', { name: 'Settings' }).click()
      await check(page, 'settings')
    })
    onPage(`has no barrier that axe finds at sign-in: ${colorScheme}, ${width} px`, { colorScheme, viewport: { width, height: 800 }, fake: { authorized: false, known: false } }, async page => {
      await page.getByRole('heading', { name: 'The server does not know this browser yet' }).waitFor()
      await check(page, 'sign-in')
    })
  }
}

onPage('moves its rows apart when the window becomes narrow', { viewport: { width: 1280, height: 800 } }, async page => {
  await shown(page)
  await page.setViewportSize({ width: 390, height: 800 })
  await page.waitForFunction(() => {
    const rows = [...document.querySelectorAll('.rows .row')].map(row => row.getBoundingClientRect()).sort((a, b) => a.top - b.top)
    return rows[0].height > 40 && rows.slice(1).every((row, at) => row.top >= rows[at].bottom - 1)
  })
})

onPage('fits 360 px and does not scroll sideways', { viewport: { width: 360, height: 640 } }, async page => {
  await shown(page)
  for (const view of ['Files', /^Transfers/]) {
    await page.locator('.tabs').getByRole('button', { name: view }).click()
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth))
  }
})

test('has the same texts with the same values in every language', async () => {
  const english = (await import(new URL('texts.en.js', WEB))).default
  const values = text => [...(typeof text === 'string' ? text : text.other).matchAll(/\{\w+\}/g)].map(String).sort()
  const tables = (await readdir(WEB)).filter(name => /^texts\.\w+\.js$/.test(name))
  assert.ok(tables.length >= 2)
  for (const table of tables) {
    const texts = (await import(new URL(table, WEB))).default
    assert.deepEqual(Object.keys(texts).sort(), Object.keys(english).sort(), table)
    for (const key of Object.keys(english)) assert.deepEqual(values(texts[key]), values(english[key]), `${table}: ${key}`)
  }
})

test('is small: below 64 KB compressed, without what the protocol brings', async () => {
  const parts = /^(index\.html|page\.css|icon\.svg|(app|dialogs|format|list|load|local|pane|panel|plot|preview|receipt|settings|signin|store|tar|texts|texts\.\w+|transfers)\.js)$/
  let bytes = 0
  for (const name of await readdir(WEB)) if (parts.test(name)) bytes += gzipSync(await readFile(new URL(name, WEB)), { level: 9 }).length
  console.log(`front end: ${bytes} bytes compressed`)
  assert.ok(bytes < 64_000, `${bytes}`)
})

test('uses no markup from strings, inline handlers or styles', async () => {
  for (const name of await readdir(WEB)) {
    if (!/\.(js|html)$/.test(name) || name === 'protocol.js') continue
    const source = await readFile(new URL(name, WEB), 'utf8')
    assert.doesNotMatch(source, /innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\('style/, name)
    if (name.endsWith('.html')) assert.doesNotMatch(source, / style=| on\w+="/, name)
  }
})
