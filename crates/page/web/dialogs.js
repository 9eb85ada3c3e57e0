// Questions and messages, by the browser's own dialog.

import { h } from './format.js'
import { t } from './texts.js'

// Asks and returns the chosen action's value, or null. `field` asks for a line of text, which is
// then the result of the first action. An action is {label, value, kind}.
export function ask({ title, body = [], field, actions, wide = false }) {
  return new Promise(resolve => {
    let input
    const form = h('form', { method: 'dialog' })
    const id = `title-${Math.random().toString(36).slice(2, 8)}`
    const dialog = h(wide ? 'dialog.wide' : 'dialog', { 'aria-labelledby': id }, form)
    form.append(h('h2', { id }, title), ...[body].flat().map(part => (typeof part === 'string' ? h('p', {}, part) : part)))
    if (field) {
      input = h('input', { type: 'text', value: field.value ?? '', autocomplete: 'off', spellcheck: false, inputmode: field.inputmode })
      const wrong = h('p.wrong', { role: 'alert' })
      input.addEventListener('input', () => {
        const message = field.check?.(input.value) ?? ''
        input.setCustomValidity(message)
        wrong.textContent = message
      })
      form.append(h('label', {}, h('span', {}, field.label), input), wrong)
    }
    const buttons = (actions ?? []).map((action, at) =>
      h(`button${action.kind ? `.${action.kind}` : ''}`, { type: 'submit', value: String(at) }, action.label))
    buttons.push(h('button.quiet', { type: 'button', autofocus: actions?.[0].kind === 'danger', onclick: () => dialog.close('') }, actions ? t('cancel') : t('close')))
    form.append(h('div.actions', {}, buttons))
    // The browser focuses the first control, but never what destroys something.
    dialog.addEventListener('close', () => {
      const action = dialog.returnValue === '' ? undefined : actions?.[Number(dialog.returnValue)]
      dialog.remove()
      resolve(action ? (input ? { value: action.value, text: input.value } : action.value) : null)
    })
    dialog.addEventListener('click', event => event.target === dialog && dialog.close(''))
    document.body.append(dialog)
    dialog.showModal()
    if (input) {
      input.focus()
      const [from, to] = field.select ?? [0, input.value.length]
      input.setSelectionRange(from, to)
    }
  })
}

export const tell = (title, body, wide) => ask({ title, body, wide })

// Says why a name cannot be one.
export function badName(name, taken) {
  if (!name || name === '.' || name === '..' || name.includes('/') || name.includes('\0')) return t('name.wrong')
  if (new TextEncoder().encode(name).length > 255) return t('name.long')
  return taken?.has(name) ? t('name.taken') : ''
}
