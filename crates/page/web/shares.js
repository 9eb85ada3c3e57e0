// Share links: makes them, lists and ends them, and says in a session that came by one what it is.

import { ask, tell } from './dialogs.js'
import { fullDate, h, icon, quoted, visible } from './format.js'
import { errorText } from './pane.js'
import { t } from './texts.js'

const HOUR = 3600
const EXPIRIES = [HOUR, 24 * HOUR, 7 * 24 * HOUR, 30 * 24 * HOUR, 365 * 24 * HOUR] // seconds
const USES = [0, 1, 2, 5, 10, 100] // 0 is any number

const expiryText = seconds => (seconds < 24 * HOUR ? t('share.hours', { n: seconds / HOUR }) : t('share.days', { n: seconds / (24 * HOUR) }))
const usesText = uses => (uses ? t('share.uses', { n: uses }) : t('share.uses.any'))

function choice(id, label, values, text, chosen) {
  const select = h('select', { id }, values.map(value => h('option', { value: String(value), selected: value === chosen }, text(value))))
  return [select, h('label', { for: id }, h('span', {}, label), select)]
}

// Asks what a link to an entry allows, makes it, and shows it once.
export async function shareEntry(session, entry) {
  const [expiry, expiryLabel] = choice('share-expiry', t('share.expiry'), EXPIRIES, expiryText, 7 * 24 * HOUR)
  const [uses, usesLabel] = choice('share-uses', t('share.count'), USES, usesText, 0)
  const put = h('input', { type: 'checkbox', id: 'share-put' })
  const mayPut = entry.type === 'directory' && !session.server.readOnly
  const answer = await ask({
    title: t('share.what', { name: quoted(entry.name) }),
    body: [expiryLabel, usesLabel, ...(mayPut ? [h('label.inline', { for: 'share-put' }, put, h('span', {}, t('share.put')))] : []), t('share.text')],
    field: { label: t('share.note'), value: '', check: text => (new TextEncoder().encode(text).length > 64 ? t('share.note.long') : '') },
    actions: [{ label: t('share.make'), value: 'make', kind: 'primary' }],
  })
  if (!answer) return
  try {
    const made = await session.createShare(entry.path, { seconds: Number(expiry.value), uses: Number(uses.value), write: put.checked, name: answer.text })
    await showLink(made)
  } catch (error) {
    await tell(t('share.failed'), errorText(error))
  }
}

function showLink({ link, expires, uses }) {
  const line = h('textarea.key', { readOnly: true, rows: 3, spellcheck: false, 'aria-label': t('share.link'), onfocus: () => line.select() })
  line.value = link
  const copied = h('span', {}, t('copy'))
  const copy = h('button.primary', { type: 'button', onclick: async () => {
    try {
      await navigator.clipboard.writeText(link)
    } catch {
      line.focus()
      line.select()
      document.execCommand('copy')
    }
    copied.textContent = t('copied')
  } }, icon('copy'), copied)
  return ask({ title: t('share.made'), body: [line, h('div.actions', {}, copy), t('share.once', { date: fullDate(expires), uses: usesText(uses) })] })
}

// Lists the links of this key, each with a button that ends it.
export async function showShares(session, say) {
  let all
  try {
    all = await session.shares()
  } catch (error) {
    await tell(t('shares.title'), errorText(error))
    return
  }
  const nothing = h('p', { hidden: all.length > 0 }, t('shares.none'))
  const rows = all.map(share => {
    const wrong = h('p.wrong', { role: 'alert' })
    const row = h('li', {},
      h('div', {}, h('p.strong', {}, `${visible(`/${share.path}`)}${share.name ? ` · ${visible(share.name)}` : ''}`),
        h('p', {}, [t(share.write ? 'share.direction.put' : 'share.direction.get'), t('share.until', { date: fullDate(share.expires) }), t('share.used', { n: share.used }), usesText(share.uses)].join(' · ')), wrong),
      h('button', { type: 'button', 'aria-label': t('share.revoke.what', { name: quoted(`/${share.path}`) }), onclick: async () => {
        try {
          await session.revokeShare(share.id)
        } catch (error) {
          if (error.code !== 'not-found') {
            wrong.textContent = errorText(error)
            return
          }
        }
        say(t('share.revoked'))
        const list = row.parentElement
        row.remove()
        nothing.hidden = list.children.length > 0
        ;(list.querySelector('button') ?? list.closest('dialog').querySelector('.quiet')).focus()
      } }, t('share.revoke')))
    return row
  })
  await ask({ title: t('shares.title'), body: [h('ul.shares', {}, rows), nothing], wide: true })
}

// Says above the list what a link shares, by whom and until when. `leave`, where this browser has
// access of its own, returns to that.
export function showShared(root, session, downloadAll, leave) {
  const { share } = session
  root.hidden = !share
  if (!share) return
  const name = share.path ? quoted(share.path) : t('root')
  root.replaceChildren(
    h('div', {},
      h('p.strong', {}, t(share.write ? 'shared.put' : 'shared.get', { name, by: quoted(share.by) })),
      h('p', {}, [share.name && visible(share.name), t('share.until', { date: fullDate(share.expires) }), usesText(share.uses)].filter(Boolean).join(' · ')),
      leave ? h('p', {}, t('shared.own')) : ''),
    h('span.actions', {},
      leave ? h('button', { type: 'button', onclick: leave }, t('shared.leave')) : '',
      share.write ? '' : h('button.primary', { type: 'button', onclick: downloadAll }, icon('download'), h('span', {}, t('shared.download')))),
  )
}
