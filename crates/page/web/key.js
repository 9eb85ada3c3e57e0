// The key of this browser: Ed25519, made by WebCrypto, not extractable, kept in IndexedDB.

import { TransferError } from './errors.js';

const DATABASE = 'headroom';
const STORE = 'keys';
const NAME = 'own';
// what stands ahead of the 32 bytes of a key as ssh encodes it (RFC 8709, section 4)
const SSH_HEAD = [0, 0, 0, 11, ...new TextEncoder().encode('ssh-ed25519'), 0, 0, 0, 32];

const base64 = bytes => btoa(String.fromCharCode(...bytes));

function settled(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function database() {
  const request = indexedDB.open(DATABASE, 1);
  request.onupgradeneeded = () => request.result.createObjectStore(STORE);
  return settled(request);
}

// Reads the key, or makes it. Two tabs that make one at the same time agree on the first.
async function pair() {
  const db = await database();
  try {
    const read = () => settled(db.transaction(STORE).objectStore(STORE).get(NAME));
    const kept = await read();
    if (kept) return kept;
    const made = await crypto.subtle.generateKey('Ed25519', false, ['sign', 'verify']);
    const store = db.transaction(STORE, 'readwrite').objectStore(STORE);
    const there = await settled(store.get(NAME));
    if (there) return there;
    await settled(store.put(made, NAME));
    return made;
  } finally {
    db.close();
  }
}

// Returns the key: its bytes, its fingerprint and line as OpenSSH writes them, and `sign`.
export async function ownKey() {
  let keys;
  try {
    keys = await pair();
  } catch (error) {
    throw new TransferError('refused', `this browser makes or keeps no Ed25519 key: ${error.message}`);
  }
  const bytes = new Uint8Array(await crypto.subtle.exportKey('raw', keys.publicKey));
  const encoded = new Uint8Array([...SSH_HEAD, ...bytes]);
  const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', encoded));
  return {
    bytes,
    fingerprint: `SHA256:${base64(hash).replace(/=+$/, '')}`,
    line: `ssh-ed25519 ${base64(encoded)} ${browserName()}`,
    sign: async data => new Uint8Array(await crypto.subtle.sign('Ed25519', keys.privateKey, data)),
  };
}

// Returns a name for the key, for people: browser and system.
export function browserName() {
  const brands = navigator.userAgentData?.brands?.filter(it => !/not.?a.?brand/i.test(it.brand)) ?? [];
  const brand = brands.find(it => it.brand !== 'Chromium') ?? brands[0];
  const agent = navigator.userAgent;
  const name = brand?.brand ?? /(Firefox|Edg|Chrome|Safari)\//.exec(agent)?.[1] ?? 'browser';
  const system = navigator.userAgentData?.platform ?? /\(([^;)]+)/.exec(agent)?.[1] ?? '';
  return `${name} ${system}`.replace(/[^A-Za-z0-9 ._-]/g, '').trim().replace(/ +/g, '-').slice(0, 48);
}
