// The page from the real server, as a person uses it.

import assert from 'node:assert/strict'
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { putPrivate, row, shown } from './browser.js'
import { browser, button, card, drop, fill, limit, onDisk, parts, plant, select, sha256, stored, underway, verified, withServer } from './steps.js'

withServer('lets a browser in when its key is added', {}, async server => {
  await plant(server, { 'hello.txt': 'hello' })
  const page = await server.enter(browser)
  await row(page, 'hello.txt').waitFor()
  await page.reload()
  await row(page, 'hello.txt').waitFor() // the key is kept
  assert.deepEqual(page.errors, [])
})

// The server's limit makes it last until there are more connections.
withServer('uploads on several connections', { arguments: ['--rate', '40mbit'] }, async server => {
  const prepare = () => {
    globalThis.connections = 0
    globalThis.WebTransport = class extends WebTransport {
      constructor(...given) {
        super(...given)
        connections++
      }
    }
  }
  const page = await server.enter(browser, { prepare })
  const hash = await fill(page, 'picked.bin', 24_000_000)
  const before = await page.evaluate(() => connections)
  await button(page, 'Upload files').click()
  await verified(page, 'picked.bin')
  assert.equal((await onDisk(server.root))['picked.bin'], hash)
  // That of the upload, and three that joined it.
  const more = await page.evaluate(() => connections) - before
  assert.ok(more >= 4, `${more} connections`)
  assert.deepEqual(page.errors, [])
})

const WEB = new URL('../../../page/web', import.meta.url)

// A browser gives up what it is fetching when addresses or links of its machine change.
withServer('opens although the network changes while it loads', { arguments: ['--invite'] }, async server => {
  await plant(server, { 'hello.txt': 'hello' })
  const page = await server.open(browser, { url: server.invitation, fail: [...(await readdir(WEB)).filter(name => name !== 'load.js'), 'connect.json'] })
  await row(page, 'hello.txt').waitFor()
  assert.deepEqual(page.errors, [])
})

// Then load.js did not arrive either.
withServer('asks to be loaded again when nothing of it has arrived', { arguments: ['--invite'] }, async server => {
  await plant(server, { 'hello.txt': 'hello' })
  const page = await server.open(browser, { url: server.invitation, fail: await readdir(WEB), times: 1000 })
  await page.getByText('load this page again').waitFor()
  await page.context().unrouteAll()
  await page.reload()
  await row(page, 'hello.txt').waitFor()
  await page.getByText('load this page again').waitFor({ state: 'detached' })
})

withServer('keeps an invitation when the page loads again before the server has answered', { arguments: ['--invite'] }, async server => {
  await plant(server, { 'hello.txt': 'hello' })
  // without its style the page loads again after 500 ms; it asks the server again after 250, 500 and 1000
  const page = await server.open(browser, { url: server.invitation, fail: ['page.css', 'connect.json', 'connect.json', 'connect.json'] })
  await row(page, 'hello.txt').waitFor()
})

withServer('lets one browser in by an invitation', { arguments: ['--invite'] }, async server => {
  await plant(server, { 'hello.txt': 'hello' })
  const page = await server.open(browser, { url: server.invitation })
  await row(page, 'hello.txt').waitFor()
  assert.equal(new URL(page.url()).hash, '')
  assert.match(await readFile(server.keys, 'utf8'), /ssh-ed25519 /)
  const other = await server.open(browser, { url: server.invitation })
  await other.getByText('The invitation is used up, expired or revoked.').waitFor()
})

withServer('shows what it may not change to a key that is read-only', {}, async server => {
  await plant(server, { 'hello.txt': 'hello' })
  const page = await server.open(browser)
  await server.authorize(`read-only ${await page.getByLabel('This browser’s public key').inputValue()}`)
  await button(page, 'Check now').click()
  await row(page, 'hello.txt').waitFor()
  assert.equal(await button(page, 'Upload files').count(), 0)
})

withServer('changes names and deletes', {}, async server => {
  await plant(server, { 'old.txt': 'content', 'folder/a': 'a', 'folder/b/c': 'c' })
  const page = await server.enter(browser)
  await select(page, 'old.txt')
  await button(page, 'Rename').click()
  await page.getByLabel('New name').fill('new.txt')
  await page.keyboard.press('Enter')
  await row(page, 'new.txt').waitFor()
  await button(page, 'New folder').click()
  await page.getByLabel('Name', { exact: true }).fill('made here')
  await page.keyboard.press('Enter')
  await row(page, 'made here').waitFor()
  await page.locator('.list').press('Escape')
  await select(page, 'folder')
  await button(page, 'Delete').click()
  await button(page, 'Delete 2 files').click()
  await row(page, 'folder').waitFor({ state: 'detached' })
  assert.deepEqual((await readdir(server.root)).sort(), ['made here', 'new.txt'])
})

