// Keeps the queue of transfers, with handles of files, and the reader's settings.

const NAME = 'headroom-page'
let database

function open() {
  database ??= new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1)
    request.onupgradeneeded = () => {
      request.result.createObjectStore('transfers', { keyPath: 'id' })
      request.result.createObjectStore('verified', { keyPath: ['id', 'file'] })
    }
    request.onsuccess = () => resolve(request.result)
    request.onerror = () => reject(request.error)
  })
  return database
}

async function run(stores, mode, work) {
  const transaction = (await open()).transaction(stores, mode)
  const result = work(...stores.map(name => transaction.objectStore(name)))
  await new Promise((resolve, reject) => {
    transaction.oncomplete = resolve
    transaction.onerror = transaction.onabort = () => reject(transaction.error)
  })
  return result?.result
}

const filesOf = id => IDBKeyRange.bound([id, ''], [id, '\uffff'])

export const saveTransfer = record => run(['transfers'], 'readwrite', transfers => transfers.put(record))
export const transfersKept = () => run(['transfers'], 'readonly', transfers => transfers.getAll())
export const verifiedOf = id => run(['verified'], 'readonly', verified => verified.getAll(filesOf(id)))
export const saveVerified = files =>
  run(['verified'], 'readwrite', verified => files.forEach(file => verified.put(file)))
export const forgetVerified = id => run(['verified'], 'readwrite', verified => verified.delete(filesOf(id)))
export const forgetTransfer = id =>
  run(['transfers', 'verified'], 'readwrite', (transfers, verified) => {
    transfers.delete(id)
    verified.delete(filesOf(id))
  })

const DEFAULTS = { language: '', theme: '', awake: true, notify: false, own: false, sort: 'name', descending: false, limit: 0 }

// Reads a setting. A browser that keeps nothing gives the default.
export function setting(name) {
  try {
    return JSON.parse(localStorage.getItem(`headroom.${name}`)) ?? DEFAULTS[name]
  } catch {
    return DEFAULTS[name]
  }
}

export function keepSetting(name, value) {
  try {
    localStorage.setItem(`headroom.${name}`, JSON.stringify(value))
  } catch {
    // A private window may refuse; the setting then holds until the page is closed.
  }
}
