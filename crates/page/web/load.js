// Opens the page again when one of its files did not arrive: a browser gives up what it is fetching
// when its network changes, and never asks for a module again.

const COUNT = 'headroom.loads'
const MOST = 5
const FIRST_PAUSE = 500 // ms

let failed = false

addEventListener('error', ({ target }) => {
  if (failed || !(target.tagName === 'SCRIPT' || target.rel === 'stylesheet')) return
  failed = true
  const before = Number(sessionStorage.getItem(COUNT) ?? 0)
  if (before >= MOST) return
  sessionStorage.setItem(COUNT, before + 1)
  setTimeout(() => location.reload(), FIRST_PAUSE * 2 ** before)
}, true)

addEventListener('load', () => failed || sessionStorage.removeItem(COUNT))