withServer('downloads a tree as folders', {}, async server => {
  await plant(server, { 'tree/big.bin': 5_000_000, 'tree/empty': '', 'tree/deep/er/small.txt': 'small', 'tree/Grüße.txt': 'Grüße', 'single.bin': 300_000 })
  const page = await server.enter(browser)
  await select(page, 'tree')
  await select(page, 'single.bin')
  await button(page, 'Download 2').click()
  await verified(page)
  assert.deepEqual(await stored(page, 'picked'), await onDisk(server.root))
  assert.deepEqual(page.errors, [])
})

withServer('uploads a tree and verifies it', {}, async server => {
  const page = await server.enter(browser)
  await putPrivate(page, { 'picked/deep/er/small.txt': 'small', 'picked/empty': '', 'picked/Grüße.txt': 'Grüße' })
  await fill(page, 'picked/big.bin', 5_000_000)
  await button(page, 'Upload folder').click()
  await verified(page)
  await row(page, 'picked').waitFor()
  assert.deepEqual(await onDisk(join(server.root, 'picked')), await stored(page, 'picked'))
})

withServer('pauses and resumes an upload', {}, async server => {
  const page = await server.enter(browser)
  const hash = await fill(page, 'picked.bin', 12_000_000)
  await limit(page, '500 kB/s')
  await button(page, 'Upload files').click()
  await underway(page)
  await page.getByRole('button', { name: /^Pause: / }).click()
  await card(page, 'paused').getByText('Paused').waitFor()
  await limit(page, 'None')
  await page.getByRole('button', { name: /^Resume: / }).click()
  await verified(page)
  assert.deepEqual(await onDisk(server.root), { 'picked.bin': hash })
})

withServer('resumes an upload after a reload', {}, async server => {
  const page = await server.enter(browser)
  const hash = await fill(page, 'picked.bin', 24_000_000)
  await limit(page, '1.00 MB/s')
  await button(page, 'Upload files').click()
  await underway(page, 25) // so that the server has whole spans
  await page.reload()
  await card(page, 'interrupted').getByText('Only what is missing is sent').waitFor()
  assert.equal((await parts(server.root)).length, 1)
  await limit(page, 'None')
  await page.locator('.reason').getByRole('button', { name: 'Resume' }).click()
  await verified(page)
  assert.deepEqual(await onDisk(server.root), { 'picked.bin': hash })
})

withServer('resumes a download after a reload', {}, async server => {
  await plant(server, { 'big.bin': 12_000_000 })
  const page = await server.enter(browser)
  await limit(page, '500 kB/s')
  await select(page, 'big.bin')
  await button(page, 'Download 1').click()
  await underway(page, 10)
  await page.reload()
  await card(page, 'interrupted').getByText('Only what is missing is sent').waitFor()
  await limit(page, 'None')
  await page.locator('.reason').getByRole('button', { name: 'Resume' }).click()
  await verified(page)
  assert.equal(sha256(await readFile(join(server.root, 'big.bin'))), await page.evaluate(async () => {
    const file = await (await (await navigator.storage.getDirectory()).getFileHandle('big.bin')).getFile()
    return [...new Uint8Array(await crypto.subtle.digest('SHA-256', await file.arrayBuffer()))].map(byte => byte.toString(16).padStart(2, '0')).join('')
  }))
})

withServer('continues by itself when the server was killed and is back', {}, async server => {
  await plant(server, { 'down.bin': 12_000_000 })
  const page = await server.enter(browser)
  const hash = await fill(page, 'picked.bin', 12_000_000)
  await limit(page, '500 kB/s')
  await button(page, 'Upload files').click()
  await select(page, 'down.bin')
  await button(page, 'Download 1').click()
  await underway(page, 10)
  await server.kill()
  await page.getByText(/^Connection lost/).first().waitFor()
  await server.restart()
  await limit(page, 'None')
  await verified(page, 'picked.bin')
  await verified(page, 'down.bin')
  assert.equal((await onDisk(server.root))['picked.bin'], hash)
  await page.locator('#connection-text', { hasText: 'Connected by' }).waitFor()
})

