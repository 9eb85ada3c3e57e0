// The settings: language, theme, and what else a page has.

import { h } from './format.js'
import { keepSetting, setting } from './store.js'
import { LANGUAGES, loadLanguage, t } from './texts.js'

export function applyTheme() {
  document.documentElement.dataset.theme = setting('theme')
}

const line = (key, element) => h('div.setting', {}, h('label', { for: `set-${key}` }, t(`set.${key}`)), element)

function select(key, choices, apply) {
  const element = h('select', { id: `set-${key}`, onchange: () => {
    keepSetting(key, element.value)
    apply()
  } }, choices.map(([value, label]) => h('option', { value, selected: value === setting(key) }, label)))
  return line(key, element)
}

// Makes a setting that is on or off. `apply` gets its element.
export function toggle(key, apply) {
  const element = h('input', { type: 'checkbox', id: `set-${key}`, checked: setting(key), onchange: async () => {
    keepSetting(key, element.checked)
    await apply(element)
  } })
  return line(key, element)
}

// Shows the settings whenever they are opened. `translate` shows the page in another language,
// `more` returns further settings.
export function offerSettings({ translate, more = () => [] }) {
  const root = document.getElementById('settings')
  const show = () => root.replaceChildren(
    h('h2', {}, t('settings')),
    select('language', [['', t('set.system')], ...Object.entries(LANGUAGES)], async () => {
      await loadLanguage(setting('language'))
      translate()
      show()
      root.querySelector('#set-language').focus()
    }),
    select('theme', [['', t('set.system')], ['light', t('set.light')], ['dark', t('set.dark')]], applyTheme),
    ...more(),
  )
  root.addEventListener('toggle', event => event.newState === 'open' && show())
}
