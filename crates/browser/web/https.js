// Moves a file by fetch. The clock begins where a button would be pressed: the page is loaded.
// A download goes to the browser's own storage, written by a worker at once as it arrives.
async ({ remote, upload }) => {
  const url = new URL(remote, location.href).href;
  if (upload) {
    const body = picked();
    const start_ms = now();
    const response = await fetch(url, { method: 'PUT', body, cache: 'no-store' });
    await response.arrayBuffer();
    const done_ms = now();
    if (!response.ok) throw new Error(`the server answers ${response.status}`);
    return { start_ms, done_ms, bytes: body.size, transport: 'fetch' };
  }
  const work = async () => {
    const root = await navigator.storage.getDirectory();
    const file = await (await root.getFileHandle('lab', { create: true })).createSyncAccessHandle();
    onmessage = async ({ data: url }) => {
      try {
        const response = await fetch(url, { cache: 'no-store' });
        if (!response.ok) throw new Error(`the server answers ${response.status}`);
        const reader = response.body.getReader();
        let bytes = 0;
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
          bytes += file.write(value, { at: bytes });
        }
        file.flush();
        file.close();
        postMessage({ bytes });
      } catch (error) {
        postMessage({ error: String(error) });
      }
    };
    postMessage({});
  };
  const worker = new Worker(URL.createObjectURL(new Blob([`(${work})()`], { type: 'text/javascript' })));
  const answer = () => new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => resolve(data);
    worker.onerror = event => reject(new Error(event.message));
  });
  await answer();
  const start_ms = now();
  worker.postMessage(url);
  const { bytes, error } = await answer();
  const done_ms = now();
  if (error) throw new Error(error);
  return { start_ms, done_ms, bytes, transport: 'fetch' };
}
