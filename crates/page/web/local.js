// Picks files and folders of this computer, reads them again after a reload where the browser
// keeps handles, and chooses where downloads go.

import * as sinks from './sinks.js'
import { h, join } from './format.js'
import { tar } from './tar.js'

// Chromium gives handles of files, which survive a reload. Others give the files alone.
export const keepsHandles = 'showOpenFilePicker' in window
export const savesToDisk = 'showSaveFilePicker' in window

const abandoned = error => error.name === 'AbortError'

// Lets the reader pick files or one folder; returns an origin, or null if they changed their mind.
export async function pick(folder) {
  if (!keepsHandles) return folder ? pickByInput({ webkitdirectory: true }) : pickByInput({})
  try {
    return { handles: folder ? [await showDirectoryPicker({ id: 'upload', mode: 'read' })] : await showOpenFilePicker({ id: 'upload', multiple: true }) }
  } catch (error) {
    if (abandoned(error)) return null
    throw error
  }
}

function pickByInput(options) {
  return new Promise(resolve => {
    const input = h('input', { type: 'file', multiple: true, ...options })
    input.addEventListener('change', () =>
      resolve({ files: [...input.files].map(file => fileOf(file, file.webkitRelativePath || file.name)) }))
    input.addEventListener('cancel', () => resolve(null))
    input.click()
  })
}

const fileOf = (file, path) => ({ path, file, modified: file.lastModified })

// Returns the origin that was dropped. The browser empties the drop when its event ends, so this
// asks for all of it before it waits for anything.
export async function dropped(transfer) {
  const items = [...transfer.items].filter(item => item.kind === 'file')
  if (items.length && items[0].getAsFileSystemHandle) {
    const handles = await Promise.all(items.map(item => item.getAsFileSystemHandle()))
    // What no disk holds, such as a picture from another page, has no handle.
    if (handles.every(handle => handle)) return { handles }
  }
  const entries = items.map(item => item.webkitGetAsEntry?.())
  const plain = [...transfer.files]
  if (!entries.length || entries.some(entry => !entry)) return { files: plain.map(file => fileOf(file, file.name)) }
  const files = []
  const folders = []
  await Promise.all(entries.map(entry => readEntry(entry, '', files, folders)))
  return { files, folders }
}

async function readEntry(entry, folder, files, folders) {
  const path = join(folder, entry.name)
  if (entry.isFile) {
    files.push(fileOf(await new Promise((resolve, reject) => entry.file(resolve, reject)), path))
    return
  }
  const reader = entry.createReader()
  let empty = true
  for (;;) {
    const batch = await new Promise((resolve, reject) => reader.readEntries(resolve, reject))
    if (!batch.length) break
    empty = false
    for (const child of batch) await readEntry(child, path, files, folders)
  }
  if (empty) folders.push(path)
}

// Names what an origin holds at its top.
export function topNames(origin) {
  if (origin.handles) return origin.handles.map(handle => ({ name: handle.name, folder: handle.kind === 'directory' }))
  const names = new Map()
  for (const { path } of origin.files) names.set(path.split('/')[0], path.includes('/'))
  for (const path of origin.folders ?? []) names.set(path.split('/')[0], true)
  return [...names].map(([name, folder]) => ({ name, folder }))
}

// Reads which files an origin has now, and which folders in it are empty. `names` maps names at
// its top to other names, or to null for those that are left out.
export async function collect({ handles, files: given, folders: empty, names }, signal) {
  let files = handles ? [] : given
  let folders = handles ? [] : (empty ?? [])
  for (const handle of handles ?? []) await readHandle(handle, '', files, folders, signal)
  const renamed = path => {
    const [top, ...rest] = path.split('/')
    if (!names?.has(top)) return path
    return names.get(top) && [names.get(top), ...rest].join('/')
  }
  files = files.map(file => ({ ...file, path: renamed(file.path) })).filter(file => file.path)
  folders = folders.map(renamed).filter(Boolean)
  files.sort((a, b) => (a.path < b.path ? -1 : 1))
  return { files, folders }
}

async function readHandle(handle, folder, files, folders, signal) {
  signal?.throwIfAborted()
  const path = join(folder, handle.name)
  if (handle.kind === 'file') {
    files.push(fileOf(await handle.getFile(), path))
    return
  }
  let empty = true
  for await (const child of handle.values()) {
    empty = false
    await readHandle(child, path, files, folders, signal)
  }
  if (empty) folders.push(path)
}

// Asks again for the access that a reload took away; true if all of it is granted. The browser
// shows its question only within a click.
export async function allowed(handles, mode, ask) {
  for (const handle of handles) {
    let state = (await handle.queryPermission?.({ mode })) ?? 'granted'
    if (state !== 'granted' && ask) state = (await handle.requestPermission?.({ mode })) ?? 'granted'
    if (state !== 'granted') return false
  }
  return true
}

// Chooses where a download goes: the file or folder that the reader picks, or the browser's own
// storage and from there its download folder. Null if they changed their mind.
export async function chooseTarget(entries) {
  const single = entries.length === 1 && entries[0].type === 'file'
  if (!savesToDisk) return { kind: 'browser', archive: !single }
  try {
    return single
      ? { kind: 'disk', handle: await showSaveFilePicker({ id: 'download', suggestedName: entries[0].name }) }
      : { kind: 'disk', handle: await showDirectoryPicker({ id: 'download', mode: 'readwrite' }) }
  } catch (error) {
    if (abandoned(error)) return null
    throw error
  }
}

// Makes the sink for a target. Its name is that of the transfer: what it has, it has after a reload.
export function sinkFor(target, id) {
  if (target.kind !== 'disk') return sinks.opfs({ name: id })
  return target.handle.kind === 'file' ? sinks.saveToFile(target.handle, { name: id }) : sinks.saveToDirectory(target.handle, { name: id })
}

export const blobSink = most => sinks.blob({ most })

// Hands files that arrived to the browser's downloads: one as it is, several as one tar archive,
// as a browser that has no folders for pages would mix up theirs.
export function saveAll(files, name) {
  if (files.length === 1 && !files[0].path.includes('/')) saveFile(files[0].file, files[0].path)
  else saveFile(tar(files), `${name}.tar`)
}

// Hands a file to the browser's downloads.
export function saveFile(file, name) {
  const address = URL.createObjectURL(file)
  h('a', { href: address, download: name }).click()
  setTimeout(() => URL.revokeObjectURL(address), 60_000)
}
