// Asks how to sync two folders, and shows what that would do before anything is done.

import { h, nameElement, number, quoted, size } from './format.js'
import { errorText } from './pane.js'
import { t } from './texts.js'
import { unwire, wire } from './ui-session.js'

const SHOWN = 1000 // lines of the preview

// Shows the dialog; resolves with the options of the sync that the reader wants, or null.
// `what` is {server, upload, from, to}, with labels of both folders.
export function askToSync(api, what, labels) {
  return new Promise(resolve => {
    const id = 'sync-title'
    const check = (key, value) => {
      const input = h('input', { type: 'checkbox', checked: value, onchange: () => outdated() })
      return { input, element: h('label.check-line', {}, input, h('span', {}, t(key))) }
    }
    const removing = check('ui.sync.delete', false)
    const checksum = check('ui.sync.checksum', false)
    const exclude = h('textarea', { rows: 2, spellcheck: false, id: 'sync-exclude', oninput: () => outdated() })
    const list = h('ul.plan', { tabIndex: 0, 'aria-label': t('ui.sync.preview'), hidden: true })
    const state = h('p.state', { role: 'status' })
    const preview = h('button', { type: 'button', onclick: () => compare() }, t('ui.sync.preview'))
    const start = h('button.primary', { type: 'button', disabled: true, onclick: () => finish(options()) }, t('ui.sync.do'))
    const quit = h('button.quiet', { type: 'button', onclick: () => dialog.close() }, t('cancel'))
    const dialog = h('dialog.wide', { 'aria-labelledby': id }, h('form', { onsubmit: event => event.preventDefault() },
      h('h2', { id }, t('ui.sync.what', { from: quoted(labels.source), to: quoted(labels.destination) })),
      h('dl.facts', {}, h('dt', {}, t('ui.sync.from')), h('dd', {}, nameElement(labels.source)), h('dt', {}, t('ui.sync.to')), h('dd', {}, nameElement(labels.destination))),
      removing.element, checksum.element,
      h('label', { for: 'sync-exclude' }, h('span', {}, t('ui.sync.exclude')), exclude),
      state, list, h('div.actions', {}, start, preview, quit)))
    let stop
    let result = null

    const options = () => ({
      ...what, from: wire(what.from), to: wire(what.to), delete: removing.input.checked, checksum: checksum.input.checked,
      exclude: exclude.value.split('\n').map(line => line.trim()).filter(Boolean), labels,
    })

    function outdated() {
      stop?.abort()
      start.disabled = true
      list.hidden = true
      state.textContent = ''
    }

    async function compare() {
      outdated()
      const controller = (stop = new AbortController())
      const { signal } = controller
      state.textContent = t('ui.sync.comparing')
      list.replaceChildren()
      try {
        for await (const message of api.lines('sync', { ...options(), dry_run: true }, { signal })) {
          if (signal.aborted) return
          for (const { path, bytes, what: kind } of message.planned ?? []) {
            list.hidden = false
            if (list.children.length < SHOWN) list.append(h(`li.${kind}`, {}, h('span.what', {}, t(`ui.sync.${kind}`)), nameElement(unwire(path)), h('span.size', {}, bytes ? size(bytes) : '')))
            else if (list.children.length === SHOWN) list.append(h('li', {}, t('ui.sync.more', { n: SHOWN })))
          }
          if (message.summary) summarise(message.summary, message.failures)
        }
      } catch (error) {
        if (!signal.aborted) state.textContent = errorText(error)
      }
    }

    function summarise({ stored, bytes, removed, unchanged, failed }, failures) {
      const parts = [stored || removed ? t('ui.sync.sum', { stored: number(stored), size: size(bytes), removed: number(removed), unchanged: number(unchanged) }) : t('ui.sync.nothing')]
      if (failed) parts.push(`${t('ui.sync.failed', { n: failed })}: ${failures[0] ?? ''}`)
      state.textContent = parts.join(' ')
      start.disabled = !(stored || removed)
      if (!start.disabled) start.focus()
    }

    function finish(chosen) {
      result = chosen
      dialog.close()
    }

    dialog.addEventListener('close', () => {
      stop?.abort()
      dialog.remove()
      resolve(result)
    })
    document.body.append(dialog)
    dialog.showModal()
    preview.focus()
  })
}
