// Writes what a transfer proved: which files, their sizes and hashes, and the key that
// the server states. A browser cannot have the server prove that key.

import { exactSize, fullDate, visible } from './format.js'
import { t } from './texts.js'

// Returns the receipt of a transfer as an object for JSON.
export function receipt(transfer, session) {
  const files = []
  const failed = []
  for (const [path, file] of transfer.files) {
    if (file.state === 'verified') files.push({ path, size: file.total, blake3: file.hash ?? null, verified: iso(file.time) })
    else failed.push({ path, size: file.total, reason: file.reason?.code ?? file.state })
  }
  return {
    format: 'headroom-receipt/1',
    direction: transfer.direction === 'up' ? 'upload' : 'download',
    server: session.server.proved ? { name: session.server.name, key: session.server.fingerprint } : { name: session.server.name, key_stated: session.server.fingerprint },
    client: { key: session.key?.fingerprint ?? null },
    transport: session.transport,
    source: transfer.source,
    destination: transfer.destination,
    started: iso(transfer.started),
    finished: iso(transfer.finished),
    bytes: files.reduce((sum, file) => sum + file.size, 0),
    files,
    failed,
  }
}

const iso = ms => (ms ? new Date(ms).toISOString() : null)

export const receiptJson = content => JSON.stringify(content, null, 2) + '\n'

// Returns the receipt as text to read, one file on two lines.
export function receiptText(content) {
  const line = (label, value) => `${label}: ${value}`
  return [
    t('receipt.title'),
    '',
    line(t('receipt.direction'), t(content.direction === 'upload' ? 'receipt.upload' : 'receipt.download')),
    line(t('receipt.server'), visible(content.server.name)),
    content.server.key ? line(t('receipt.server-key-proved'), content.server.key) : line(t('receipt.server-key'), content.server.key_stated),
    ...(content.client.key ? [line(t('receipt.client-key'), content.client.key)] : []),
    line(t('receipt.from'), visible(content.source)),
    line(t('receipt.to'), visible(content.destination)),
    line(t('receipt.started'), fullDate(Date.parse(content.started))),
    line(t('receipt.finished'), fullDate(Date.parse(content.finished))),
    line(t('receipt.files'), t('receipt.sum', { n: content.files.length, size: exactSize(content.bytes) })),
    '',
    ...content.files.flatMap(file => [visible(file.path), `  ${exactSize(file.size)}  BLAKE3 ${file.blake3 ?? '?'}  ${file.verified ?? ''}`]),
    ...(content.failed.length ? ['', t('receipt.failed', { n: content.failed.length })] : []),
    ...content.failed.map(file => `${visible(file.path)}: ${file.reason}`),
    '',
  ].join('\n')
}
