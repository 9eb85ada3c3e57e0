// Looks for barriers with axe-core.

import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { require } from './browser.js'

const source = await readFile(require.resolve('axe-core/axe.min.js'), 'utf8')

// Fails with the rules that are violated and where.
export async function check(page, what) {
  // By the debugger: the page's policy allows no script of others.
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(source)
  const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ['violations'] }))
  const found = violations.map(({ id, help, nodes }) => `${id} (${help}): ${nodes.map(node => `${node.target} ${node.any[0]?.message ?? ''}`).slice(0, 4).join('; ')}`)
  assert.deepEqual(found, [], what)
}
