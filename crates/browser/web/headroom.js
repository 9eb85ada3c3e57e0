// Moves a file by the session of the page. The clock begins where a button would be pressed:
// the page is loaded and signed in, and the transfer makes its own connection.
async ({ remote, upload }) => {
  const { open } = await import('/session.js');
  const { opfs } = await import('/sinks.js');
  const session = await open();
  await session.signIn();
  let last = {};
  const onprogress = event => { last = event; };
  const file = upload ? picked() : null;
  const at = remote.lastIndexOf('/');
  const sink = opfs({ name: 'lab' });
  const start_ms = now();
  const result = upload
    ? await session.upload([{ path: remote.slice(at + 1), file }], remote.slice(0, Math.max(at, 0)), { onprogress })
    : await session.download(remote, sink, { onprogress });
  const done_ms = now();
  if (result.failed.length > 0) throw new Error(result.failed[0].reason);
  if (last.state !== 'verified') throw new Error('the file was not verified');
  return { start_ms, done_ms, bytes: last.total, hash: last.hash, transport: session.transport };
}
