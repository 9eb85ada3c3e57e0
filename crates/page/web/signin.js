// The screen of a reader whom the server does not know yet: the key to be added, and how.

import { h, icon } from './format.js'
import { t } from './texts.js'

const ASK_AGAIN = 2500 // ms; the server reads its list every two seconds

// Shows the screen in `root` until the server knows the key.
export function signIn(root, session, reason) {
  return new Promise((resolve, reject) => {
    let timer
    const state = h('p.state', { role: 'status' })
    const line = h('textarea.key', { readOnly: true, rows: 3, spellcheck: false, 'aria-label': t('sign.key'), onfocus: () => line.select() })
    line.value = session.key.line
    const copied = h('span', {}, t('copy'))
    const copy = h('button.primary', { type: 'button', onclick: async () => {
      try {
        await navigator.clipboard.writeText(session.key.line)
      } catch {
        line.focus()
        line.select()
        document.execCommand('copy')
      }
      copied.textContent = t('copied')
      setTimeout(() => (copied.textContent = t('copy')), 2000)
    } }, icon('copy'), copied)
    const again = h('button', { type: 'button', onclick: () => attempt(true) }, t('sign.again'))
    const screen = h('div.sign-in', {}, h('div.sheet', {},
      h('h2', { tabIndex: -1 }, t('sign.title')),
      h('p.lead', {}, reason ?? t('sign.text')),
      h('ol.steps', {},
        h('li', {}, h('p', {}, t('sign.step1')), line, h('div.actions', {}, copy)),
        h('li', {}, h('p', {}, t('sign.step2')), h('code.path', {}, '~/.config/headroom/authorized_keys')),
        h('li', {}, h('p', {}, t('sign.step3')), h('div.actions', {}, again), state)),
      h('p.aside', {}, t('sign.invitation')),
      h('dl.facts', {}, h('dt', {}, t('key.server')), h('dd', {}, h('code', {}, session.server.fingerprint)), h('dt', {}, t('key.yours')), h('dd', {}, h('code', {}, session.key.fingerprint))),
    ))
    root.append(screen)
    screen.querySelector('h2').focus()

    async function attempt(asked) {
      clearTimeout(timer)
      if (asked) state.textContent = t('sign.asking')
      try {
        await session.signIn({})
        document.removeEventListener('visibilitychange', seen)
        screen.remove()
        resolve()
      } catch (error) {
        if (error.code !== 'unauthorized') {
          document.removeEventListener('visibilitychange', seen)
          screen.remove()
          reject(error)
          return
        }
        if (asked) state.textContent = t('sign.unknown')
        if (!document.hidden) timer = setTimeout(attempt, ASK_AGAIN)
      }
    }
    // Whoever has just edited the file elsewhere comes back to a page that knows it.
    const seen = () => !document.hidden && attempt(false)
    document.addEventListener('visibilitychange', seen)
    timer = setTimeout(attempt, ASK_AGAIN)
  })
}
