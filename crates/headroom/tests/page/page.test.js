// The page from the real server, as a person uses it.

import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { launch, putPrivate, row, shown } from './browser.js'
import { Server } from './server.js'

let browser
before(async () => (browser = await launch()))
after(() => browser?.close())

// Runs a test with a server of its own.
function withServer(name, options, work) {
  // A disk of its own is mounted, which only root may.
  const skip = options.disk && process.getuid() !== 0 && !process.env.CI && process.env.HEADROOM_TESTS !== 'required' && 'needs root'
  test(name, { timeout: 240_000, skip }, async () => {
    const server = await Server.start(options)
    try {
      await work(server)
    } catch (error) {
      // What the page showed says more than what did not come.
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
const verified = (page, name = '') => card(page, 'done').filter({ hasText: name }).getByText(/Verified at/).waitFor()
const select = (page, name) => row(page, name).locator('.check').click()
const sha256 = data => createHash('sha256').update(data).digest('hex')

// Waits until a transfer has moved some bytes, and not all.
const underway = (page, least = 2) => page.waitForFunction(least => {
  const bar = document.querySelector('.card[data-state="running"] progress')
  return bar && bar.value * 100 > least && bar.value < 1
}, least)

// Limits the rate by the page's own control, so that a transfer lasts until the test has acted:
// 12 MB take 24 s, and a test acts after 3.
const limit = (page, label) => page.getByLabel('Rate limit').selectOption({ label })

// Reads files of the page's private storage, where the test's pickers save: {path: SHA-256}.
const stored = (page, folder) =>
  page.evaluate(async folder => {
    const found = {}
    const hex = buffer => [...new Uint8Array(buffer)].map(byte => byte.toString(16).padStart(2, '0')).join('')
    async function read(directory, prefix) {
      for await (const [name, handle] of directory.entries()) {
        if (handle.kind === 'directory') await read(handle, `${prefix}${name}/`)
        else found[prefix + name] = hex(await crypto.subtle.digest('SHA-256', await (await handle.getFile()).arrayBuffer()))
      }
    }
    let directory = await navigator.storage.getDirectory()
    for (const name of folder.split('/')) directory = await directory.getDirectoryHandle(name)
    await read(directory, '')
    return found
  }, folder)

// Fills a file of the page's private storage with bytes that do not repeat; returns their SHA-256.
const fill = (page, path, size) =>
  page.evaluate(async ({ path, size }) => {
    const parts = path.split('/')
    let folder = await navigator.storage.getDirectory()
    for (const name of parts.slice(0, -1)) folder = await folder.getDirectoryHandle(name, { create: true })
    const stream = await (await folder.getFileHandle(parts.at(-1), { create: true })).createWritable()
    const content = new Uint8Array(size)
    for (let at = 0; at < size; at += 65536) crypto.getRandomValues(content.subarray(at, at + 65536))
    await stream.write(content)
    await stream.close()
    return [...new Uint8Array(await crypto.subtle.digest('SHA-256', content))].map(byte => byte.toString(16).padStart(2, '0')).join('')
  }, { path, size })

async function onDisk(folder, prefix = '') {
  const found = {}
  for (const entry of await readdir(join(folder, prefix), { withFileTypes: true })) {
    const path = prefix ? `${prefix}/${entry.name}` : entry.name
    if (entry.isDirectory()) Object.assign(found, await onDisk(folder, path))
    else found[path] = sha256(await readFile(join(folder, path)))
  }
  return found
}

const parts = async folder => (await readdir(folder)).filter(name => name.endsWith('.headroom-part'))

async function plant(server, tree) {
  for (const [path, content] of Object.entries(tree)) {
    await mkdir(join(server.root, path, '..'), { recursive: true })
    await writeFile(join(server.root, path), typeof content === 'number' ? randomBytes(content) : content)
  }
}

withServer('lets a browser in when its key is added', {}, async server => {
  await plant(server, { 'hello.txt': 'hello' })
  const page = await server.enter(browser)
  await row(page, 'hello.txt').waitFor()
  await page.reload()
  await row(page, 'hello.txt').waitFor() // the key is kept
  assert.deepEqual(page.errors, [])
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
  await underway(page, 25) // so that each of the four pieces has a whole span at the server
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
