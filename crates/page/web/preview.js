// Shows the beginning of a text, or a picture, without trusting either: text is text, and a
// picture is decoded as one and as nothing else.

import { exactSize, fullDate, h, icon, nameElement, size } from './format.js'
import { isImage } from './list.js'
import { blobSink } from './local.js'
import { errorText } from './pane.js'
import { t } from './texts.js'

const TEXT_LIMIT = 256 * 1024
const WHOLE_LIMIT = 1024 * 1024 // where only whole files can be read
const IMAGE_LIMIT = 25 * 1024 * 1024

const IMAGE_TYPES = { png: 'png', jpg: 'jpeg', jpeg: 'jpeg', gif: 'gif', webp: 'webp', avif: 'avif', bmp: 'bmp', ico: 'x-icon' }

export class Preview extends EventTarget {
  // `verb` names what the button does: download, or copy.
  constructor(root, { verb = 'download' } = {}) {
    super()
    Object.assign(this, { root, verb })
    this.content = h('div.content', { tabIndex: 0 })
    this.head = h('div.preview-head')
    this.foot = h('div.preview-foot')
    root.append(this.head, this.content, this.foot)
    root.addEventListener('keydown', event => event.key === 'Escape' && this.close())
  }

  use(session) {
    this.session = session
  }

  async show(entry) {
    this.entry = entry
    this.stop?.abort()
    const stop = (this.stop = new AbortController())
    const { signal } = stop
    this.#forget()
    this.root.hidden = false
    this.closer = h('button.bare', { type: 'button', title: t('close'), 'aria-label': t('close'), onclick: () => this.close() }, icon('close'))
    this.head.replaceChildren(h('h2', {}, nameElement(entry.name)), this.closer)
    this.foot.replaceChildren(
      h('p', {}, [size(entry.size), entry.modified && fullDate(entry.modified)].filter(Boolean).join(' · ')),
      h('button.primary', { type: 'button', onclick: () => this.dispatchEvent(Object.assign(new Event('download'), { entry })) }, icon(this.verb), h('span', {}, t(this.verb))),
    )
    this.foot.firstChild.title = exactSize(entry.size)
    this.content.replaceChildren(h('p.message', {}, t('preview.loading')))
    this.content.focus({ preventScroll: true })
    try {
      const shown = isImage(entry) ? await this.#image(entry, signal) : await this.#text(entry, signal)
      if (!signal.aborted) this.content.replaceChildren(...[shown].flat())
    } catch (error) {
      if (!signal.aborted) this.content.replaceChildren(h('p.message', {}, errorText(error)))
    }
  }

  close() {
    if (this.root.hidden) return
    this.stop?.abort()
    this.#forget()
    this.root.hidden = true
    this.dispatchEvent(new Event('close'))
  }

  #forget() {
    if (this.address) URL.revokeObjectURL(this.address)
    this.address = null
  }

  async #whole(entry, most, signal) {
    const sink = blobSink(most)
    const outcome = await this.session.download(entry.path, sink, { signal })
    const [failed] = outcome?.failed ?? []
    if (failed) throw Object.assign(new Error(failed.reason), { code: failed.code })
    return (await sink.result())[0].file
  }

  async #image(entry, signal) {
    if (entry.size > IMAGE_LIMIT) return h('p.message', {}, t('preview.large', { size: size(IMAGE_LIMIT) }))
    const type = IMAGE_TYPES[entry.name.slice(entry.name.lastIndexOf('.') + 1).toLowerCase()]
    const file = await this.#whole(entry, IMAGE_LIMIT, signal)
    if (signal.aborted) return ''
    this.address = URL.createObjectURL(new Blob([file], { type: `image/${type}` }))
    const image = h('img', { alt: t('preview.image'), src: this.address })
    try {
      await image.decode()
    } catch {
      return h('p.message', {}, t('preview.broken'))
    }
    return image
  }

  async #text(entry, signal) {
    let bytes
    let more = false
    if (this.session.read) {
      bytes = await this.session.read(entry.path, { offset: 0, length: TEXT_LIMIT, signal })
      more = entry.size > bytes.length
    } else {
      if (entry.size > WHOLE_LIMIT) return h('p.message', {}, t('preview.large', { size: size(WHOLE_LIMIT) }))
      bytes = new Uint8Array(await (await this.#whole(entry, WHOLE_LIMIT, signal)).arrayBuffer())
      more = bytes.length > TEXT_LIMIT
      bytes = bytes.subarray(0, TEXT_LIMIT)
    }
    if (!bytes.length) return h('p.message', {}, t('preview.empty'))
    const text = decode(bytes)
    if (text === null) return h('p.message', {}, t('preview.binary'))
    return [h('pre', {}, text), more && h('p.message', {}, t('preview.more', { size: size(bytes.length) }))].filter(Boolean)
  }
}

// Returns the text, or null if this is none.
function decode(bytes) {
  if (bytes[0] === 0xff && bytes[1] === 0xfe) return new TextDecoder('utf-16le').decode(bytes)
  if (bytes.includes(0)) return null
  try {
    // As a stream, so that a character that the limit halves is no error.
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes, { stream: true })
  } catch {
    const text = new TextDecoder('windows-1252').decode(bytes)
    const odd = text.match(/[\x00-\x08\x0e-\x1f]/g)?.length ?? 0
    return odd > text.length / 100 ? null : text
  }
}