withServer('says that the disk is full and continues when there is space', { disk: '8m', filler: '6000000' }, async server => {
  const page = await server.enter(browser)
  await row(page, 'filler').waitFor()
  await fill(page, 'picked.bin', 5_000_000)
  await button(page, 'Upload files').click()
  await card(page, 'failed').getByText('The disk of the receiver is full').waitFor()
  await select(page, 'filler')
  await button(page, 'Delete').click()
  await page.locator('dialog .danger').click()
  await row(page, 'filler').waitFor({ state: 'detached' })
  await page.locator('.reason').getByRole('button', { name: 'Try again' }).click()
  await verified(page)
  await row(page, 'picked.bin').waitFor()
})

withServer('asks before it replaces, and keeps both where that is wanted', {}, async server => {
  await plant(server, { 'picked.bin': 'theirs' })
  const page = await server.enter(browser)
  await putPrivate(page, { 'picked.bin': 'mine' })
  await row(page, 'picked.bin').waitFor()
  await button(page, 'Upload files').click()
  await page.locator('dialog').getByRole('button', { name: 'Keep both' }).click()
  await row(page, 'picked (2).bin').waitFor()
  assert.equal(await readFile(join(server.root, 'picked.bin'), 'utf8'), 'theirs')
  assert.equal(await readFile(join(server.root, 'picked (2).bin'), 'utf8'), 'mine')
  await button(page, 'Upload files').click()
  await page.locator('dialog').getByRole('button', { name: 'Replace' }).click()
  await page.locator('.done .card').nth(1).waitFor()
  assert.equal(await readFile(join(server.root, 'picked.bin'), 'utf8'), 'mine')
})

withServer('reports files of a folder that are there already, and replaces them when asked to', {}, async server => {
  await plant(server, { 'picked/same.txt': 'theirs' })
  const page = await server.enter(browser)
  await row(page, 'picked').waitFor()
  await putPrivate(page, { 'picked/same.txt': 'mine', 'picked/new.txt': 'new' })
  await button(page, 'Upload folder').click()
  await page.locator('dialog').getByRole('button', { name: 'Keep those that are there' }).click()
  await card(page, 'partly').getByText('There is already a file of this name').waitFor()
  assert.equal(await readFile(join(server.root, 'picked/same.txt'), 'utf8'), 'theirs')
  await button(page, 'Replace and try again').click()
  await verified(page)
  assert.equal(await readFile(join(server.root, 'picked/same.txt'), 'utf8'), 'mine')
  assert.equal(await readFile(join(server.root, 'picked/new.txt'), 'utf8'), 'new')
})

withServer('shows and moves files with hostile names, and runs nothing', {}, async server => {
  const names = ['<img src=x onerror="window.pwned=1">.html', 'invoice\u202Efdp.exe', 'two\nlines.txt', "';alert(1);'.svg", '__proto__']
  await plant(server, Object.fromEntries(names.map(name => [name, `<script>window.pwned = 1</script>${name}`])))
  const bytes = Buffer.concat([Buffer.from(`${server.root}/bytes`), Buffer.from([0xe9]), Buffer.from('.txt')])
  await writeFile(bytes, 'not UTF-8')
  const page = await server.enter(browser)
  await shown(page)
  const text = await page.locator('.rows').innerText()
  for (const seen of ['<img src=x onerror="window.pwned=1">.html', 'invoiceU+202Efdp.exe', 'two↵lines.txt', '__proto__', 'bytes\\xe9.txt']) assert.ok(text.includes(seen), `${seen} in ${text}`)
  for (const shownName of ['<img src=x', "';alert(1);'"]) {
    await page.locator('.filename', { hasText: shownName }).click()
    await page.locator('#preview pre', { hasText: '<script>window.pwned = 1</script>' }).waitFor()
    await page.keyboard.press('Escape')
  }
  await row(page, '__proto__').locator('.check').click()
  await page.locator('.row', { hasText: 'U+202E' }).locator('.check').click()
  await button(page, 'Delete').click()
  await button(page, 'Delete 2 files').click()
  await row(page, '__proto__').waitFor({ state: 'detached' })
  const left = await readdir(server.root, { encoding: 'buffer' })
  assert.equal(left.length, names.length + 1 - 2)
  assert.equal(await page.evaluate(() => window.pwned), undefined)
  assert.deepEqual(page.errors, [])
})

