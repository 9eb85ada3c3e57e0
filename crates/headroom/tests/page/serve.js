// Serves the page with fake-session.js in the place of the real session, under the same policy.
// As a program: node serve.js [PORT]

import { createServer } from 'node:http'
import { readFile } from 'node:fs/promises'
import { dirname, extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const here = dirname(fileURLToPath(import.meta.url))
const web = join(here, '../../../page/web')
const fakes = { '/session.js': 'fake-session.js', '/sinks.js': 'fake-sinks.js' }
const types = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' }

export const POLICY = [
  "default-src 'none'", "script-src 'self' 'wasm-unsafe-eval'", "style-src 'self'", "img-src 'self' blob:", "connect-src 'self'",
  "worker-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'",
].join('; ')

// Starts the server; returns its address and a function that stops it.
export async function serve(port = 0) {
  const server = createServer(async (request, response) => {
    const path = new URL(request.url, 'http://localhost').pathname
    const file = path === '/' ? 'index.html' : path.slice(1)
    try {
      if (file.includes('/')) throw new Error('one flat folder')
      const content = await readFile(fakes[path] ? join(here, fakes[path]) : join(web, file))
      response.writeHead(200, { 'Content-Type': types[extname(file)] ?? 'application/octet-stream', 'Content-Security-Policy': POLICY, 'Cache-Control': 'no-store' })
      response.end(content)
    } catch {
      response.writeHead(404).end()
    }
  })
  await new Promise(resolve => server.listen(port, '127.0.0.1', resolve))
  return { address: `http://localhost:${server.address().port}/`, stop: () => new Promise(resolve => server.close(resolve) && server.closeAllConnections()) }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) console.log((await serve(Number(process.argv[2] ?? 0))).address)
