// Modules of the page alone, without a browser and a server.

import assert from 'node:assert/strict'
import { test } from 'node:test'

const web = new URL('../../../page/web/', import.meta.url)
const { Pace } = await import(new URL('pace.js', web))

test('a new rate holds for every stream that waits', { timeout: 20_000 }, async () => {
  const pace = new Pace()
  pace.setRate(1)
  await pace.take(3600)
  const waiting = Array.from({ length: 5 }, () => pace.take(3600)) // for hours
  await new Promise(setImmediate) // they have begun to wait
  pace.setRate(null)
  await Promise.all(waiting)
})
