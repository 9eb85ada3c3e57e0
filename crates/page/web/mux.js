// Streams over one WebSocket, for networks that let no UDP through (docs/transfer.md, "Over a
// WebSocket"). It has the interface of WebTransport as far as link.js uses it.

import { TransferError } from './errors.js';

const DATA = 0;
const LAST = 1;
const RESET = 2;
const STOP = 3;
const CREDIT = 4;
const ALL = 0xffffffff;
const MAX_DATA = 64 << 10;
const STREAM_WINDOW = 1 << 20;
// What the server lets all streams have at the beginning, and what this side lets it have.
const SERVER_WINDOW = 128 << 10;
const CLIENT_WINDOW = 16 << 20;
// What may wait in the browser's own buffer.
const MAX_BUFFERED = 1 << 20;

const ended = () => new TransferError('lost', 'the connection was lost');

// Bytes that may be sent, and who waits for some.
class Credit {
  #waiting = [];

  constructor(left) {
    this.left = left;
  }

  add(bytes) {
    this.left += bytes;
    for (const wake of this.#waiting.splice(0)) wake();
  }

  more() {
    return new Promise(resolve => this.#waiting.push(resolve));
  }
}

export class MuxTransport {
  #socket;
  #streams = new Map();
  #credit = new Credit(SERVER_WINDOW);
  #next = [0, 0];
  #seen = 0;
  #consumed = 0;
  #incoming;
  #over = false;

  constructor(url) {
    const socket = this.#socket = new WebSocket(url);
    socket.binaryType = 'arraybuffer';
    this.ready = new Promise((resolve, reject) => {
      socket.onopen = resolve;
      socket.addEventListener('close', () => reject(ended()), { once: true });
    });
    this.closed = new Promise(resolve => {
      socket.onclose = ({ code, reason }) => {
        this.#end();
        resolve({ closeCode: code - 4000, reason });
      };
    });
    this.ready.catch(() => {});
    this.incomingUnidirectionalStreams = new ReadableStream({ start: controller => { this.#incoming = controller; } });
    socket.onmessage = ({ data }) => {
      try {
        this.#take(new Uint8Array(data));
      } catch (error) {
        this.close();
        console.error(error);
      }
    };
  }

  close() {
    this.#end();
    this.#socket.close();
  }

  #end() {
    if (this.#over) return;
    this.#over = true;
    for (const stream of this.#streams.values()) {
      stream.controller?.error(ended());
      stream.writing?.error(ended());
      stream.credit?.add(0);
    }
    this.#credit.add(0);
    this.#incoming.error(ended());
  }

  #send(kind, id, payload = null) {
    if (this.#over) return;
    const frame = new Uint8Array(5 + (payload?.length ?? 0));
    frame[0] = kind;
    new DataView(frame.buffer).setUint32(1, id);
    if (payload) frame.set(payload, 5);
    this.#socket.send(frame);
  }

  #grant(id, bytes) {
    const payload = new Uint8Array(4);
    new DataView(payload.buffer).setUint32(0, bytes);
    this.#send(CREDIT, id, payload);
  }

  #take(frame) {
    if (frame.length < 5) throw new TransferError('protocol', 'a frame is too short');
    const view = new DataView(frame.buffer, frame.byteOffset, frame.length);
    const [kind, id] = [frame[0], view.getUint32(1)];
    if (kind === CREDIT) {
      const credit = id === ALL ? this.#credit : this.#streams.get(id)?.credit;
      credit?.add(view.getUint32(5));
      return;
    }
    let stream = this.#streams.get(id);
    if (!stream && (id & 3) === 3 && kind <= RESET && id >>> 2 === this.#seen) {
      this.#seen++;
      stream = { id, readable: null, sendOver: true };
      this.#streams.set(id, stream);
      stream.readable = this.#readable(stream);
      this.#incoming.enqueue(stream.readable);
    }
    const bytes = frame.subarray(5);
    switch (kind) {
      case DATA:
      case LAST:
        if (!stream || stream.stopped) this.#consume(bytes.length);
        else {
          if (bytes.length > 0) {
            stream.waiting.push(bytes);
            stream.wake?.();
          }
        }
        if (kind === LAST && stream) {
          stream.receiveOver = true;
          stream.wake?.();
          this.#forget(stream);
        }
        break;
      case RESET:
        if (stream) {
          stream.receiveOver = true;
          this.#consume(stream.waiting.splice(0).reduce((sum, it) => sum + it.length, 0));
          if (!stream.stopped) stream.controller.error(new TransferError('lost', 'the server gave a stream up'));
          this.#forget(stream);
        }
        break;
      case STOP:
        if (stream && !stream.sendOver) {
          stream.sendOver = true;
          stream.isStopped = true;
          stream.writing.error(new TransferError('refused', 'the server stopped a stream'));
          stream.credit.add(0);
          this.#send(RESET, id);
          this.#forget(stream);
        }
        break;
      default: throw new TransferError('protocol', 'a frame has an unknown kind');
    }
  }

  #consume(bytes) {
    this.#consumed += bytes;
    if (this.#consumed < CLIENT_WINDOW / 4) return;
    this.#grant(ALL, this.#consumed);
    this.#consumed = 0;
  }

  #forget(stream) {
    if (stream.receiveOver && stream.sendOver) this.#streams.delete(stream.id);
  }

  #readable(stream) {
    stream.waiting = [];
    stream.consumed = 0;
    return new ReadableStream({
      start: controller => { stream.controller = controller; },
      pull: async controller => {
        while (stream.waiting.length === 0 && !stream.receiveOver && !this.#over) {
          await new Promise(resolve => { stream.wake = resolve; });
        }
        const bytes = stream.waiting.shift();
        if (!bytes) {
          if (stream.receiveOver && !this.#over) controller.close();
          return;
        }
        controller.enqueue(bytes);
        this.#consume(bytes.length);
        stream.consumed += bytes.length;
        if (stream.consumed >= STREAM_WINDOW / 2 && !stream.receiveOver) {
          this.#grant(stream.id, stream.consumed);
          stream.consumed = 0;
        }
      },
      cancel: () => {
        stream.stopped = true;
        this.#consume(stream.waiting.splice(0).reduce((sum, it) => sum + it.length, 0));
        if (!stream.receiveOver) this.#send(STOP, stream.id);
      },
    }, { highWaterMark: 0 });
  }

  #writable(stream) {
    stream.credit = new Credit(STREAM_WINDOW);
    const over = () => {
      if (this.#over) throw ended();
      if (stream.isStopped) throw new TransferError('refused', 'the server stopped a stream');
    };
    return new WritableStream({
      start: controller => { stream.writing = controller; },
      write: async bytes => {
        for (let at = 0; at < bytes.length;) {
          over();
          while (this.#socket.bufferedAmount > MAX_BUFFERED) {
            await new Promise(resolve => setTimeout(resolve, 2));
            over();
          }
          const most = Math.min(bytes.length - at, MAX_DATA, stream.credit.left, this.#credit.left);
          if (most <= 0) {
            await Promise.race([stream.credit.more(), this.#credit.more()]);
            continue;
          }
          stream.credit.left -= most;
          this.#credit.left -= most;
          this.#send(DATA, stream.id, bytes.subarray(at, at + most));
          at += most;
        }
      },
      close: () => {
        if (stream.sendOver) return;
        stream.sendOver = true;
        this.#send(LAST, stream.id);
        this.#forget(stream);
      },
      abort: () => {
        if (stream.sendOver) return;
        stream.sendOver = true;
        this.#send(RESET, stream.id);
        this.#forget(stream);
      },
    });
  }

  #open(oneWay) {
    if (this.#over) throw ended();
    const id = (this.#next[oneWay]++ << 2 | oneWay << 1) >>> 0;
    const stream = { id, receiveOver: oneWay === 1 };
    this.#streams.set(id, stream);
    // it is open before it has data: the server may be the first to say something
    this.#send(DATA, id);
    return stream;
  }

  async createBidirectionalStream() {
    const stream = this.#open(0);
    return { readable: this.#readable(stream), writable: this.#writable(stream) };
  }

  async createUnidirectionalStream() {
    return this.#writable(this.#open(1));
  }
}
