// An upload: the sender of a delivery (docs/transfer.md).

import * as protocol from './protocol.js';
import { TransferError } from './errors.js';
import { lost, refusal, unexpected } from './link.js';
import { joined, toBytes } from './paths.js';
import { UploadLinks } from './upload-links.js';

// Files up to this size travel in a message.
const MAX_INLINE = 64 << 10;
// What may be offered and not answered: files without content, and all entries.
const MAX_OPEN = 48;
const MAX_UNANSWERED = 2048;
// Spans at once, of all files, and in one piece. A piece is read at once, as each reading is a
// request to another process of the browser.
const MAX_SPANS = 48;
const SPANS_OF_PIECE = 4;

const hex = bytes => Array.from(bytes, it => it.toString(16).padStart(2, '0')).join('');

class Semaphore {
  #free;
  #waiting = [];

  constructor(count) {
    this.#free = count;
  }

  async take(count = 1) {
    if (this.#waiting.length === 0 && this.#free >= count) this.#free -= count;
    else await new Promise(resolve => this.#waiting.push({ count, resolve }));
  }

  give(count = 1) {
    this.#free += count;
    while (this.#waiting.length > 0 && this.#free >= this.#waiting[0].count) {
      const next = this.#waiting.shift();
      this.#free -= next.count;
      next.resolve();
    }
  }
}

export class Upload {
  // Bytes that moved, in all runs.
  moved = 0;
  #files;
  #directory;
  #onprogress;
  #listing;
  #done = new Map();

  // `listing` returns the names in a directory, if files that exist are not to be replaced.
  constructor(files, directory, onprogress, listing) {
    this.#files = files;
    this.#directory = directory;
    this.#onprogress = onprogress;
    this.#listing = listing;
  }

  // `join` opens another connection for the upload with a ticket.
  async run(link, pace, signal, join) {
    if (this.#listing) {
      await this.#findExisting();
      this.#listing = null;
    }
    const left = this.#files.filter(it => !this.#done.has(it.path));
    if (left.length > 0) {
      const streams = await link.request(protocol.put(toBytes(this.#directory), false));
      await new Run(this, link, pace, signal, streams, join).send(left);
    }
    const results = [...this.#done.values()];
    const failed = results.filter(it => it.state === 'failed').map(({ file, reason, code }) => ({ file, reason, code }));
    return { files: results.length - failed.length, failed };
  }

  // Fails files whose names exist. Somebody else may make them later: those are replaced.
  async #findExisting() {
    const listed = new Map();
    for (const { path, file } of this.#files) {
      const at = path.lastIndexOf('/');
      const directory = joined(this.#directory, at < 0 ? '' : path.slice(0, at)).replace(/\/$/, '');
      if (!listed.has(directory)) listed.set(directory, await this.#listing(directory));
      if (listed.get(directory).has(path.slice(at + 1))) {
        this.done(path, { file: path, bytes: 0, total: file.size, state: 'failed', code: 'exists', reason: `${path} exists already` });
      }
    }
  }

  get directory() {
    return this.#directory;
  }

  tell(event) {
    this.#onprogress(event);
  }

  done(path, event) {
    this.#done.set(path, event);
    this.tell(event);
  }
}

// One file that is sent.
class Outgoing {
  constructor(id, { path, file }) {
    Object.assign(this, { id, path, file });
    this.size = file.size;
    // chaining values that the server has, by span
    this.held = new Map();
    this.hash = null;
    this.bytes = 0;
    this.present = 0;
    this.answered = false;
    // whether the server stopped a stream with its content
    this.isStopped = false;
  }
}

class Run {
  #of;
  #link;
  #links;
  #pace;
  #signal;
  #reader;
  #writer;
  #offered = new Map();
  #open = new Semaphore(MAX_OPEN);
  #unanswered = new Semaphore(MAX_UNANSWERED);
  #spansAtOnce = new Semaphore(MAX_SPANS);
  #fail;
  #failed;
  #ended = false;

  constructor(of, link, pace, signal, { reader, writer, ticket }, join) {
    this.#of = of;
    this.#link = link;
    this.#pace = pace;
    this.#signal = signal;
    this.#reader = reader;
    this.#writer = writer;
    this.#failed = new Promise((_, reject) => { this.#fail = reject; });
    this.#failed.catch(() => {});
    const onlost = () => this.#fail(new TransferError('lost', 'the connection was lost'));
    // by WebSocket the system’s TCP decides, and more connections were not measured
    const more = link.kind === 'webtransport' && ticket ? () => join(ticket) : undefined;
    this.#links = new UploadLinks(link, more, onlost);
  }

  async send(files) {
    const offering = this.#offer(files).catch(error => this.#fail(error));
    this.#links.grow(this.#pace);
    try {
      await Promise.race([this.#answers(), this.#failed]);
      await offering;
      this.#writer.close();
    } finally {
      this.#ended = true;
      this.#links.end();
      for (const entry of this.#offered.values()) entry.release?.();
    }
  }

  async #offer(files) {
    const now = Date.now();
    const directories = new Set();
    let bytes = 0;
    for (const { path, file, modified } of files) {
      const parents = path.split('/').slice(0, -1);
      for (let depth = 1; depth <= parents.length; depth++) {
        const directory = parents.slice(0, depth).join('/');
        if (directories.has(directory)) continue;
        directories.add(directory);
        await this.#unanswered.take();
        const id = this.#link.nextId++;
        this.#offered.set(id, { id, directory });
        await this.#writer.send(protocol.directoryEntry(id, toBytes(directory), now));
      }
      if (this.#ended) return;
      await this.#unanswered.take();
      const time = modified ?? file.lastModified ?? now;
      const outgoing = new Outgoing(this.#link.nextId++, { path, file });
      bytes += file.size;
      let content = null;
      if (file.size <= MAX_INLINE) {
        try {
          content = new Uint8Array(await file.arrayBuffer());
        } catch (error) {
          this.#unanswered.give();
          this.#failedFile(outgoing, `it cannot be read: ${error.message}`, 'changed');
          continue;
        }
        await this.#pace.take(content.length);
        this.#of.moved += content.length;
        outgoing.bytes = content.length;
        outgoing.root = protocol.hash(content);
      } else {
        await this.#open.take();
        outgoing.isOpen = true;
        if (!await this.#claim(outgoing)) {
          this.#open.give();
          this.#unanswered.give();
          this.#failedFile(outgoing, 'another tab is sending this file', 'refused');
          continue;
        }
      }
      if (this.#ended) {
        outgoing.release?.();
        return;
      }
      this.#offered.set(outgoing.id, outgoing);
      this.#tell(outgoing, 'moving');
      await this.#writer.send(protocol.fileEntry(outgoing.id, toBytes(path), outgoing.size, time, content ?? undefined));
    }
    await this.#writer.send(protocol.entriesEnd(files.length, bytes));
  }

  // Claims a file among the tabs of this browser: to the server they are one client, whose later
  // transfer of a file ends an earlier one.
  #claim(file) {
    const name = `headroom upload ${joined(this.#of.directory, file.path)}`;
    return new Promise(resolve => {
      navigator.locks.request(name, { ifAvailable: true }, lock => {
        resolve(lock !== null);
        return lock && new Promise(release => { file.release = release; });
      }).catch(() => resolve(true));
    });
  }

  async #answers() {
    for (;;) {
      const message = await this.#reader.expect();
      switch (message.type) {
        case 'have': {
          const file = this.#offered.get(message.id);
          if (!file?.file) throw unexpected(message);
          for (let i = 0; i * 32 < message.values.length; i++) {
            file.held.set(message.first + i, message.values.subarray(i * 32, i * 32 + 32));
          }
          if (message.last) this.#sendFile(file).catch(error => this.#fail(lost(error)));
          break;
        }
        case 'arrived':
          this.#links.arrived(message);
          break;
        case 'stored': {
          const entry = this.#answered(message.id);
          if (!entry.file) break;
          const { path, size, present } = entry;
          this.#of.done(path, { file: path, bytes: size, total: size, present, state: 'verified', hash: hex(entry.root) });
          break;
        }
        case 'failed': {
          const entry = this.#answered(message.id);
          if (entry.file) this.#failedFile(entry, message.reason, message.code ?? 'refused');
          break;
        }
        case 'end': return;
        case 'refused': throw refusal(message);
        default: throw unexpected(message);
      }
    }
  }

  #answered(id) {
    const entry = this.#offered.get(id);
    if (!entry) throw new TransferError('protocol', 'the server answers what was not offered');
    this.#offered.delete(id);
    entry.answered = true;
    if (entry.isOpen) this.#open.give();
    entry.release?.();
    this.#unanswered.give();
    return entry;
  }

  #failedFile(entry, reason, code) {
    const { path, bytes, size } = entry;
    this.#of.done(path, { file: path, bytes, total: size, state: 'failed', reason, code });
  }

  #tell(file, state) {
    const { path, bytes, size, present } = file;
    this.#of.tell({ file: path, bytes, total: size, present, state });
  }

  async #spans(file, start, end) {
    const span = protocol.spanBytes();
    return new Uint8Array(await file.file.slice(start * span, Math.min(file.size, end * span)).arrayBuffer());
  }

  // Sends the spans that the server lacks, then the hash.
  async #sendFile(file) {
    const hash = file.hash = new protocol.FileHash(file.size);
    const count = hash.count;
    const pieces = [];
    let sent = 0;
    try {
      // what the server has counts if it is the same here
      for (const [number, value] of file.held) {
        if (this.#isOver(file)) return;
        const bytes = await this.#spans(file, number, number + 1);
        const own = hash.value(number, bytes);
        if (own.every((byte, i) => byte === value[i])) {
          hash.insert(number, own);
          file.present += bytes.length;
          file.bytes = file.present;
          this.#tell(file, 'hashing');
        }
      }
      let next = 0;
      while (next < count && !this.#isOver(file) && !file.isStopped) {
        if (hash.contains(next)) {
          next++;
          continue;
        }
        const start = next;
        const wanted = Math.ceil(this.#links.pieceBytes / protocol.spanBytes());
        const most = Math.min(SPANS_OF_PIECE, Math.max(1, wanted));
        while (next < count && next - start < most && !hash.contains(next)) next++;
        const spans = next - start;
        await this.#spansAtOnce.take(spans);
        const piece = this.#sendPiece(file, hash, start, next).finally(() => this.#spansAtOnce.give(spans));
        piece.catch(() => {});
        pieces.push(piece);
      }
      for (const bytes of await Promise.all(pieces)) sent += bytes;
      // not every span was read: the server's message, which follows, says why it stopped
      if (this.#isOver(file) || file.isStopped) return;
      file.root = hash.root();
      await this.#writer.send(protocol.sealed(file.id, file.root, sent));
    } catch (error) {
      if (this.#isOver(file) || error.code === 'lost') throw error;
      // the file cannot be read any more, or is another one now
      await Promise.allSettled(pieces);
      this.#answered(file.id);
      this.#failedFile(file, `it changed or cannot be read: ${error.message}`, 'changed');
      await this.#writer.send(protocol.withdrawn(file.id, 'it changed, or cannot be read, in the browser'));
    } finally {
      await Promise.allSettled(pieces);
      file.hash = null;
      hash.free();
    }
  }

  #isOver(file) {
    return this.#ended || file.answered;
  }

  // Sends spans on a stream of their own. Returns how many bytes they have.
  async #sendPiece(file, hash, start, end) {
    const span = protocol.spanBytes();
    const offset = start * span;
    const length = Math.min(file.size, end * span) - offset;
    let stream;
    try {
      stream = await this.#links.open(length);
      stream.writer.closed.catch(() => {});
      await stream.writer.write(protocol.dataHeader(file.id, offset, length));
    } catch (error) {
      throw lost(error);
    }
    const { writer } = stream;
    try {
      const read = await this.#spans(file, start, end);
      for (let number = start; number < end; number++) {
        if (this.#isOver(file)) {
          stream.abort();
          return length;
        }
        const bytes = read.subarray((number - start) * span, (number - start + 1) * span);
        hash.add(number, bytes);
        if (!await this.#write(stream, file, bytes)) return length;
      }
    } catch (error) {
      stream.abort();
      throw error;
    }
    writer.close().catch(() => {});
    return length;
  }

  // Writes a span. Whether the server takes more of the piece.
  async #write({ link, writer }, file, bytes) {
    for (let at = 0; at < bytes.length;) {
      const part = bytes.subarray(at, at + this.#pace.slice(bytes.length - at));
      await this.#pace.take(part.length);
      try {
        await writer.ready;
        await writer.write(part);
      } catch (error) {
        // the server stopped the stream, and says why in a message; else the connection is lost
        if (link.ended) throw lost(error);
        file.isStopped = true;
        return false;
      }
      at += part.length;
      file.bytes += part.length;
      this.#of.moved += part.length;
      this.#tell(file, 'moving');
    }
    return true;
  }
}
