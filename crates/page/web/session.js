// A session with the server of this page: sign-in, names, downloads and uploads.
//
// A connection answers one request at a time, so a session has several: one for names, and one for
// each transfer that runs. Memory: the files of one transfer have at most 48 MiB in the tab (upload.js),
// and each connection what the browser’s own flow control holds.

import init, * as protocol from './protocol.js';
import { TransferError, aborted } from './errors.js';
import { ownKey } from './key.js';
import { CONNECT_MS, Link, lost, refusal, unexpected } from './link.js';
import { joined, toBytes, toText } from './paths.js';
import { Download } from './download.js';
import { Upload } from './upload.js';
import { Pace } from './pace.js';

export { TransferError } from './errors.js';

// How long the server may be away before a transfer gives up.
const PATIENCE_MS = 300_000;
// How long a WebSocket is used before WebTransport is tried again.
const UDP_AGAIN_MS = 120_000;
// How long a page that opens, and a request about names, wait for the server.
const SHORT_PATIENCE_MS = 20_000;
// A server has fewer.
const MAX_SHARES = 4096;
// How many times in a row WebTransport may fail, once it has worked.
const MAX_FAILURES = 3;
const BACKOFF_MS = [250, 500, 1000, 2000, 4000];

// Firefox's WebTransport (153) ends connections by itself and leaves data of streams unsent
// (https://github.com/mozilla/neqo/issues/1451), so that uploads stand still for up to a minute.
const avoidsUdp = / Firefox\//.test(navigator.userAgent);
const usesUdp = typeof WebTransport === 'function' && !avoidsUdp;

const sleep = (ms, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, ms);
  signal?.addEventListener('abort', () => {
    clearTimeout(timer);
    reject(aborted(signal));
  }, { once: true });
});

async function configuration() {
  try {
    const response = await fetch('connect.json', { cache: 'no-store', signal: AbortSignal.timeout(CONNECT_MS) });
    if (!response.ok) throw new TransferError('refused', `the server answers ${response.status}`);
    return await response.json();
  } catch (error) {
    throw lost(error);
  }
}

// Loads the protocol's module, which the browser has mostly fetched already.
async function loadProtocol() {
  try {
    await init();
  } catch (error) {
    throw error instanceof WebAssembly.CompileError ? error : lost(error);
  }
}

// Connects; does not sign in.
export async function open({ onstate } = {}) {
  const session = new Session(onstate ?? (() => {}));
  try {
    await session.start();
  } catch (error) {
    session.close();
    throw error;
  }
  return session;
}

export class Session {
  transport = 'webtransport';
  server = null;
  key = null;
  authorized = false;
  // whether the server knows this key by its list, not only as anybody's
  listed = false;
  // whether this key may make share links
  mayShare = false;
  // the share whose link this session uses
  share = null;

  #onstate;
  #key;
  #config;
  #secrets = {};
  // the secret of the share, which every connection shows
  #shareSecret = null;
  // an idle connection for names, and one for the next transfer
  #names = null;
  #idle = [];
  #turn = Promise.resolve();
  #pace = new Pace();
  #closed = false;

  constructor(onstate) {
    this.#onstate = onstate;
  }

