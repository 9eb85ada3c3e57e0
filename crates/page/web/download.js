// A download: the receiver of a delivery (docs/transfer.md).

import * as protocol from './protocol.js';
import { TransferError, codeOf } from './errors.js';
import { lost, refusal, unexpected } from './link.js';
import { toBytes, toText } from './paths.js';

// The most chaining values in one message.
const MAX_VALUES = 16 << 10;
// The longest hole in one message, and the most files that may be offered and unanswered.
const MAX_HOLE = 64 << 20;
const MAX_OPEN = 64;
// After so long without data, a datagram is sent, so that a server that was restarted says so.
const SILENCE_MS = 4000;

const hex = bytes => Array.from(bytes, it => it.toString(16).padStart(2, '0')).join('');

export class Download {
  // Bytes that moved, in all runs.
  moved = 0;
  #sources;
  #sink;
  #onprogress;
  // what is done already, by path: not fetched again after an interruption
  #done = new Map();
  // the sources of which the server sent something
  #seen = new Set();

  constructor(paths, sink, onprogress) {
    this.#sources = paths;
    this.#sink = sink;
    this.#onprogress = onprogress;
  }

  async run(link, pace, signal) {
    const request = protocol.get(this.#sources.map(path => toBytes(path)));
    const streams = await link.request(request);
    const run = new Run(this, link, pace, signal, streams);
    await run.receive();
    const results = [...this.#done.values()];
    const failed = results.filter(it => it.state === 'failed').map(({ file, reason, code }) => ({ file, reason, code }));
    for (const { reason, code } of run.unreadable) failed.push({ file: '', reason, code: code ?? 'refused' });
    // what the server leaves out without a word is not done; the root alone may be empty
    const silent = this.#sources.filter(it => named(it) !== '' && !this.#seen.has(it));
    if (silent.length > run.unreadable.length) {
      for (const file of silent) failed.push({ file, reason: 'the server sent nothing of it', code: 'not-found' });
    }
    return { files: results.length - results.filter(it => it.state === 'failed').length, failed };
  }

  get sink() {
    return this.#sink;
  }

  tell(event) {
    this.#onprogress(event);
  }

  isDone(path) {
    return this.#done.get(path)?.state === 'verified';
  }

  done(path, event) {
    this.#done.set(path, event);
    this.tell(event);
  }

  // The remote path of an entry: the source that it belongs to and the rest; null if it belongs
  // to none.
  remote(path) {
    const [first, ...rest] = path.split('/');
    const source = this.#sources.find(it => named(it) === first);
    // the content of the root has no name before it
    if (source === undefined) return this.#sources.some(it => named(it) === '') ? path : null;
    this.#seen.add(source);
    return [source.replace(/^\/+|\/+$/g, ''), ...rest].join('/');
  }
}

// The last component of a path, which is empty for the root.
const named = path => path.split('/').filter(part => part !== '').pop() ?? '';

// One file that arrives.
class Incoming {
  constructor(id, path, remote, size, handle) {
    Object.assign(this, { id, path, remote, size, handle });
    this.hash = new protocol.FileHash(size);
    // chaining values of spans that are here from before, until others come
    this.held = new Map();
    this.present = 0;
    this.bytes = 0;
    // bytes of spans that arrived, as `sealed` counts them
    this.arrived = 0;
    this.sealed = null;
    this.writing = 0;
    this.ended = false;
  }

  free() {
    this.ended = true;
    this.hash.free();
  }
}

class Run {
  unreadable = [];
  #of;
  #link;
  #pace;
  #signal;
  #reader;
  #writer;
  #files = new Map();
  #fail;
  #failed;
  #stored = 0;
  #lost = 0;
  // the lowest number that the next entry may have
  #nextId = 0;
  #heard = performance.now();

  constructor(of, link, pace, signal, { reader, writer }) {
    this.#of = of;
    this.#link = link;
    this.#pace = pace;
    this.#signal = signal;
    this.#reader = reader;
    this.#writer = writer;
    this.#failed = new Promise((_, reject) => { this.#fail = reject; });
    this.#failed.catch(() => {});
  }

  async receive() {
    const stop = new AbortController();
    const accepting = this.#accept(stop.signal);
    const timer = setInterval(() => this.#askWhenSilent(), SILENCE_MS / 2);
    try {
      await Promise.race([this.#messages(), this.#failed, this.#link.closed.then(() => {
        throw new TransferError('lost', 'the connection was lost');
      })]);
    } finally {
      clearInterval(timer);
      stop.abort();
      this.#pending?.catch(() => {});
      for (const file of this.#files.values()) {
        await Promise.resolve(file.handle.abort()).catch(() => {});
        file.free();
      }
      accepting.catch(() => {});
    }
  }

  // A server that was restarted answers with a reset when it gets a packet.
  #askWhenSilent() {
    if (performance.now() - this.#heard < SILENCE_MS) return;
    try {
      this.#datagrams ??= this.#link.transport.datagrams.writable.getWriter();
      this.#datagrams.write(new Uint8Array(1)).catch(() => {});
    } catch { /* the connection has ended, or has none */ }
  }

  #datagrams = null;

  async #messages() {
    let isEnd = false;
    for (;;) {
      if (isEnd && this.#files.size === 0) {
        this.#pending?.catch(() => {});
        await this.#writer.send(protocol.end(this.#stored, this.#lost));
        this.#writer.close();
        return;
      }
      // what ends a file may come from a stream
      const message = await Promise.race([this.#pending ??= this.#reader.expect(), this.#change()]);
      if (message === undefined) continue;
      this.#pending = null;
      this.#heard = performance.now();
      switch (message.type) {
        case 'entry': await this.#entry(message); break;
        case 'entries-end': isEnd = true; break;
        case 'sealed': this.#seal(message); break;
        case 'withdrawn': this.#withdraw(message); break;
        case 'hole': await this.#hole(message); break;
        case 'unreadable': this.unreadable.push(message); break;
        case 'remark': break;
        case 'refused': throw refusal(message);
        default: throw unexpected(message);
      }
    }
  }

  #pending = null;
  #changed = null;

  #change() {
    return new Promise(resolve => { this.#changed = resolve; });
  }

  async #entry(entry) {
    const path = toText(entry.path);
    if (entry.id < this.#nextId) throw new TransferError('protocol', 'the server uses the number of an entry again');
    this.#nextId = entry.id + 1;
    const remote = this.#of.remote(path);
    if (remote === null) throw new TransferError('protocol', 'the server sends what was not asked for');
    if (entry.kind === 'directory') {
      await this.#of.sink.directory?.(path);
      await this.#writer.send(protocol.stored(entry.id));
      this.#stored++;
      return;
    }
    if (entry.kind !== 'file') {
      this.#refuse(entry.id, remote, 'a link: the browser stores none');
      return;
    }
    if (this.#of.isDone(remote)) {
      // it was stored before the interruption
      this.#stored++;
      await this.#writer.send(protocol.stored(entry.id));
      return;
    }
    if (!entry.content && this.#files.size >= MAX_OPEN) throw new TransferError('protocol', 'the server offers too many files at once');
    let handle;
    try {
      handle = await this.#of.sink.open(path, entry.size, { modified: entry.modified, remote });
    } catch (error) {
      this.#refuse(entry.id, remote, error.message, codeOf(error));
      return;
    }
    const file = new Incoming(entry.id, path, remote, entry.size, handle);
    this.#files.set(file.id, file);
    if (entry.content) {
      await this.#inline(file, entry);
      return;
    }
    await this.#have(file);
  }

  async #inline(file, entry) {
    await this.#pace.take(entry.content.length);
    try {
      if (entry.content.length !== file.size) throw new TransferError('protocol', 'its size is wrong');
      if (file.size > 0) {
        file.hash.add(0, entry.content);
        await file.handle.write(0, entry.content);
      }
      this.#count(file, file.size);
      file.sealed = { hash: entry.hash, bytes: file.size };
      file.arrived = file.size;
      await this.#finish(file);
    } catch (error) {
      this.#drop(file, error);
    }
  }

  // Hashes what is there from before, and says so.
  async #have(file) {
    let values = [];
    let first = 0;
    const flush = async last => {
      const bytes = new Uint8Array(values.length * 32);
      values.forEach((value, i) => bytes.set(value, i * 32));
      await this.#writer.send(protocol.have(file.id, first, bytes, last));
      first += values.length;
      values = [];
    };
    try {
      const there = await file.handle.have?.();
      const span = protocol.spanBytes();
      if (there) {
        for await (const { offset, bytes } of there) {
          const number = offset / span;
          const whole = Math.min(span, file.size - offset);
          if (!Number.isInteger(number) || bytes.length !== whole) continue;
          if (number !== first + values.length) {
            if (values.length > 0) await flush(false);
            first = number;
          }
          const value = file.hash.value(number, bytes);
          file.held.set(number, value);
          values.push(value);
          file.present += bytes.length;
          file.bytes = file.present;
          this.#tell(file, 'hashing');
          if (values.length === MAX_VALUES) await flush(false);
        }
      }
    } catch (error) {
      this.#drop(file, error);
      return;
    }
    // hashes of spans that the server finds to be others come again
    await flush(true);
    this.#tell(file, 'moving');
  }

  async #accept(signal) {
    const uni = this.#link.uni;
    for (;;) {
      let read;
      try {
        // a stream that comes after the end of this run belongs to the next one
        this.#link.nextUni ??= uni.read();
        read = await Promise.race([this.#link.nextUni, new Promise((_, reject) => {
          signal.addEventListener('abort', () => reject(new Error('ended')), { once: true });
        })]);
      } catch (error) {
        if (!signal.aborted) this.#fail(lost(error));
        return;
      }
      this.#link.nextUni = null;
      if (read.done) return;
      this.#stream(read.value).catch(error => this.#fail(error));
    }
  }

  // Receives a piece of a file: whole spans.
  async #stream(readable) {
    const source = new ByteSource(readable);
    let header;
    try {
      const length = protocol.bodyLength(await source.exactly(4));
      if (length > 64) throw new TransferError('protocol', 'a data stream has no header');
      header = protocol.readDataHeader(await source.exactly(length));
    } catch (error) {
      if (error.code === 'protocol') throw error;
      // the server gave the stream up
      return;
    }
    const [id, start, total] = header;
    const file = this.#files.get(id);
    if (!file) {
      source.cancel();
      return;
    }
    const span = protocol.spanBytes();
    if (start % span !== 0 || start + total > file.size) {
      throw new TransferError('protocol', 'a piece is not within its file');
    }
    for (let offset = start; offset < start + total;) {
      const length = Math.min(span, start + total - offset);
      let bytes;
      try {
        bytes = await source.exactly(length, this.#pace, () => { this.#heard = performance.now(); });
      } catch {
        // the server gave the stream up, and says why in a message; or the connection is lost
        return;
      }
      if (file.ended) {
        source.cancel();
        return;
      }
      file.writing++;
      try {
        const number = offset / span;
        const isNew = !file.held.delete(number);
        file.hash.add(number, bytes);
        await file.handle.write(offset, bytes);
        if (file.ended) return;
        this.#count(file, length, isNew);
      } catch (error) {
        this.#drop(file, error);
        source.cancel();
        return;
      } finally {
        file.writing--;
      }
      offset += length;
      await this.#finish(file);
    }
  }

  #count(file, bytes, isNew = true) {
    file.arrived += bytes;
    if (isNew) file.bytes += bytes;
    else file.present -= bytes;
    this.#of.moved += bytes;
    this.#tell(file, 'moving');
  }

  #tell(file, state, more = {}) {
    const { remote, bytes, size, present } = file;
    this.#of.tell({ file: remote, bytes, total: size, present, state, ...more });
  }

  // A range of zeros, which is not sent.
  async #hole({ id, offset, length }) {
    const file = this.#files.get(id);
    if (!file) return;
    const span = protocol.spanBytes();
    if (offset % span !== 0 || length === 0 || length > MAX_HOLE || offset + length > file.size) {
      throw new TransferError('protocol', 'a hole is not within its file');
    }
    file.writing++;
    try {
      for (let at = offset; at < offset + length && !file.ended;) {
        const bytes = new Uint8Array(Math.min(span, file.size - at));
        const number = at / span;
        const length = bytes.length;
        const isNew = !file.held.delete(number);
        file.hash.add(number, bytes);
        await file.handle.write(at, bytes);
        if (isNew) file.bytes += length;
        at += length;
      }
    } catch (error) {
      this.#drop(file, error);
    } finally {
      file.writing--;
    }
    this.#tell(file, 'moving');
    await this.#finish(file);
  }

  #seal({ id, hash, bytes }) {
    const file = this.#files.get(id);
    if (!file) return;
    file.sealed = { hash, bytes };
    this.#finish(file).catch(error => this.#fail(error));
  }

  #withdraw({ id, reason, code }) {
    const file = this.#files.get(id);
    if (!file) return;
    this.#files.delete(id);
    Promise.resolve(file.handle.abort()).catch(() => {});
    file.free();
    this.#of.done(file.remote, { file: file.remote, bytes: file.bytes, total: file.size, state: 'failed', reason, code: code ?? 'refused' });
    this.#changed?.();
  }

  // Compares the hash when everything has arrived, and stores the file.
  async #finish(file) {
    if (file.ended || file.finishing || !file.sealed || file.writing > 0 || file.arrived < file.sealed.bytes) return;
    file.finishing = true;
    for (const [number, value] of file.held) file.hash.insert(number, value);
    const hash = file.hash.root();
    if (!hash || hex(hash) !== hex(file.sealed.hash)) {
      this.#drop(file, new TransferError('changed', 'what arrived has another hash than what was sent'));
      return;
    }
    try {
      await file.handle.close({ hash: hex(hash) });
    } catch (error) {
      this.#drop(file, error);
      return;
    }
    this.#files.delete(file.id);
    file.free();
    this.#stored++;
    const { remote, size, present } = file;
    this.#of.done(remote, { file: remote, bytes: size, total: size, present, state: 'verified', hash: hex(hash) });
    await this.#writer.send(protocol.stored(file.id));
    this.#changed?.();
  }

  #drop(file, error) {
    if (file.ended) return;
    this.#files.delete(file.id);
    Promise.resolve(file.handle.abort(error)).catch(() => {});
    file.free();
    this.#refuse(file.id, file.remote, error.message, codeOf(error), file);
    this.#changed?.();
  }

  #refuse(id, remote, reason, code = 'refused', file = null) {
    this.#lost++;
    this.#of.done(remote, { file: remote, bytes: file?.bytes ?? 0, total: file?.size ?? 0, state: 'failed', reason, code });
    this.#writer.send(protocol.failed(id, reason.slice(0, 1000), code)).catch(() => {});
  }
}

