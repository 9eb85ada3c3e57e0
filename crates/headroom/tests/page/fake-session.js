// A session without a server: the interface of session.js over files that exist in this page's
// memory. `fake` in the window, set before the page starts, changes how it behaves.

export class TransferError extends Error {
  constructor(code, message) {
    super(message ?? code)
    this.code = code
  }
}

const options = {
  speed: 40e6, // bytes per second
  transport: 'webtransport', readOnly: false, authorized: true, name: 'files.example.org', root: '/srv/files',
  files: 0, // how many the folder "many" has
  full: Infinity, // after how many bytes the disk is full
  known: true, // whether signIn succeeds
  ...globalThis.fake,
}

const DAY = 86_400_000
const NOW = Date.UTC(2026, 10, 24, 9, 30)
const encoder = new TextEncoder()

const folder = (children = {}, modified = NOW) => ({ type: 'directory', children: new Map(Object.entries(children)), modified })
const file = (size, modified = NOW, content) => ({ type: 'file', size, modified, content })
const text = (content, modified = NOW) => file(encoder.encode(content).length, modified, encoder.encode(content))

const PIXEL = Uint8Array.from(atob('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='), letter => letter.charCodeAt(0))

function makeTree() {
  const many = folder()
  for (let at = 0; at < options.files; at += 1) many.children.set(`measurement ${at}.csv`, file((at * 7919) % 5_000_000, NOW - (at % 1000) * 3_600_000))
  return folder({
    ...(options.files ? { many } : {}),
    'Annual report 2025': folder({
      'Report 2025.pdf': file(18_442_120, NOW - 40 * DAY), 'Figures.xlsx': file(284_100, NOW - 41 * DAY),
      Charts: folder({ 'Revenue.svg': text('<svg onload="window.pwned = 1"></svg>'), 'Headcount.png': file(PIXEL.length, NOW - 44 * DAY, PIXEL) }, NOW - 44 * DAY),
    }, NOW - 40 * DAY),
    'Conference talks': folder({ 'Keynote.mp4': file(4_812_331_004, NOW - 12 * DAY) }, NOW - 12 * DAY),
    'Customer data (do not share)': folder({}, NOW - 200 * DAY),
    Photographs: folder({ 'IMG 0001.jpg': file(4_200_000, NOW - 90 * DAY), 'IMG 0002.jpg': file(3_900_000, NOW - 90 * DAY) }, NOW - 2 * DAY),
    'Site survey': folder({}, NOW - 5 * DAY),
    'backup-2026-11-23.tar.zst': file(41_220_993_221, NOW - DAY),
    'contract-signed.pdf': file(1_204_331, NOW - 9 * DAY),
    'debian-12.9.0-amd64-netinst.iso': file(661_651_456, NOW - 300 * DAY),
    'Interview with the harbour master, second take, corrected sound.wav': file(812_004_552, NOW - 3 * DAY),
    'latest.log': { type: 'link', size: 0, modified: NOW, target: 'logs/2026-11-24.log' },
    'Notes.md': text('# Notes\n\nThe harbour survey begins on Monday.\n\n<script>window.pwned = 1</script>\n', NOW - 3_600_000),
    'picture.png': file(PIXEL.length, NOW - 6 * DAY, PIXEL),
    'requirements.txt': text('numpy==2.1\nscipy==1.14\n', NOW - 16 * DAY),
    'seismic-2026-10.h5': file(12_004_112_384, NOW - 20 * DAY),
    'Übersicht Messstellen.csv': file(48_112, NOW - 15 * DAY),
    ...(options.hostile ? {
      '<img src=x onerror="window.pwned=1">.txt': text('<img src=x onerror="window.pwned=1">'),
      'invoice\u202Efdp.exe': file(1000), 'two\nlines.txt': file(10), ' leading and trailing ': file(10), 'bytes\udce9.txt': file(10),
      'שלום עולם.pdf': file(10), ['__proto__']: folder(), 'constructor': file(3), "'; alert(1); '.js": file(3), '${7*7}.txt': file(3),
    } : {}),
  })
}

const tree = makeTree()
const listeners = { onstate() {} }
globalThis.fakeControl = {
  tree,
  drop: seconds => session.lose(seconds),
  state: state => listeners.onstate(state),
  options,
  lists: 0, // that were read to the end
}

const names = path => path.split('/').filter(Boolean)

function find(path) {
  let node = tree
  for (const name of names(path)) node = node.children?.get(name)
  if (!node) throw new TransferError('not-found', path)
  return node
}

const entryOf = (name, path, node) => ({
  name, path: path ? `${path}/${name}` : name, type: node.type, size: node.size ?? 0, modified: node.modified,
  mode: node.type === 'directory' ? 0o755 : 0o644, target: node.target,
})

function wait(ms, signal) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason)
    const timer = setTimeout(resolve, ms)
    signal?.addEventListener('abort', () => (clearTimeout(timer), reject(signal.reason)), { once: true })
  })
}

function below(path, node, found = []) {
  if (node.type === 'file') found.push([path, node])
  for (const [name, child] of node.children ?? []) below(`${path}/${name}`, child, found)
  return found
}

const hashOf = async blob => [...new Uint8Array(await crypto.subtle.digest('SHA-256', await blob.slice(0, 1e6).arrayBuffer()))].map(byte => byte.toString(16).padStart(2, '0')).join('')

// What came of files before, by path; kept over a reload as a server would.
const partial = {
  get: path => Number(sessionStorage.getItem(`partial ${path}`) ?? 0),
  set: (path, bytes) => sessionStorage.setItem(`partial ${path}`, bytes),
  delete: path => sessionStorage.removeItem(`partial ${path}`),
}

