// Puts files into one tar archive (POSIX.1-2017, pax), without reading them: the archive is a list
// of references that the browser reads when it saves.

const BLOCK = 512
const encoder = new TextEncoder()

const padding = size => new Uint8Array((BLOCK - (size % BLOCK)) % BLOCK)
const octal = (value, length) => `${Math.floor(value).toString(8).padStart(length - 1, '0')}\0`

function header({ name, size, modified, type }) {
  const block = new Uint8Array(BLOCK)
  const put = (at, text) => block.set(encoder.encode(text), at)
  block.set(encoder.encode(name).subarray(0, 100), 0)
  put(100, octal(0o644, 8))
  put(108, octal(0, 8))
  put(116, octal(0, 8))
  put(124, octal(Math.min(size, 0o77777777777), 12)) // larger sizes are in the pax header
  put(136, octal(modified / 1000, 12))
  put(148, '        ')
  put(156, type)
  put(257, 'ustar\x0000')
  put(148, `${block.reduce((sum, byte) => sum + byte, 0).toString(8).padStart(6, '0')}\0 `)
  return block
}

// Writes a record of a pax header, whose length counts its own digits.
function record(key, value) {
  const rest = encoder.encode(` ${key}=${value}\n`).length
  let length = rest
  while (`${length}`.length + rest !== length) length = `${length}`.length + rest
  return `${length} ${key}=${value}\n`
}

// Returns the archive of [{path, file}] as a blob.
export function tar(files) {
  const parts = []
  for (const { path, file } of files) {
    // An archive's names are UTF-8: other bytes become %e9, so that names stay apart.
    const utf8 = path.replace(/\p{Cs}/gu, byte => `%${(byte.charCodeAt(0) & 0xff).toString(16)}`)
    const name = utf8.split('/').filter(part => part && part !== '.' && part !== '..').join('/')
    const modified = file.lastModified || Date.now()
    const pax = encoder.encode(record('path', name) + record('size', file.size))
    parts.push(header({ name: 'pax', size: pax.length, modified, type: 'x' }), pax, padding(pax.length))
    parts.push(header({ name, size: file.size, modified, type: '0' }), file, padding(file.size))
  }
  parts.push(new Uint8Array(2 * BLOCK))
  return new Blob(parts, { type: 'application/x-tar' })
}
