// Starts the real `headroom serve --web` and opens its page.

import { execFile, spawn } from 'node:child_process'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { PATIENCE, usePrivateStorage } from './browser.js'

const program = process.env.HEADROOM
const ip = (...words) => promisify(execFile)('ip', words)

// A network namespace for a server, at the end of a link that can go down.
class Network {
  static async make() {
    const network = new Network()
    const number = process.pid % 16384
    network.name = `headroom-page-${process.pid}`
    network.link = `hrp${process.pid}`
    network.host = `198.18.${number >> 6}.${((number & 63) << 2) + 1}`
    const near = `198.18.${number >> 6}.${((number & 63) << 2) + 2}`
    await ip('netns', 'add', network.name)
    try {
      await ip('link', 'add', network.link, 'type', 'veth', 'peer', 'name', 'server', 'netns', network.name)
      // no address comes a second later, which a browser takes for another network
      await ip('link', 'set', network.link, 'addrgenmode', 'none')
      await ip('address', 'add', `${near}/30`, 'dev', network.link)
      await ip('link', 'set', network.link, 'up')
      await ip('-n', network.name, 'link', 'set', 'lo', 'up')
      await ip('-n', network.name, 'address', 'add', `${network.host}/30`, 'dev', 'server')
      await network.up()
      await network.settled()
    } catch (error) {
      await network.remove()
      throw error
    }
    return network
  }

  up = () => ip('-n', this.name, 'link', 'set', 'server', 'up')
  // Waits until the kernel has said that the link is up: until then it is news for a browser.
  async settled() {
    const late = Date.now() + PATIENCE
    while (!(await ip('link', 'show', 'dev', this.link)).stdout.includes('state UP')) {
      if (Date.now() > late) throw new Error('the link does not come up')
      await sleep(20)
    }
  }

  down = () => ip('-n', this.name, 'link', 'set', 'server', 'down')
  // Its link goes with it.
  remove = () => ip('netns', 'delete', this.name)
}

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
    try {
      if (options.network) server.network = await Network.make()
      await server.launch(`${server.network?.host ?? '127.0.0.1'}:0`)
    } catch (error) {
      await server.stop()
      throw error
    }
    return server
  }

  // Starts the program at an address; `restart` uses the same again.
  async launch(address) {
    const words = ['serve', '--root', this.root, '--listen', '127.0.0.1:0', '--web', address, '--json', '--authorized-keys', this.keys, ...(this.options.arguments ?? [])]
    // A disk of its own, of so many bytes, in a mount namespace that ends with the server.
    const [command, first] = this.options.disk
      ? ['unshare', ['--mount', 'sh', '-c', 'mount -t tmpfs -o size=$1 tmpfs "$2" && head -c $3 /dev/zero > "$2/filler" && shift 3 && exec "$@"', 'sh', this.options.disk, this.root, this.options.filler, program]]
      : this.network ? ['ip', ['netns', 'exec', this.network.name, program]] : [program, []]
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
      return failed // its output ends before it does
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
    if (this.process && this.process.exitCode === null && this.process.signalCode === null) await this.kill()
    await this.network?.remove()
    await rm(this.home, { recursive: true, force: true })
  }

  // Opens the page in a browser that the server does not know.
  // So many requests for each of the files in `fail` fail, as when the network changes. A browser
  // may ask twice for a file that it has tried to fetch ahead.
  async open(browser, { url = this.url, prepare, pickers = true, fail = [], times = 1, ...options } = {}) {
    const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: { width: 1280, height: 800 }, locale: 'en-GB', timezoneId: 'UTC', ...options })
    context.setDefaultTimeout(PATIENCE)
    if (pickers) await context.addInitScript(usePrivateStorage)
    if (prepare) await context.addInitScript(prepare)
    for (const name of fail) await context.route(`**/${name}`, route => route.abort('connectionreset').catch(() => {}), { times })
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