  async start() {
    this.#tell('connecting');
    const connecting = this.#again(async () => {
      await this.#configure();
      this.#names = await this.#connect();
    });
    const [key] = await Promise.all([ownKey(), this.#again(loadProtocol), connecting]);
    this.#key = key;
    this.key = { fingerprint: key.fingerprint, line: key.line };
    this.#tell('connected');
  }

  async #configure() {
    const config = await configuration();
    this.#config = config;
    this.server = { readOnly: true, ...this.server, name: config.name, fingerprint: config.fingerprint, root: config.root, anonymous: config.anonymous, program: config.program };
  }

  #tell(state, more = {}) {
    this.#onstate({ state, transport: this.transport, avoidsUdp, ...more });
  }

  // Opens a connection: by WebTransport, or by a WebSocket if that does not work while the HTTPS
  // server answers. Once it has worked, UDP counts as blocked only after several failures, of which
  // those of connections that were tried at the same time are one.
  async #connect() {
    if (this.#closed) throw new TransferError('lost', 'the session is closed');
    let link = null;
    if (this.#triesUdp) {
      const began = performance.now();
      try {
        link = await Link.webTransport(this.#config);
        this.#udpWorked = true;
        this.#failures = 0;
      } catch (error) {
        if (began >= this.#failedAt) {
          this.#failures++;
          this.#failedAt = performance.now();
        }
        if (this.#udpWorked && this.#failures < MAX_FAILURES) throw error;
        this.#failures = 0;
        this.#udpFrom = Date.now() + UDP_AGAIN_MS;
      }
    }
    link ??= await Link.webSocket(this.#config);
    this.transport = link.kind;
    if (this.#closed) link.close();
    return link;
  }

  #udpWorked = false;
  // failures of WebTransport in a row, and when the last one was counted
  #failures = 0;
  #failedAt = 0;
  // when UDP is tried next
  #udpFrom = 0;

  get #triesUdp() {
    return usesUdp && Date.now() >= this.#udpFrom;
  }

  // Returns a connection that is signed in.
  async #signed(link) {
    if (link?.kind === 'websocket' && this.#udpWorked && this.#triesUdp) {
      // UDP worked before an outage: what waits for a request goes back to it
      link.close();
      link = null;
    }
    if (link && !link.ended && link.granted) return link;
    let fresh = link && !link.ended ? link : null;
    if (!fresh) {
      // the server's certificate may be another one by now
      await this.#configure();
      fresh = await this.#connect();
    }
    try {
      await fresh.signIn(this.#key, { ...this.#secrets, share: this.#shareSecret });
    } catch (error) {
      const why = await fresh.why(error);
      fresh.close();
      throw why;
    }
    this.server.readOnly = fresh.granted.readOnly;
    this.listed = fresh.granted.known;
    this.mayShare = fresh.granted.mayShare;
    if (fresh.granted.share) {
      this.share = shareOf(fresh.granted.share);
      this.server.root = (!this.share.isFile && this.share.path) || '/';
    }
    this.authorized = true;
    return fresh;
  }

  // Proves the key. With `invite`, the text of an invitation's secret, the server adds the key to
  // those that it knows. With `share`, that of a share link, the session is the share's.
  async signIn({ invite, share } = {}) {
    if (share) this.#shareSecret = secret(share);
    else if (invite) this.#secrets = { invite: secret(invite) };
    else if (this.authorized && this.listed) return this;
    if (this.#names?.granted) this.#names.close();
    for (const idle of this.#idle.splice(0)) idle.close();
    try {
      this.#names = await this.#again(() => this.#signed(this.#names));
    } catch (error) {
      if (error.code === 'unauthorized') this.authorized = false;
      if (error.code !== 'lost') this.#tell('connected'); // the server has answered
      throw error;
    } finally {
      this.#secrets = {};
    }
    this.#tell('connected');
    return this;
  }

  // Tries it again while the connection is lost, for some time.
  async #again(work, signal) {
    const until = Date.now() + SHORT_PATIENCE_MS;
    for (let turn = 0; ; turn++) {
      try {
        return await work();
      } catch (error) {
        signal?.throwIfAborted();
        const wait = BACKOFF_MS[Math.min(turn, BACKOFF_MS.length - 1)];
        if (error.code !== 'lost' || this.#closed || Date.now() + wait > until) throw error;
        this.#tell('reconnecting', { retryAt: Date.now() + wait, reason: error.told });
        await sleep(wait, signal);
      }
    }
  }

  // Does one request about names at a time.
  async #request(message, handle, signal, isAsked = false) {
    const before = this.#turn;
    let done;
    this.#turn = new Promise(resolve => { done = resolve; });
    try {
      await before;
      signal?.throwIfAborted();
      return await this.#again(async () => {
        const link = this.#names = await this.#signed(this.#names);
        try {
          const { reader, writer } = await (isAsked ? link.ask(message) : link.request(message));
          writer.close();
          this.#tell('connected');
          const stop = () => reader.cancel();
          signal?.addEventListener('abort', stop, { once: true });
          try {
            return await handle(reader);
          } finally {
            signal?.removeEventListener('abort', stop);
          }
        } catch (error) {
          if (signal?.aborted) throw aborted(signal);
          throw await link.why(error);
        }
      }, signal);
    } catch (error) {
      if (error.code === 'unauthorized') this.authorized = false;
      throw error;
    } finally {
      done();
    }
  }

  // Lists a directory: arrays of entries, as they arrive.
  async *list(path, { signal } = {}) {
    // the request runs beside its reader, so that a slow reader holds up nobody
    const parts = [];
    let wake = () => {};
    let ended = false;
    let failure = null;
    const reading = this.#request(protocol.list(toBytes(path)), async reader => {
      parts.length = 0;
      for (;;) {
        const message = await reader.expect();
        if (message.type === 'refused') throw refusal(message);
        if (message.type !== 'listing') throw unexpected(message);
        parts.push(message.entries.map(entry => listed(path, entry)));
        wake();
        if (message.last) return;
      }
    }, signal).catch(error => { failure = error; }).finally(() => {
      ended = true;
      wake();
    });
    for (let next = 0; ; next++) {
      while (next >= parts.length && !ended) await new Promise(resolve => { wake = resolve; });
      if (next >= parts.length) break;
      if (parts[next].length > 0) yield parts[next];
    }
    await reading;
    if (failure) throw failure;
  }

  async makeDirectory(path) {
    await this.#names_(protocol.makeDirectory(toBytes(path), false));
  }

  async rename(from, to, { replace = false } = {}) {
    await this.#names_(protocol.rename(toBytes(from), toBytes(to), replace));
  }

  // Removes it; resolves with the number of names that were removed.
  async remove(path, { recursive = false } = {}) {
    return this.#names_(protocol.remove(toBytes(path), recursive));
  }

  #names_(message) {
    return this.#request(message, async reader => {
      const kept = [];
      for (;;) {
        const answer = await reader.expect();
        if (answer.type === 'refused') throw refusal(answer);
        if (answer.type === 'left') kept.push(answer);
        if (answer.type === 'end') {
          if (kept.length > 0) throw new TransferError(kept[0].code ?? 'refused', kept.map(it => it.reason).join('\n'));
          return answer.stored;
        }
        if (!['removed', 'left'].includes(answer.type)) throw unexpected(answer);
      }
    });
  }

  // Identifies what the paths of this session are paths of: the server, or one share of it.
  get scope() {
    return this.share ? `${this.server.fingerprint} ${this.share.id}` : this.server.fingerprint;
  }

  // Makes a share link, for `uses` browsers (0: any number); resolves with its terms and `link`.
  async createShare(path, { seconds, uses = 0, write = false, name = '' }) {
    const message = protocol.share(toBytes(path), write, seconds, uses, name);
    return this.#request(message, async reader => {
      const answer = await reader.expect();
      if (answer.type === 'refused') throw refusal(answer);
      if (answer.type !== 'shared') throw unexpected(answer);
      return { ...shareOf(answer.terms), link: `${location.origin}${location.pathname}#share=${secretText(answer.secret)}` };
    }, undefined, true);
  }

  // Lists the share links that this key has made and that are open.
  async shares() {
    return this.#request(protocol.shares(), async reader => {
      const all = [];
      for (;;) {
        const answer = await reader.expect();
        if (answer.type === 'refused') throw refusal(answer);
        if (answer.type !== 'shares-listed') throw unexpected(answer);
        all.push(...answer.shares.map(shareOf));
        if (answer.last || all.length > MAX_SHARES) return all;
      }
    }, undefined, true);
  }

  // Ends a share, and the transfers that use it.
  async revokeShare(id) {
    await this.#names_(protocol.revoke(id));
  }

  // Fetches files and directories.
  async download(path, sink, { signal, onprogress = () => {}, rate = null } = {}) {
    const paths = [path].flat();
    return this.#transfer(new Download(paths, sink, onprogress), signal, rate);
  }

  // Sends files into a directory.
  async upload(files, directory, { signal, onprogress = () => {}, rate = null, replace = true } = {}) {
    const listing = replace ? null : path => this.#all(path);
    return this.#transfer(new Upload(files, directory, onprogress, listing), signal, rate);
  }

  async #all(path) {
    const names = new Set();
    try {
      for await (const part of this.list(path)) part.forEach(entry => names.add(entry.name));
    } catch (error) {
      if (error.code !== 'not-found') throw error;
    }
    return names;
  }

  // Moves something on a connection of its own, and goes on after interruptions.
  async #transfer(work, signal, rate) {
    const pace = new Pace(this.#pace);
    pace.setRate(rate);
    for (let turn = 0, since = Date.now(); ;) {
      signal?.throwIfAborted();
      const moved = work.moved;
      let link = this.#idle.pop();
      const stop = () => link?.close();
      signal?.addEventListener('abort', stop, { once: true });
      try {
        link = await this.#signed(link);
        if (signal?.aborted) throw aborted(signal);
        this.#tell('connected');
        const running = work.run(link, pace, signal, ticket => this.#joined(ticket));
        const result = await running.catch(async error => { throw await link.why(error); });
        if (!link.ended && this.#idle.length < 2) this.#idle.push(link);
        else link.close();
        return result;
      } catch (error) {
        link?.close();
        if (signal?.aborted) throw aborted(signal);
        if (error.code === 'unauthorized') this.authorized = false;
        if (error.code !== 'lost' || this.#closed) throw error;
        if (work.moved > moved) [turn, since] = [0, Date.now()];
        const wait = BACKOFF_MS[Math.min(turn++, BACKOFF_MS.length - 1)];
        if (Date.now() + wait > since + PATIENCE_MS) throw error;
        this.#tell('reconnecting', { retryAt: Date.now() + wait, reason: error.told });
        await sleep(wait, signal);
      } finally {
        signal?.removeEventListener('abort', stop);
      }
    }
  }

  // Opens another connection for the upload with this ticket; resolves with it, and with a reader of
  // what the server tells there.
  async #joined(ticket) {
    const link = await this.#signed(null);
    try {
      const { reader } = await link.request(protocol.join(ticket));
      return { link, reader };
    } catch (error) {
      link.close();
      throw error;
    }
  }

  // Reads a part of a file, from its beginning: for previews.
  async read(path, { offset = 0, length = 256 << 10, signal } = {}) {
    const parts = new Uint8Array(length);
    let filled = 0;
    const enough = new AbortController();
    const sink = {
      open: () => ({
        have: () => null,
        write: (at, bytes) => {
          const from = Math.max(offset, at);
          const to = Math.min(offset + length, at + bytes.length);
          if (from < to) {
            parts.set(bytes.subarray(from - at, to - at), from - offset);
            filled += to - from;
          }
          if (filled >= length) enough.abort();
        },
        close: () => {},
        abort: () => {},
      }),
    };
    try {
      await this.download(path, sink, { signal: signal ? AbortSignal.any([signal, enough.signal]) : enough.signal });
    } catch (error) {
      if (!enough.signal.aborted) throw error;
    }
    return parts.subarray(0, filled);
  }

  // Limits all transfers of the session together, in bytes per second.
  setRate(bytesPerSecond) {
    this.#pace.setRate(bytesPerSecond);
  }

  pause() {
    this.#pace.pause();
  }

  resume() {
    this.#pace.resume();
  }

  close() {
    this.#closed = true;
    this.#names?.close();
    for (const idle of this.#idle) idle.close();
    this.#tell('closed');
  }
}

function listed(directory, entry) {
  const name = toText(entry.name);
  const { type, size, mode, modified } = entry;
  const made = { name, path: joined(directory, name), type, size, mode, modified };
  if (entry.target) made.target = toText(entry.target);
  return made;
}

function shareOf(terms) {
  return { ...terms, path: toText(terms.path) };
}

const secretText = bytes => btoa(String.fromCharCode(...bytes)).replace(/\+/g, '-').replace(/\//g, '_').replace(/=/g, '');

// Reads the secret of a link: 32 bytes in base64url.
function secret(text) {
  let bytes = [];
  try {
    bytes = Uint8Array.from(atob(text.replace(/-/g, '+').replace(/_/g, '/')), it => it.charCodeAt(0));
  } catch { /* it is none */ }
  if (bytes.length !== 32) throw new TransferError('unauthorized', 'the link is incomplete');
  return bytes;
}
