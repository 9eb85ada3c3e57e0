// One pane: a folder of a session, with its path, filter, list, and what can be done there.

import { ask, badName, tell } from './dialogs.js'
import { baseName, h, icon, join, nameElement, number, parentOf, quoted, setText, size } from './format.js'
import { FileList } from './list.js'
import { dropped, pick } from './local.js'
import { t } from './texts.js'
import { countBelow, errorOf } from './transfers.js'

const PATIENCE = 4000 // ms that counting before a deletion may take

// Says what went wrong, and the server's own words where they add something.
export function errorText(error) {
  const { code, message } = errorOf(error)
  const text = t(`error.${code}`)
  return message && message !== code ? `${text} (${quoted(message)})` : text
}

// Events: navigate {path}, download {entries}, upload {origin, folder, names}, preview {entry}.
export class Pane extends EventTarget {
  // `verb` names what the main button does: download, or copy to another pane. Without `uploads`
  // the pane takes no files of the browser.
  constructor(root, { verb = 'download', uploads = true } = {}) {
    super()
    Object.assign(this, { root, verb, uploads })
    this.path = ''
    this.session = null
    this.isStale = false
    this.#build()
  }

  #build() {
    const button = (name, action, kind = '') => {
      const element = h(`button.action${kind}`, { type: 'button', onclick: action }, icon(name), h('span'))
      return element
    }
    this.trail = h('nav.trail')
    this.filter = h('input.filter', { type: 'search', autocomplete: 'off', spellcheck: false, enterkeyhint: 'done' })
    this.uploadFiles = button('upload', () => this.#pick(false))
    this.uploadFolder = button('upload-folder', () => this.#pick(true))
    this.newFolder = button('new-folder', () => this.makeFolder())
    this.download = button(this.verb, () => this.startDownload())
    this.rename = button('rename', () => this.renameChosen(), '.slight')
    this.remove = button('delete', () => this.deleteChosen(), '.slight')
    this.share = button('link', () => this.#emit('share', { entry: this.list.chosen()[0] }), '.slight')
    this.look = button('eye', () => this.#emit('preview', { entry: this.list.chosen()[0] }), '.slight')
    this.grid = h('div.list', { role: 'grid', tabIndex: 0, 'aria-multiselectable': 'true' })
    this.busy = h('div.busy', { hidden: true })
    this.empty = h('div.empty', { hidden: true })
    this.sum = h('p.sum')
    this.drop = h('div.drop', { hidden: true }, h('p', {}, icon('upload'), h('span')))
    this.root.append(
      h('div.bar', {}, this.trail, h('div.search', {}, icon('search'), this.filter), h('div.tools', { role: 'group' }, this.download, this.uploadFiles, this.uploadFolder, this.newFolder)),
      h('div.stage', {}, this.busy, this.grid, this.empty, this.drop),
      h('div.status', {}, this.sum, h('div.tools', { role: 'group' }, this.look, this.share, this.rename, this.remove)),
    )
    const { list } = (this.list = new FileList(this.grid, { draggable: !this.uploads }), this)
    list.addEventListener('open', ({ entry }) => this.#open(entry))
    list.addEventListener('up', () => this.path && this.#emit('navigate', { path: parentOf(this.path) }))
    list.addEventListener('delete', () => this.writable && this.deleteChosen())
    list.addEventListener('rename', () => this.writable && this.renameChosen())
    list.addEventListener('filter', () => this.filter.focus())
    list.addEventListener('escape', () => this.filter.value && this.#clearFilter())
    list.addEventListener('select', () => this.#summarise())
    list.addEventListener('arranged', () => this.#summarise())
    list.addEventListener('activate', ({ entry }) => this.#emit('activate', { entry }))
    this.filter.addEventListener('input', () => list.setFilter(this.filter.value))
    this.filter.addEventListener('keydown', event => {
      if (event.key === 'Escape') this.#clearFilter()
      if (!['Escape', 'Enter', 'ArrowDown'].includes(event.key)) return
      event.preventDefault()
      this.grid.focus()
    })
    if (this.uploads) this.#listenForDrops()
    this.translate()
  }

  translate() {
    const label = (element, key) => {
      element.lastChild.textContent = t(key)
      element.title = t(`${key}.title`)
    }
    label(this.uploadFiles, 'upload.files')
    label(this.uploadFolder, 'upload.folder')
    label(this.newFolder, 'folder.new')
    label(this.rename, 'rename')
    label(this.remove, 'delete')
    label(this.look, 'preview')
    label(this.share, 'share')
    this.filter.placeholder = t('filter')
    this.filter.setAttribute('aria-label', t('filter'))
    this.filter.title = t('filter.title')
    this.trail.setAttribute('aria-label', t('path'))
    this.grid.setAttribute('aria-label', t('list'))
    for (const tools of this.root.querySelectorAll('.tools')) tools.setAttribute('aria-label', t('actions'))
    this.list.translate()
    if (this.session) this.#showPath()
    this.#summarise()
  }

  get writable() {
    return Boolean(this.session) && !this.session.server.readOnly
  }

  // Whether files can be sent here, and none be seen.
  get sendOnly() {
    return Boolean(this.session?.share?.write)
  }

  use(session) {
    this.session = session
    this.download.hidden = this.grid.hidden = this.sendOnly
    this.root.querySelector('.search').hidden = this.sendOnly
    for (const element of [this.uploadFiles, this.uploadFolder]) element.hidden = !this.writable || !this.uploads
    this.newFolder.hidden = !this.writable || this.sendOnly
  }

  #emit(type, detail) {
    this.dispatchEvent(Object.assign(new Event(type), detail))
  }

  #clearFilter() {
    this.filter.value = ''
    this.list.setFilter('')
    this.grid.focus()
  }

  // Shows a folder. `reveal` is the name to put the cursor on.
  async show(path, reveal) {
    const from = this.path
    this.path = path
    this.filter.value = ''
    this.list.reset()
    this.#showPath()
    this.empty.hidden = true
    // Going up puts the cursor on the folder one comes from.
    if (reveal === undefined && from.startsWith(path && `${path}/`)) reveal = from.slice(path && path.length + 1).split('/')[0]
    await this.#read(batch => this.list.append(batch), { meanwhile: () => this.list.grow(), reveal })
  }

  // Reads the folder again and keeps what is selected.
  async refresh(reveal) {
    const entries = []
    const take = batch => {
      for (const entry of batch) entries.push(entry)
    }
    await this.#read(take, { end: () => this.list.replace(entries), reveal })
  }

  // Reads the folder again because something in it has changed: now, or after the reading that
  // may have passed it already.
  refreshSoon() {
    if (this.reading) this.isStale = true
    else this.refresh()
  }

  async #read(take, { meanwhile, end, reveal }) {
    this.reading?.abort()
    this.isStale = false
    if (this.sendOnly) {
      this.reading = this.error = null
      this.list.replace([])
      this.#summarise()
      return
    }
    const controller = (this.reading = new AbortController())
    const slow = setTimeout(() => (this.busy.hidden = false), 150)
    let next = performance.now() + 60
    let pause = 200
    try {
      for await (const batch of this.session.list(this.path, { signal: controller.signal })) {
        if (controller.signal.aborted) return
        take(batch)
        if (meanwhile && performance.now() > next) {
          meanwhile()
          // Sorting again and again what grows would be slow: each time half as often.
          next = performance.now() + pause
          pause *= 2
        }
      }
      if (controller.signal.aborted) return
      meanwhile?.()
      end?.()
      this.error = null
      if (reveal !== undefined) this.list.reveal(reveal)
    } catch (error) {
      if (controller.signal.aborted) return
      this.error = error
      meanwhile?.()
    } finally {
      clearTimeout(slow)
      if (this.reading === controller) {
        this.busy.hidden = true
        this.reading = null
        this.#summarise()
        this.#emit('shown', {})
        if (this.isStale) this.refresh()
      }
    }
  }

  #showPath() {
    const names = this.path ? this.path.split('/') : []
    const root = this.session.server.root
    const link = (path, content, last) =>
      h('li', {}, h('a', {
        href: addressOf(path), 'aria-current': last ? 'page' : undefined,
        onclick: event => {
          if (event.ctrlKey || event.metaKey || event.shiftKey) return
          event.preventDefault()
          this.#emit('navigate', { path })
        },
      }, content))
    const home = h('span.home', {}, icon('home'), h('span', {}, root && root !== '/' ? nameElement(root) : t('root')))
    this.trail.replaceChildren(h('ol', {}, link('', home, !names.length),
      names.map((name, at) => link(names.slice(0, at + 1).join('/'), nameElement(name), at === names.length - 1))))
    this.trail.scrollLeft = this.trail.scrollWidth
  }

  #summarise() {
    if (!this.session) return
    const { list } = this
    const { selected } = list
    const chosen = selected.size ? list.entries.filter(entry => selected.has(entry.name)) : []
    const bytes = (selected.size ? chosen : list.shown).reduce((sum, entry) => sum + (entry.type === 'file' ? entry.size : 0), 0)
    const folders = list.shown.reduce((sum, entry) => sum + (entry.type === 'directory'), 0)
    const files = list.shown.length - folders
    const parts = selected.size
      ? [t('sum.selected', { n: selected.size })]
      : [folders && t('sum.folders', { n: folders }), (files || !folders) && t('sum.files', { n: files })]
    if (bytes) parts.push(size(bytes))
    if (list.filter && !selected.size) parts.push(t('sum.filtered', { n: list.entries.length }))
    if (this.sendOnly) parts.length = 0
    setText(this.sum, parts.filter(Boolean).join(' · '))
    setText(this.download.lastChild, selected.size ? t(`${this.verb}.chosen`, { n: selected.size }) : t(`${this.verb}.all`))
    this.download.title = t(`${this.verb}.${selected.size ? 'chosen' : 'all'}.title`)
    this.download.disabled = !list.shown.length
    this.download.classList.toggle('primary', !this.writable || selected.size > 0)
    this.rename.hidden = !this.writable || selected.size !== 1
    this.remove.hidden = !this.writable || !selected.size
    this.share.hidden = !this.session.mayShare || chosen.length !== 1 || !['file', 'directory'].includes(chosen[0].type)
    this.look.hidden = chosen.length !== 1 || chosen[0].type !== 'file'
    this.#showEmpty()
  }

  #showEmpty() {
    const nothing = !this.reading && !this.list.shown.length
    this.empty.hidden = !nothing
    if (!nothing) return
    const lines = this.sendOnly
      ? [h('p.headline', {}, t('share.put.headline')), h('p', {}, t('share.put.hint'))]
      : this.error
      ? [h('p.headline', {}, t('list.failed')), h('p', {}, errorText(this.error)), h('button', { type: 'button', onclick: () => this.show(this.path) }, t('retry'))]
      : this.list.filter
        ? [h('p.headline', {}, t('list.unmatched')), h('button', { type: 'button', onclick: () => this.#clearFilter() }, t('filter.clear'))]
        : [h('p.headline', {}, t('list.empty')), this.writable && this.uploads && h('p', {}, t('list.empty.hint'))]
    this.empty.replaceChildren(...lines.filter(Boolean))
  }

  #open(entry) {
    if (entry.type === 'directory') this.#emit('navigate', { path: entry.path })
    else if (entry.type === 'file') this.#emit('preview', { entry })
    else tell(t(entry.type === 'link' ? 'link.title' : 'other.title'), t(entry.type === 'link' ? (this.uploads ? 'link.text' : 'link.leads') : 'other.text', { target: quoted(entry.target ?? '') }))
  }

  // Downloads everything in the folder that is shown.
  downloadAll() {
    this.list.setFilter((this.filter.value = ''))
    this.list.selected.clear()
    this.list.arrange()
    this.startDownload()
  }

  startDownload() {
    const { list, path } = this
    // what is copied to a pane goes into the folder that it shows
    const whole = !list.selected.size && !list.filter && path && this.uploads
    const entries = whole ? [{ name: baseName(path), path, type: 'directory', size: 0 }] : list.selected.size ? list.chosen() : list.shown
    this.#emit('download', { entries: entries.filter(entry => entry.type === 'file' || entry.type === 'directory') })
  }

  async #pick(folder) {
    try {
      const origin = await pick(folder)
      if (origin) this.#emit('upload', { origin, folder: this.path, entries: this.list.entries })
    } catch (error) {
      tell(t('pick.failed'), errorText(error))
    }
  }

  #listenForDrops() {
    let depth = 0
    const ours = event => event.dataTransfer?.types.includes('Files')
    const show = shown => {
      this.drop.hidden = !shown
      this.drop.querySelector('span').textContent = this.writable
        ? t('drop', { folder: this.path ? quoted(this.path) : t('root') })
        : t('drop.refused')
    }
    this.root.addEventListener('dragenter', event => ours(event) && ((depth += 1), show(true)))
    this.root.addEventListener('dragleave', event => ours(event) && (depth -= 1) <= 0 && ((depth = 0), show(false)))
    this.root.addEventListener('dragover', event => {
      if (!ours(event)) return
      event.preventDefault()
      event.dataTransfer.dropEffect = this.writable ? 'copy' : 'none'
    })
    this.root.addEventListener('drop', async event => {
      if (!ours(event)) return
      event.preventDefault()
      depth = 0
      show(false)
      if (!this.writable) return
      const folder = this.path
      const { entries } = this.list
      try {
        const origin = await dropped(event.dataTransfer)
        this.#emit('upload', { origin, folder, entries })
      } catch (error) {
        tell(t('pick.failed'), errorText(error))
      }
    })
  }

  #names() {
    return new Set(this.list.entries.map(entry => entry.name))
  }

  async makeFolder() {
    const taken = this.#names()
    const answer = await ask({
      title: t('folder.new'),
      field: { label: t('name'), value: '', check: name => badName(name, taken) },
      actions: [{ label: t('folder.make'), value: 'make', kind: 'primary' }],
    })
    if (!answer || badName(answer.text, taken)) return
    await this.#change(() => this.session.makeDirectory(join(this.path, answer.text)), answer.text, t('folder.failed'))
  }

  async renameChosen() {
    const [entry, more] = this.list.chosen()
    if (!entry || more) return
    const taken = this.#names()
    taken.delete(entry.name)
    const dot = entry.type === 'directory' ? -1 : entry.name.lastIndexOf('.')
    const answer = await ask({
      title: t('rename.what', { name: quoted(entry.name) }),
      field: { label: t('name.new'), value: entry.name, select: [0, dot > 0 ? dot : entry.name.length], check: name => badName(name, taken) },
      actions: [{ label: t('rename'), value: 'rename', kind: 'primary' }],
    })
    if (!answer || answer.text === entry.name || badName(answer.text, taken)) return
    const { selected } = this.list
    await this.#change(async () => {
      await this.session.rename(entry.path, join(parentOf(entry.path), answer.text), { replace: false })
      if (selected.delete(entry.name)) selected.add(answer.text)
    }, answer.text, t('rename.failed'))
  }

