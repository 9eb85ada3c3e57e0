// Starts the real `headroom ui`, and `headroom serve` for its other pane.

import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { homedir, tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { PATIENCE } from './browser.js'

const program = process.env.HEADROOM

// Starts a program that prints JSON lines; `event` is the first of a kind.
async function begin(words, kind, { env, cwd, wrap = [] }) {
  const [command, ...first] = [...wrap, program]
  const child = spawn(command, [...first, ...words], { env, cwd, stdio: ['ignore', 'pipe', 'pipe'] })
  child.printed = ''
  child.stderr.on('data', data => (child.printed += data))
  const ended = (child.ended = new Promise(resolve => child.on('exit', (code, signal) => resolve({ code, signal }))))
  const ready = (async () => {
    for await (const line of createInterface({ input: child.stdout })) {
      const event = JSON.parse(line)
      if (event.event === kind) return event
    }
  })()
  const failed = ended.then(() => { throw new Error(`${words[0]} ended: ${child.printed}`) })
  failed.catch(() => {})
  child.event = await Promise.race([ready, failed])
  child.stdout.resume()
  return child
}

// Stands in for ssh: runs what is to be run there on this machine.
const SSH = `#!/bin/sh
case " $* " in *" -G "*) echo hostname 127.0.0.1; exit;; esac
for last; do :; done
exec sh -c "$last"
`

const running = child => child && child.exitCode === null && child.signalCode === null

async function kill(child, signal = 'SIGKILL') {
  if (running(child)) child.kill(signal)
  return child?.ended
}

// This machine's files in one folder and a server's in another, both gone when it is stopped.
export class Command {
  static async start({ served = true, known = false, ssh = false } = {}) {
    const command = new Command()
    command.home = await mkdtemp(join(tmpdir(), 'headroom-ui-'))
    command.here = join(command.home, 'here')
    command.there = join(command.home, 'there')
    await mkdir(command.here)
    await mkdir(command.there)
    const env = { PATH: process.env.PATH, HOME: command.home, XDG_CONFIG_HOME: join(command.home, 'config'), XDG_CACHE_HOME: process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache') }
    command.env = env
    if (served) {
      const key = await output(['identity'], env)
      command.keys = join(command.home, 'authorized_keys')
      await writeFile(command.keys, key.split('\n')[0] + '\n')
      await command.serve('127.0.0.1:0')
      if (known) await output(['trust', command.server, '--fingerprint', command.serving.event.fingerprint], env)
    }
    const words = ['ui', '--no-open', '--json', ...(served ? [command.server] : [])]
    if (ssh) {
      const script = join(command.home, 'ssh')
      await writeFile(script, SSH, { mode: 0o755 })
      words.push('--ssh-command', script, 'user@127.0.0.1')
    }
    command.ui = await begin(words, 'page', { env, cwd: command.here })
    command.url = command.ui.event.url
    command.origin = new URL(command.url).origin
    command.token = new URLSearchParams(new URL(command.url).hash.slice(1)).get('token')
    return command
  }

  async serve(listen) {
    const identity = join(this.home, 'server-identity')
    this.serving = await begin(['serve', '--root', this.there, '--listen', listen, '--json', '--identity', identity, '--authorized-keys', this.keys], 'listening', { env: this.env })
    this.server = this.serving.event.address
  }

  // Starts a run of a fleet's job, and returns when its queue is there.
  async runFleet(file) {
    this.fleet = await begin(['fleet', 'run', '--json', file], 'progress', { env: this.env, cwd: this.home })
    return this.fleet
  }

  async stop() {
    await kill(this.fleet)
    await kill(this.ui)
    await kill(this.serving)
    await rm(this.home, { recursive: true, force: true })
  }

  // Opens the page.
  async open(browser, { url = this.url, ...options } = {}) {
    const context = options.context ?? (await browser.newContext({ viewport: { width: 1280, height: 800 }, locale: 'en-GB', timezoneId: 'UTC', ...options }))
    context.setDefaultTimeout(Number(process.env.PAGE_PATIENCE ?? PATIENCE))
    const page = await context.newPage()
    page.errors = []
    page.on('pageerror', error => page.errors.push(String(error)))
    page.on('console', message => message.type() === 'error' && page.errors.push(message.text()))
    if (process.env.PAGE_FROM_DISK) await fromDisk(page)
    await page.goto(url)
    return page
  }
}

// Serves the page's modules from the source folder, while somebody works on them.
async function fromDisk(page) {
  const web = new URL('../../../page/web/', import.meta.url)
  await page.route(/\.(js|css)$/, async route => {
    const name = new URL(route.request().url()).pathname.slice(1)
    const body = await readFile(new URL(name, web)).catch(() => null)
    if (body) await route.fulfill({ body, contentType: name.endsWith('.css') ? 'text/css' : 'text/javascript' })
    else await route.continue()
  })
}

// Runs a command to its end and returns what it prints.
export function output(words, env) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, words, { env, stdio: ['ignore', 'pipe', 'pipe'] })
    let printed = ''
    for (const stream of [child.stdout, child.stderr]) stream.on('data', data => (printed += data))
    child.on('exit', code => (code === 0 ? resolve(printed) : reject(new Error(`${words.join(' ')}: ${printed}`))))
  })
}

// Returns {path: SHA-256} of all files below a folder.
export async function tree(folder) {
  const found = {}
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue
    const path = join(entry.parentPath, entry.name)
    found[path.slice(folder.length + 1)] = createHash('sha256').update(await readFile(path)).digest('hex')
  }
  return found
}
