// What tests of the page from the real server do.

import { createHash, randomBytes } from 'node:crypto'
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { launch, row } from './browser.js'
import { Server } from './server.js'

// Chromium, which the first test with a server starts.
export let browser
after(() => browser?.close())

// Disks and networks of their own need root.
const maySkip = process.getuid() !== 0 && !process.env.CI && process.env.HEADROOM_TESTS !== 'required'

// Runs a test with a server of its own.
export function withServer(name, options, work) {
  const skip = (options.disk || options.network) && maySkip && 'needs root'
  test(name, { timeout: options.timeout ?? 240_000, skip }, async () => {
    // a network of its own is news for a browser: first
    const server = await Server.start(options)
    try {
      browser ??= await launch()
      await work(server)
    } catch (error) {
      // What the page showed says more than what did not come.
      for (const page of (browser?.contexts() ?? []).flatMap(context => context.pages())) console.log(await page.locator('body').innerText({ timeout: 5000 }).catch(String), page.errors)
      throw error
    } finally {
      for (const context of browser?.contexts() ?? []) await context.close()
      await server.stop()
    }
  })
}

export const button = (page, name) => page.getByRole('button', { name, exact: true })
export const card = (page, state) => page.locator(`.card[data-state="${state}"]`)
export const verified = (page, name = '') => card(page, 'done').filter({ hasText: name }).getByText(/Verified at/).waitFor()
export const select = (page, name) => row(page, name).locator('.check').click()
export const sha256 = data => createHash('sha256').update(data).digest('hex')

// Waits until a transfer has moved some bytes, and not all.
export const underway = (page, least = 2) => page.waitForFunction(least => {
  const bar = document.querySelector('.card[data-state="running"] progress')
  return bar && bar.value * 100 > least && bar.value < 1
}, least)

// Limits the rate by the page's own control, so that a transfer lasts until the test has acted:
// 12 MB take 24 s, and a test acts after 3.
export const limit = (page, label) => page.getByLabel('Rate limit').selectOption({ label })

// Reads files of the page's private storage, where the test's pickers save: {path: SHA-256}.
export const stored = (page, folder) =>
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
export const fill = (page, path, size) =>
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

export async function onDisk(folder, prefix = '') {
  const found = {}
  for (const entry of await readdir(join(folder, prefix), { withFileTypes: true })) {
    const path = prefix ? `${prefix}/${entry.name}` : entry.name
    if (entry.isDirectory()) Object.assign(found, await onDisk(folder, path))
    else found[path] = sha256(await readFile(join(folder, path)))
  }
  return found
}

export const parts = async folder => (await readdir(folder)).filter(name => name.endsWith('.headroom-part'))

export async function plant(server, tree) {
  for (const [path, content] of Object.entries(tree)) {
    await mkdir(join(server.root, path, '..'), { recursive: true })
    await writeFile(join(server.root, path), typeof content === 'number' ? randomBytes(content) : content)
  }
}

// Drops files and folders of the disk on the list, as the browser does for a person's mouse.
export async function drop(page, files) {
  const session = await page.context().newCDPSession(page)
  const { x, y, width, height } = await page.locator('.list').boundingBox()
  const at = { x: x + width / 2, y: y + height / 2, data: { items: [], files, dragOperationsMask: 1 } }
  for (const type of ['dragEnter', 'dragOver', 'drop']) await session.send('Input.dispatchDragEvent', { type, ...at })
  await session.detach()
}
