// Starts the real `headroom serve --web` and opens its page.

import { spawn } from 'node:child_process'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { PATIENCE, usePrivateStorage } from './browser.js'

const program = process.env.HEADROOM

// A server with a folder of its own, which is gone when it is stopped.
export class Server {
  static async start(options = {}) {
    const server = new Server()
    server.home = await mkdtemp(join(tmpdir(), 'headroom-page-'))
    server.root = join(server.home, 'files')
    server.keys = join(server.home, 'authorized_keys')
    server.options = options
    await writeFile(server.keys, '')
    await mkdir(server.root)
    await server.launch('127.0.0.1:0')
    return server
  }

  // Starts the program at an address; `restart` uses the same again.
  async launch(address) {
    const words = ['serve', '--root', this.root, '--listen', '127.0.0.1:0', '--web', address, '--json', '--authorized-keys', this.keys, ...(this.options.arguments ?? [])]
    // A disk of its own, of so many bytes, in a mount namespace that ends with the server.
    const [command, first] = this.options.disk
      ? ['unshare', ['--mount', 'sh', '-c', 'mount -t tmpfs -o size=$1 tmpfs "$2" && head -c $3 /dev/zero > "$2/filler" && shift 3 && exec "$@"', 'sh', this.options.disk, this.root, this.options.filler, program]]
      : [program, []]
    this.process = spawn(command, [...first, ...words], {
      env: { PATH: process.env.PATH, HOME: this.home, XDG_CONFIG_HOME: join(this.home, 'config') }, stdio: ['ignore', 'pipe', 'pipe'],
    })
    let errors = ''
    this.process.stderr.on('data', data => (errors += data))
    this.ended = new Promise(resolve => this.process.on('exit', resolve))
    const failed = this.ended.then(() => { throw new Error(`the server ended: ${errors}`) })
    failed.catch(() => {})
    const ready = (async () => {
      for await (const line of createInterface({ input: this.process.stdout })) {
        const event = JSON.parse(line)
        if (event.event === 'page') return event
      }
    })()
    const event = await Promise.race([ready, failed])
    this.url = event.url
    this.address = event.address
    this.invitation = event.invitation
    this.process.stdout.resume()
  }

  async kill() {
    this.process.kill('SIGKILL')
    await this.ended
  }

  restart() {
    return this.launch(this.address)
  }

  async stop() {
    if (this.process.exitCode === null && this.process.signalCode === null) await this.kill()
    await rm(this.home, { recursive: true, force: true })
  }

  // Opens the page in a browser that the server does not know.
  async open(browser, { url = this.url, prepare, ...options } = {}) {
    const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: { width: 1280, height: 800 }, locale: 'en-GB', timezoneId: 'UTC', ...options })
    context.setDefaultTimeout(PATIENCE)
    await context.addInitScript(usePrivateStorage)
    if (prepare) await context.addInitScript(prepare)
    const page = await context.newPage()
    page.errors = []
    page.on('pageerror', error => page.errors.push(String(error)))
    await page.goto(url)
    return page
  }

  // Opens the page and adds the browser's key as its sign-in screen says.
  async enter(browser, options) {
    const page = await this.open(browser, options)
    const line = await page.getByLabel('This browser’s public key').inputValue()
    await this.authorize(line)
    await page.getByRole('button', { name: 'Check now' }).click()
    await page.locator('body.ready').waitFor()
    return page
  }

  async authorize(line) {
    await writeFile(this.keys, `${await readFile(this.keys, 'utf8')}${line}\n`)
  }
}