// Reads exact numbers of bytes from a stream, without copies where the browser can.
class ByteSource {
  #reader;
  #isByob = true;
  #rest = null;

  constructor(readable) {
    try {
      this.#reader = readable.getReader({ mode: 'byob' });
    } catch {
      this.#reader = readable.getReader();
      this.#isByob = false;
    }
  }

  async exactly(length, pace = null, heard = () => {}) {
    let buffer = new Uint8Array(length);
    for (let filled = 0; filled < length;) {
      const want = pace ? pace.slice(length - filled) : length - filled;
      if (this.#isByob) {
        const { value, done } = await this.#reader.read(new Uint8Array(buffer.buffer, filled, want));
        if (done) throw new TransferError('lost', 'a stream ended early');
        buffer = new Uint8Array(value.buffer, 0, length);
        filled += value.byteLength;
        heard();
        if (pace) await pace.take(value.byteLength);
      } else {
        if (!this.#rest?.length) {
          const { value, done } = await this.#reader.read();
          if (done) throw new TransferError('lost', 'a stream ended early');
          this.#rest = value;
          heard();
        }
        const part = this.#rest.subarray(0, want);
        buffer.set(part, filled);
        filled += part.length;
        this.#rest = this.#rest.subarray(part.length);
        if (pace) await pace.take(part.length);
      }
    }
    return buffer;
  }

  cancel() {
    this.#reader.cancel().catch(() => {});
  }
}
