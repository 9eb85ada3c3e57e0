// Sinks for fake-session.js, with the names of those in sinks.js.

async function write(handle, blob) {
  const stream = await handle.createWritable()
  await stream.write(blob)
  await stream.close()
}

export const saveToFile = handle => ({ store: (path, blob) => write(handle, blob) })

export const saveToDirectory = root => ({
  async store(path, blob) {
    const parts = path.split('/')
    let folder = root
    for (const name of parts.slice(0, -1)) folder = await folder.getDirectoryHandle(name, { create: true })
    await write(await folder.getFileHandle(parts.at(-1), { create: true }), blob)
  },
})

export function blob({ most = Infinity } = {}) {
  const files = []
  return { async store(path, content) { if (content.size > most) throw new Error('too long'); files.push({ path, file: new File([content], path) }) }, result: async () => files }
}

export const opfs = () => ({ ...blob(), async remove() {} })