withServer('goes on over HTTPS where UDP is blocked, and says so', {}, async server => {
  await plant(server, { 'down.bin': 2_000_000 })
  // As in a network without UDP: the browser's WebTransport never connects.
  const page = await server.enter(browser, { prepare: () => {
    globalThis.WebTransport = class {
      ready = Promise.reject(new Error('UDP is blocked'))
      closed = this.ready
      close() {}
    }
  } })
  await page.getByText('UDP is blocked here: slower, same verification.').waitFor()
  const hash = await fill(page, 'picked.bin', 3_000_000)
  await button(page, 'Upload files').click()
  await verified(page, 'picked.bin')
  await select(page, 'down.bin')
  await button(page, 'Download 1').click()
  await verified(page, 'down.bin')
  assert.equal((await onDisk(server.root))['picked.bin'], hash)
})

withServer('serves two tabs of a browser at once', {}, async server => {
  const page = await server.enter(browser)
  const other = await page.context().newPage()
  await other.goto(server.url)
  await other.locator('body.ready').waitFor()
  const hashes = {}
  for (const [tab, name] of [[page, 'one.bin'], [other, 'two.bin']]) {
    hashes[name] = await fill(tab, name, 3_000_000)
    await tab.evaluate(name => (globalThis.pickedFiles = [name]), name)
    await limit(tab, '2.00 MB/s')
  }
  for (const tab of [page, other]) await button(tab, 'Upload files').click()
  await verified(page, 'one.bin')
  await verified(other, 'two.bin')
  assert.deepEqual(await onDisk(server.root), hashes)
})

withServer('takes files and folders that are dropped on the list', {}, async server => {
  const outside = join(server.home, 'outside')
  await mkdir(join(outside, 'folder/deep/empty'), { recursive: true })
  await writeFile(join(outside, 'folder/deep/a.txt'), 'a')
  await writeFile(join(outside, 'folder/Grüße.txt'), 'Grüße')
  await writeFile(join(outside, 'single.bin'), 'single')
  const page = await server.enter(browser)
  await drop(page, [join(outside, 'folder'), join(outside, 'single.bin')])
  await verified(page)
  await row(page, 'folder').waitFor()
  assert.deepEqual(await onDisk(server.root), await onDisk(outside))
  assert.deepEqual(await readdir(join(server.root, 'folder/deep')), ['a.txt', 'empty'])
  assert.deepEqual(page.errors, [])
})

withServer('keeps working when the certificate of sessions is replaced again and again', { arguments: ['--web-rotate', '6000'] }, async server => {
  const hash = async page => (await page.evaluate(async () => (await fetch('connect.json')).json())).webtransport.hashes[0]
  await plant(server, { 'down.bin': 3_000_000 })
  const page = await server.enter(browser)
  const first = await hash(page)
  await limit(page, '500 kB/s')
  await select(page, 'down.bin')
  await button(page, 'Download 1').click()
  await underway(page)
  await page.waitForFunction(async first => (await (await fetch('connect.json')).json()).webtransport.hashes[0] !== first, first)
  // What runs goes on, and what begins now connects anew.
  await putPrivate(page, { 'picked.bin': 'after' })
  await button(page, 'Upload files').click()
  await verified(page, 'picked.bin')
  await limit(page, 'None')
  await verified(page, 'down.bin')
  await page.reload()
  await row(page, 'picked.bin').waitFor()
  await page.locator('#connection-text', { hasText: 'Connected by WebTransport' }).waitFor()
  assert.deepEqual(page.errors, [])
})

withServer('arrives compressed, in few round trips and below 300 KB', {}, async server => {
  const page = await server.open(browser, { prepare: () => performance.setResourceTimingBufferSize(500) })
  await page.getByLabel('This browser’s public key').waitFor()
  const seen = await page.evaluate(() => [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
    .map(({ name, transferSize, encodedBodySize, nextHopProtocol }) => ({ name, transferSize, encodedBodySize, nextHopProtocol })))
  const files = seen.filter(({ name }) => !name.endsWith('connect.json'))
  const bytes = files.reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0)
  console.log(`${seen.length} requests, ${bytes} bytes of files`)
  assert.ok(files.some(({ name }) => name.endsWith('.wasm')), 'all of it is loaded')
  assert.ok(bytes > 50_000 && bytes < 300_000, `${bytes} bytes`)
  assert.ok(seen.length <= 50, `${seen.length} requests`)
  for (const { name, nextHopProtocol } of seen) assert.equal(nextHopProtocol, 'h2', name)
})
