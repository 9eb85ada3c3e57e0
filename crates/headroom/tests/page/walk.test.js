// The page from the first visit to the last, as somebody without a terminal uses it: by an
// invitation, with a folder that is paused, reloaded, resumed, shared and withdrawn again.

import assert from 'node:assert/strict'
import { join } from 'node:path'
import { putPrivate, row } from './browser.js'
import { browser, button, card, fill, limit, onDisk, select, stored, underway, verified, withServer } from './steps.js'

withServer('sends a folder with interruptions, shares it, and revokes the link', { arguments: ['--invite'] }, async server => {
  const page = await server.open(browser, { url: server.invitation })
  await page.locator('body.ready').waitFor()
  const look = name => process.env.PAGE_LOOK && page.screenshot({ path: `${process.env.PAGE_LOOK}/walk-${name}.png` })
  await look('empty')
  await putPrivate(page, { 'picked/notes.txt': 'notes', 'picked/deep/er/small.txt': 'small' })
  await fill(page, 'picked/big.bin', 24_000_000)
  await limit(page, '1.00 MB/s')
  await button(page, 'Upload folder').click()
  await underway(page, 10)
  await look('underway')
  await page.getByRole('button', { name: /^Pause: / }).click()
  await card(page, 'paused').getByText('Paused').waitFor()
  await look('paused')
  await page.reload()
  await card(page, 'interrupted').waitFor()
  await look('reloaded')
  await limit(page, 'None')
  await page.getByRole('button', { name: /^Resume/ }).first().click()
  await verified(page)
  await look('verified')
  assert.deepEqual(await onDisk(join(server.root, 'picked')), await stored(page, 'picked'))

  await select(page, 'picked')
  await button(page, 'Share').click()
  await look('share')
  await button(page, 'Make the link').click()
  const link = await page.getByLabel('Link', { exact: true }).inputValue()
  await look('link')
  await page.keyboard.press('Escape')
  const guest = await server.open(browser, { url: link })
  await row(guest, 'notes.txt').waitFor()
  await button(guest, 'Download everything').click()
  await verified(guest)
  assert.deepEqual(await stored(guest, 'picked'), await onDisk(join(server.root, 'picked')))
  await button(page, 'Share links').click()
  await look('links')
  await page.getByRole('button', { name: /^Revoke the link to/ }).click()
  await page.getByText('There are no open links of yours.').waitFor()
  await look('revoked')
  const late = await server.open(browser, { url: link })
  await late.getByText('This link has expired or was revoked').waitFor()
  assert.deepEqual([...page.errors, ...guest.errors, ...late.errors], [])
})
