// Reads and writes files in the browser's own file system, where only a worker can do so at any
// offset. One message is one operation; answers carry its number.

const FOLDER = 'downloads';

// Open files, by folder and key.
const open = new Map();

async function folderOf(folder, create) {
  const root = await navigator.storage.getDirectory();
  const downloads = await root.getDirectoryHandle(FOLDER, { create });
  return downloads.getDirectoryHandle(folder, { create });
}

const operations = {
  async open({ folder, key, size }) {
    const file = await (await folderOf(folder, true)).getFileHandle(key, { create: true });
    const access = await file.createSyncAccessHandle();
    open.set(`${folder}/${key}`, access);
    const there = access.getSize();
    if (there > size) access.truncate(size);
    return { result: { there: Math.min(there, size) } };
  },

  write({ folder, key, offset, bytes }) {
    const access = open.get(`${folder}/${key}`);
    // a file with a hole would seem to have what never came: it grows with zeros, which are hashed
    for (let written = 0; written < bytes.length;) {
      written += access.write(bytes.subarray(written), { at: offset + written });
    }
    return {};
  },

  read({ folder, key, offset, length }) {
    const bytes = new Uint8Array(length);
    const read = open.get(`${folder}/${key}`).read(bytes, { at: offset });
    return { result: bytes.subarray(0, read), transfer: [bytes.buffer] };
  },

  close({ folder, key, size, verified }) {
    const name = `${folder}/${key}`;
    const access = open.get(name);
    open.delete(name);
    if (access) {
      if (verified) access.truncate(size);
      access.flush();
      access.close();
    }
    return {};
  },

  async remove({ folder, key }) {
    for (const [name, access] of open) {
      if (!name.startsWith(`${folder}/${key ?? ''}`)) continue;
      access.close();
      open.delete(name);
    }
    const root = await navigator.storage.getDirectory();
    try {
      if (key) await (await folderOf(folder, false)).removeEntry(key);
      else await (await root.getDirectoryHandle(FOLDER)).removeEntry(folder, { recursive: true });
    } catch (error) {
      if (error.name !== 'NotFoundError') throw error;
    }
    return {};
  },
};

onmessage = async ({ data: { call, operation, ...parameters } }) => {
  try {
    const { result, transfer = [] } = await operations[operation](parameters);
    postMessage({ call, result }, transfer);
  } catch (error) {
    const code = error.name === 'QuotaExceededError' ? 'no-space' : error.name === 'NoModificationAllowedError' ? 'refused' : 'refused';
    const message = error.name === 'NoModificationAllowedError' ? 'another tab downloads this file' : error.name === 'QuotaExceededError' ? 'no space is left for this page in the browser' : error.message;
    postMessage({ call, error: { code, message } });
  }
};