  // Deletes after a question that names how many files that are.
  async deleteChosen() {
    const entries = this.list.chosen()
    if (!entries.length) return
    const count = await this.#countFiles(entries)
    const single = entries.length === 1
    const files = count.exact ? t('delete.files', { n: count.files }) : t('delete.many', { n: count.files })
    const shown = entries.slice(0, 5)
    const sure = await ask({
      title: single ? t('delete.one', { name: quoted(entries[0].name) }) : t('delete.several', { n: entries.length }),
      body: [
        ...(single && entries[0].type !== 'directory' ? [] : [h('p.strong', {}, `${files}${count.bytes ? `, ${size(count.bytes)}` : ''}`)]),
        single ? '' : h('ul.names', {}, shown.map(entry => h('li', {}, nameElement(entry.name))), entries.length > shown.length && h('li', {}, t('and-more', { n: entries.length - shown.length }))),
        t('delete.final'),
      ].filter(part => part !== ''),
      actions: [{ label: count.exact ? t('delete.do', { n: count.files }) : t('delete'), value: true, kind: 'danger' }],
    })
    if (!sure) return
    const next = this.list.shown[this.list.shown.indexOf(entries.at(-1)) + 1]?.name
    await this.#change(async () => {
      for (const entry of entries) await this.session.remove(entry.path, { recursive: entry.type === 'directory' })
      this.#emit('said', { text: t('delete.done', { n: entries.length }) })
    }, next, t('delete.failed'))
  }

  async #countFiles(entries) {
    const stop = AbortSignal.timeout(PATIENCE)
    const count = { files: 0, bytes: 0, exact: true }
    for (const entry of entries) {
      if (entry.type !== 'directory') {
        count.files += 1
        count.bytes += entry.type === 'file' ? entry.size : 0
        continue
      }
      try {
        this.sum.textContent = t('delete.counting', { n: count.files })
        const below = await countBelow(this.session, entry.path, stop, below => (this.sum.textContent = t('delete.counting', { n: count.files + below.files + below.others })))
        count.files += below.files + below.others
        count.bytes += below.bytes
      } catch (error) {
        count.files += error.counted?.files ?? 0
        count.exact = false
      }
    }
    this.#summarise()
    return count
  }

  // Changes something on the server and shows the folder as it is then.
  async #change(work, reveal, failed) {
    try {
      await work()
    } catch (error) {
      await tell(failed, errorText(error))
    }
    await this.refresh(reveal)
    this.grid.focus()
  }
}

// Returns the address of a folder. Bytes that are not UTF-8 do not survive in it.
export function addressOf(path) {
  return `#/${path.toWellFormed().split('/').map(encodeURIComponent).join('/')}`
}

export function pathOf(hash) {
  if (!hash.startsWith('#/')) return ''
  try {
    return hash.slice(2).split('/').map(decodeURIComponent).filter(name => name && name !== '.' && name !== '..').join('/')
  } catch {
    return ''
  }
}
