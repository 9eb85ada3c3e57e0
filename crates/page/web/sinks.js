// Where downloads go: memory, the browser's own file system (OPFS), or files and directories of
// the user (File System Access). `open(path, size, {modified})` begins a file.
//
// What goes to the user's files is kept in OPFS until it is verified, because only there an
// interrupted download survives the tab: a writable of File System Access keeps nothing until it
// is closed.

import { TransferError } from './errors.js';
import { toBytes } from './paths.js';

const SPAN = 1 << 20;
// The folder of downloads in OPFS.
const FOLDER = 'downloads';

// Keeps files in memory, of at most so many bytes each.
export function blob({ most = Infinity } = {}) {
  const results = [];
  return {
    async open(path, size) {
      if (size > most) throw new TransferError('refused', 'it is longer than was listed');
      const parts = new Map();
      return {
        have: () => null,
        write(offset, bytes) {
          parts.set(offset, bytes);
        },
        close() {
          const ordered = [...parts].sort(([a], [b]) => a - b).map(([, bytes]) => bytes);
          results.push({ path, file: new File(ordered, path.split('/').pop()) });
        },
        abort() {
          parts.clear();
        },
      };
    },
    async result() {
      return results;
    },
  };
}

// The worker that reads and writes files in OPFS, of all sinks.
let worker = null;
let calls = new Map();
let nextCall = 0;

function call(operation, parameters, transfer = []) {
  if (!worker) {
    worker = new Worker(new URL('opfs-worker.js', import.meta.url), { type: 'module' });
    worker.onmessage = ({ data: { call, result, error } }) => {
      const { resolve, reject } = calls.get(call);
      calls.delete(call);
      if (error) reject(new TransferError(error.code, error.message));
      else resolve(result);
    };
    worker.onerror = event => {
      for (const { reject } of calls.values()) reject(new TransferError('refused', `the browser's storage: ${event.message}`));
      calls = new Map();
      worker = null;
    };
  }
  return new Promise((resolve, reject) => {
    const number = nextCall++;
    calls.set(number, { resolve, reject });
    worker.postMessage({ call: number, operation, ...parameters }, transfer);
  });
}

async function digest(text) {
  const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', toBytes(text)));
  return Array.from(hash.subarray(0, 16), it => it.toString(16).padStart(2, '0')).join('');
}

// Keeps files in OPFS, below `name`, which identifies the download: the same name goes on with
// what is there.
export function opfs({ name }) {
  const results = new Map();
  const root = digest(name);
  return {
    async open(path, size, { modified = 0, remote = path } = {}) {
      const folder = await root;
      const key = await digest(`${remote}\n${size}\n${modified}`);
      const { there } = await call('open', { folder, key, size });
      let failure = null;
      // one write is under way while the next span arrives
      let writing = Promise.resolve();
      return {
        have: () => there > 0 ? spans(folder, key, size, there) : null,
        async write(offset, bytes) {
          await writing;
          if (failure) throw failure;
          const whole = bytes.byteOffset === 0 && bytes.byteLength === bytes.buffer.byteLength;
          const moved = whole ? bytes : bytes.slice();
          writing = call('write', { folder, key, offset, bytes: moved }, [moved.buffer])
            .catch(error => { failure = error; });
        },
        async close() {
          await writing;
          if (failure) throw failure;
          await call('close', { folder, key, size, verified: true });
          results.set(path, { folder, key });
        },
        async abort() {
          await writing;
          await call('close', { folder, key, size, verified: false });
        },
      };
    },
    async result() {
      const files = [];
      for (const [path, { folder, key }] of results) {
        const file = await (await handle(folder, key)).getFile();
        files.push({ path, file: new File([file], path.split('/').pop()) });
      }
      return files;
    },
    async remove() {
      await call('remove', { folder: await root });
      results.clear();
    },
    async removeFile(path) {
      const at = results.get(path);
      if (at) await call('remove', at);
      results.delete(path);
    },
    async file(path) {
      const { folder, key } = results.get(path);
      return (await handle(folder, key)).getFile();
    },
  };
}

async function handle(folder, key) {
  const root = await navigator.storage.getDirectory();
  const downloads = await root.getDirectoryHandle(FOLDER);
  return (await downloads.getDirectoryHandle(folder)).getFileHandle(key);
}

// Reads the whole spans that are there.
async function* spans(folder, key, size, there) {
  for (let offset = 0; offset < there; offset += SPAN) {
    const length = Math.min(SPAN, size - offset);
    if (offset + length > there) return;
    yield { offset, bytes: await call('read', { folder, key, offset, length }) };
  }
}

// What file systems do not accept, or take for something else, becomes an underscore.
export function safeName(name) {
  // eslint-disable-next-line no-control-regex
  const safe = name.replace(/[\u0000-\u001f\u007f"*/:<>?\\|\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu, '_');
  return /^\.{1,2}$|^$/.test(safe) ? '_' : safe.replace(/[ .]+$/, '_');
}

async function copy(file, to) {
  const writable = await to.createWritable();
  await file.stream().pipeTo(writable);
}

// Wraps a sink in OPFS: each file is copied when it is verified. `target(path)` resolves with a
// function that makes the file then: what failed leaves none under its name.
function through(name, target, directory = async () => {}) {
  const kept = opfs({ name });
  return {
    directory,
    async open(path, size, more) {
      const make = await target(path);
      const file = await kept.open(path, size, more);
      return {
        ...file,
        async close(verified) {
          await file.close(verified);
          await copy(await kept.file(path), await make());
          await kept.removeFile(path);
        },
      };
    },
    result: async () => [],
    remove: () => kept.remove(),
  };
}

// Saves one file to the user's file.
export function saveToFile(file, { name = `file ${file.name}` } = {}) {
  return through(name, async () => async () => file);
}

// Saves files into the user's directory, with their directories.
export function saveToDirectory(root, { name = `directory ${root.name}` } = {}) {
  // names that differ at the server and not on this disk get different ones
  const given = new Map();
  const own = (directory, part) => {
    if (!given.has(directory)) given.set(directory, { names: new Map(), taken: new Set() });
    const { names, taken } = given.get(directory);
    if (!names.has(part)) {
      const safe = safeName(part);
      const [, stem, extension] = /^(.+?)(\.[^.]*)?$/s.exec(safe);
      let tried = safe;
      for (let number = 2; taken.has(tried.toLowerCase()); number++) tried = `${stem} (${number})${extension ?? ''}`;
      taken.add(tried.toLowerCase());
      names.set(part, tried);
    }
    return names.get(part);
  };
  const folder = async parts => {
    let at = root;
    let path = '';
    for (const part of parts) {
      const safe = own(path, part);
      at = await at.getDirectoryHandle(safe, { create: true });
      path += `/${part}`;
    }
    return at;
  };
  const target = async path => {
    const parts = path.split('/');
    const last = parts.pop();
    const safe = own(parts.map(part => `/${part}`).join(''), last);
    const at = await folder(parts);
    return () => at.getFileHandle(safe, { create: true });
  };
  return through(name, target, path => folder(path.split('/')));
}
