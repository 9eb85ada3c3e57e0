// Starts the browser for a test.

import { createRequire } from 'node:module'

// The packages lie beside these scripts, or in the cache of scripts/fetch-parts.
export const require = createRequire(process.env.PAGE_MODULES ? `${process.env.PAGE_MODULES}/` : import.meta.url)
const { chromium } = require('playwright-core')

export const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium'

// A test waits for what happens, and on a busy machine that takes a while.
export const PATIENCE = 90_000

export const launch = (options = {}) => chromium.launch({ executablePath, timeout: PATIENCE, args: ['--no-sandbox'], ...options })

// Opens the page over the fake session. What the page reports as an error fails the test.
export async function openFake(browser, address, { fake = {}, hash = '', pickers = true, ...context } = {}) {
  const scope = await browser.newContext({ viewport: { width: 1280, height: 800 }, locale: 'en-GB', timezoneId: 'UTC', ...context })
  scope.setDefaultTimeout(PATIENCE)
  const page = await scope.newPage()
  page.errors = []
  page.on('pageerror', error => page.errors.push(String(error)))
  page.on('console', message => message.type() === 'error' && page.errors.push(message.text()))
  await page.addInitScript(options => (globalThis.fake = options), fake)
  await page.addInitScript(pickers ? usePrivateStorage : removePickers)
  await page.goto(address + hash)
  return page
}

// The browser's file dialogs cannot be driven: the pickers give files of the page's private storage.
export function usePrivateStorage() {
  globalThis.showDirectoryPicker = async () => {
    const root = await navigator.storage.getDirectory()
    return root.getDirectoryHandle(globalThis.pickedFolder ?? 'picked', { create: true })
  }
  globalThis.showSaveFilePicker = async ({ suggestedName }) => (await navigator.storage.getDirectory()).getFileHandle(suggestedName, { create: true })
  globalThis.showOpenFilePicker = async () => {
    const root = await navigator.storage.getDirectory()
    return Promise.all((globalThis.pickedFiles ?? ['picked.bin']).map(name => root.getFileHandle(name)))
  }
}

// What browsers other than Chromium have: no access to files that lasts.
function removePickers() {
  for (const name of ['showDirectoryPicker', 'showSaveFilePicker', 'showOpenFilePicker']) {
    delete globalThis[name]
    delete Window.prototype[name]
  }
}

// Puts files into the page's private storage: {path: size or text}.
export const putPrivate = (page, files) =>
  page.evaluate(async files => {
    for (const [path, content] of Object.entries(files)) {
      const parts = path.split('/')
      let folder = await navigator.storage.getDirectory()
      for (const name of parts.slice(0, -1)) folder = await folder.getDirectoryHandle(name, { create: true })
      const stream = await (await folder.getFileHandle(parts.at(-1), { create: true })).createWritable()
      await stream.write(typeof content === 'number' ? new Uint8Array(content) : content)
      await stream.close()
    }
  }, files)

export const rows = page => page.locator('.rows .row')
export const row = (page, name) => page.locator('.rows .row', { has: page.locator(`.filename:text-is(${JSON.stringify(name)})`) })
export const shown = page => page.locator('body.ready .rows .row').first().waitFor()

// Starts Firefox, which Playwright drives by WebDriver BiDi.
export async function launchFirefox() {
  const browser = await require('playwright-core').firefox.launch({ channel: 'moz-firefox', executablePath: process.env.FIREFOX, timeout: PATIENCE })
  // Firefox ESR has no such command, and no test here needs it.
  const session = Object.getPrototypeOf(browser._connection.toImpl(browser)._browserSession)
  const { send } = session
  session.send = function (method, params) {
    return method === 'emulation.setMediaFeaturesOverride' ? Promise.resolve({}) : send.call(this, method, params)
  }
  return browser
}
