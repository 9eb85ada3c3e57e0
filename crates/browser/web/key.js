// Puts a key where the page of headroom keeps its own (key.js there).
async ({ seed }) => {
  const bytes = Uint8Array.from(seed.match(/../g), it => parseInt(it, 16));
  // RFC 8410, section 7
  const head = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
  const key = await crypto.subtle.importKey('pkcs8', new Uint8Array([...head, ...bytes]), 'Ed25519', true, ['sign']);
  const { kty, crv, x } = await crypto.subtle.exportKey('jwk', key);
  const publicKey = await crypto.subtle.importKey('jwk', { kty, crv, x }, 'Ed25519', true, ['verify']);
  const database = await new Promise((resolve, reject) => {
    const request = indexedDB.open('headroom', 1);
    request.onupgradeneeded = () => request.result.createObjectStore('keys');
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  const transaction = database.transaction('keys', 'readwrite');
  transaction.objectStore('keys').put({ privateKey: key, publicKey }, 'own');
  await new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onerror = transaction.onabort = () => reject(transaction.error);
  });
  database.close();
}