let moved = 0
let limit = null

class Session {
  transport = options.transport
  server = { name: options.name, fingerprint: 'SHA256:LVC7PY6ur9Dk+WVIYQsgEU2uvTXAor8XoYLl+ZmNyRo', readOnly: options.readOnly, root: options.root }
  key = { fingerprint: 'SHA256:ZkAslGjFiUHdGf/WUL8rQvkib4PTvQatUV0OUQSncCA', line: 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f browser' }
  authorized = options.authorized
  online = true

  async signIn(secrets = {}) {
    globalThis.fakeControl.secrets = secrets
    if (!options.known && !(secrets.invite === 'good')) throw new TransferError('unauthorized')
    this.authorized = true
  }

  async *list(path, { signal } = {}) {
    const node = find(path)
    await wait(0, signal)
    let batch = []
    for (const [name, child] of node.children ?? []) {
      batch.push(entryOf(name, path, child))
      if (batch.length < 4000) continue
      yield batch
      batch = []
      await wait(0, signal)
    }
    yield batch
    globalThis.fakeControl.lists += 1
  }

  async read(path, { offset = 0, length, signal } = {}) {
    await wait(5, signal)
    const node = find(path)
    return (node.content ?? new Uint8Array(Math.min(node.size, 1000))).subarray(offset, offset + length)
  }

  #parent(path) {
    const parts = names(path)
    const name = parts.pop()
    return [find(parts.join('/')), name]
  }

  async makeDirectory(path) {
    const [parent, name] = this.#parent(path)
    if (parent.children.has(name)) throw new TransferError('exists', name)
    parent.children.set(name, folder({}, Date.now()))
  }

  async rename(from, to) {
    const [parent, name] = this.#parent(from)
    const [target, newName] = this.#parent(to)
    if (target.children.has(newName)) throw new TransferError('exists', newName)
    target.children.set(newName, parent.children.get(name))
    parent.children.delete(name)
  }

  async remove(path) {
    const [parent, name] = this.#parent(path)
    if (!parent.children.delete(name)) throw new TransferError('not-found', path)
  }

  async #move(path, total, signal, onprogress) {
    let bytes = partial.get(path)
    const present = bytes
    if (present) {
      onprogress?.({ file: path, bytes: 0, total, state: 'hashing' })
      await wait(30, signal)
    }
    onprogress?.({ file: path, bytes, total, state: 'moving', present })
    while (bytes < total) {
      await wait(20, signal)
      if (!this.online) continue
      const step = Math.min(total - bytes, (limit ? Math.min(limit, options.speed) : options.speed) / 50)
      moved += step
      if (moved > options.full) throw new TransferError('no-space', path)
      bytes += step
      partial.set(path, bytes)
      onprogress?.({ file: path, bytes, total, state: 'moving', present })
    }
    partial.delete(path)
  }

  async #each(items, signal, onprogress, work) {
    const failed = []
    let done = 0
    for (const item of items) {
      const path = item.path
      try {
        signal?.throwIfAborted()
        await work(item)
        done += 1
      } catch (error) {
        if (signal?.aborted) throw error
        const reason = error.code ?? error.message
        failed.push({ file: path, reason })
        onprogress?.({ file: path, bytes: 0, total: item.size ?? item.file?.size ?? 0, state: 'failed', reason })
      }
    }
    return { files: done, failed }
  }

  async download(paths, sink, { signal, onprogress } = {}) {
    const items = options.leaveOut ? [] : [paths].flat().flatMap(path => below(path, find(path)).map(([path, node]) => ({ path, node, size: node.size })))
    const base = [paths].flat()[0].split('/').slice(0, -1).join('/')
    return this.#each(items, signal, onprogress, async ({ path, node }) => {
      await this.#move(path, node.size, signal, onprogress)
      const blob = new Blob([node.content ?? new Uint8Array(Math.min(node.size, 1e6))])
      await sink.store(base ? path.slice(base.length + 1) : path, blob)
      onprogress?.({ file: path, bytes: node.size, total: node.size, state: 'verified', hash: await hashOf(blob) })
    })
  }

  async upload(files, directory, { signal, onprogress, replace } = {}) {
    return this.#each(files, signal, onprogress, async ({ path, file: content, modified }) => {
      let node = find(directory)
      const parts = path.split('/')
      for (const name of parts.slice(0, -1)) {
        if (!node.children.has(name)) node.children.set(name, folder({}, Date.now()))
        node = node.children.get(name)
      }
      if (node.children.has(parts.at(-1)) && !replace) throw new TransferError('exists')
      await this.#move(path, content.size, signal, onprogress)
      node.children.set(parts.at(-1), file(content.size, modified, new Uint8Array(await content.slice(0, 1e6).arrayBuffer())))
      onprogress?.({ file: path, bytes: content.size, total: content.size, state: 'verified', hash: await hashOf(content) })
    })
  }

  setRate(rate) {
    limit = rate
    globalThis.fakeControl.rate = rate
  }

  // Loses the connection for some time.
  lose(seconds) {
    this.online = false
    listeners.onstate({ state: 'reconnecting', retryAt: Date.now() + seconds * 1000 })
    setTimeout(() => {
      this.online = true
      listeners.onstate({ state: 'connected', transport: this.transport })
    }, seconds * 1000)
  }

  pause() {}
  resume() {}
  close() {}
}

const session = new Session()

export async function open({ onstate }) {
  listeners.onstate = onstate
  onstate({ state: 'connecting' })
  if (options.refuse) throw new TransferError(options.refuse, 'as the test wants')
  await wait(options.delay ?? 0)
  onstate({ state: 'connected', transport: session.transport })
  return session
}
