// One connection to the server: streams, messages, and the proof of this browser's key.

import * as protocol from './protocol.js';
import { TransferError } from './errors.js';
import { browserName } from './key.js';
import { MuxTransport } from './mux.js';

// How long the server may take for each step until a connection is signed in.
export const CONNECT_MS = 8000;

// Resolves with it, or rejects after so many milliseconds.
export function within(ms, promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new TransferError('lost', what)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

export const lost = error => error instanceof TransferError ? error
  : new TransferError('lost', `the connection was lost${error?.message ? `: ${error.message}` : ''}`);

// The codes with which a server closes a connection, and what is said where it gives no reason.
const CLOSED = {
  1: ['lost', 'the server was stopped'],
  2: ['protocol', 'the server reports a violation by this page'],
  3: ['lost', 'the server has too many connections'],
  4: ['superseded', 'a newer transfer took its place'],
  5: ['lost', 'the rights of this key have changed'],
  6: ['lost', 'the server ended it'],
};

function closedWith({ closeCode, reason }) {
  const [code, words] = CLOSED[closeCode] ?? [];
  if (!code) return null;
  const told = reason || words;
  return Object.assign(new TransferError(code, told), { told });
}

const fromHex = text => new Uint8Array(text.match(/../g).map(it => parseInt(it, 16)));

// Reads messages of a stream.
class MessageReader {
  #reader;
  #buffer = new Uint8Array(0);

  constructor(readable) {
    this.#reader = readable.getReader();
  }

  // Returns the next message; null at the end.
  async next() {
    for (;;) {
      if (this.#buffer.length >= 4) {
        let length;
        try {
          length = protocol.bodyLength(this.#buffer.subarray(0, 4));
        } catch (error) {
          throw new TransferError('protocol', error.message);
        }
        if (this.#buffer.length >= 4 + length) {
          const body = this.#buffer.subarray(4, 4 + length);
          this.#buffer = this.#buffer.subarray(4 + length);
          try {
            return protocol.decode(body);
          } catch (error) {
            throw new TransferError('protocol', error.message);
          }
        }
      }
      let read;
      try {
        read = await this.#reader.read();
      } catch (error) {
        throw lost(error);
      }
      if (read.done) {
        if (this.#buffer.length > 0) throw new TransferError('lost', 'the last message is incomplete');
        return null;
      }
      const joined = new Uint8Array(this.#buffer.length + read.value.length);
      joined.set(this.#buffer);
      joined.set(read.value, this.#buffer.length);
      this.#buffer = joined;
    }
  }

  // Returns the next message, which must come.
  async expect() {
    const message = await this.next();
    if (!message) throw new TransferError('lost', 'the server ended the request');
    return message;
  }

  cancel() {
    this.#reader.cancel().catch(() => {});
  }
}

// Writes messages to a stream, together where several wait.
class MessageWriter {
  #writer;
  #waiting = [];
  #flushing = null;

  constructor(writable) {
    this.#writer = writable.getWriter();
    this.#writer.closed.catch(() => {});
  }

  // Queues messages, and resolves when they are accepted for sending.
  send(...messages) {
    this.#waiting.push(...messages);
    this.#flushing ??= Promise.resolve().then(() => this.#flush());
    return this.#flushing;
  }

  async #flush() {
    try {
      while (this.#waiting.length > 0) {
        const messages = this.#waiting.splice(0);
        const bytes = new Uint8Array(messages.reduce((sum, it) => sum + it.length, 0));
        let at = 0;
        for (const message of messages) {
          bytes.set(message, at);
          at += message.length;
        }
        await this.#writer.write(bytes);
      }
    } catch (error) {
      throw lost(error);
    } finally {
      this.#flushing = null;
    }
  }

  close() {
    this.#writer.close().catch(() => {});
  }
}

// A connection that has proven its key, or still has to.
export class Link {
  // Whether the exporter of this browser is used, if it has one: drafts differ in it.
  static exports = true;
  // Numbers entries of all requests.
  nextId = 0;
  granted = null;
  ended = false;
  // the error that stands for how the server closed it, if it said
  #closing = null;

  constructor(transport, kind, config) {
    this.transport = transport;
    this.kind = kind;
    this.config = config;
    this.uni = transport.incomingUnidirectionalStreams.getReader();
    const end = info => {
      this.ended = true;
      this.#closing = closedWith(info ?? {});
    };
    this.closed = transport.closed.then(end, end);
  }

  // Returns what the server said when it closed the connection in the place of a loss.
  async why(error) {
    if (error.code !== 'lost') return error;
    // streams fail in the task in which the end of all is known
    await Promise.race([this.closed, new Promise(resolve => setTimeout(resolve))]);
    return this.#closing ?? error;
  }

  // Connects by WebTransport.
  static async webTransport(config) {
    const { port, hashes } = config.webtransport;
    const host = location.hostname;
    const transport = new WebTransport(`https://${host}:${location.port || port}${config.path}`, {
      congestionControl: 'throughput',
      serverCertificateHashes: hashes.map(hash => ({ algorithm: 'sha-256', value: fromHex(hash) })),
    });
    transport.closed.catch(() => {});
    try {
      await within(CONNECT_MS, transport.ready, 'the server does not answer at its UDP port');
    } catch (error) {
      try { transport.close(); } catch { /* it never opened */ }
      throw lost(error);
    }
    return new Link(transport, 'webtransport', config);
  }

  // Connects by a WebSocket of the server of this page.
  static async webSocket(config) {
    const transport = new MuxTransport(`wss://${location.host}${config.path}`);
    try {
      await within(CONNECT_MS, transport.ready, 'the server does not answer');
    } catch (error) {
      transport.close();
      throw lost(error);
    }
    return new Link(transport, 'websocket', config);
  }

  // Proves the key, once for each connection, and asks what it may do.
  async signIn(key, secrets = {}) {
    const { reader, writer } = await this.#stream();
    const challenge = await within(CONNECT_MS, reader.expect(), 'the server does not answer');
    if (challenge.type !== 'challenge') throw unexpected(challenge);
    const { kind, boundTo } = await this.#binding();
    const nonce = crypto.getRandomValues(new Uint8Array(32));
    const signature = await key.sign(protocol.toSign(kind, key.bytes, boundTo, challenge.nonce, nonce));
    const messages = [protocol.hello(0), protocol.proof(kind, key.bytes, signature, nonce)];
    if (secrets.share) messages.push(protocol.shareSecret(secrets.share));
    else if (secrets.invite) messages.push(protocol.invited(secrets.invite, browserName()));
    messages.push(protocol.rights());
    await writer.send(...messages);
    writer.close();
    const hello = await within(CONNECT_MS, reader.expect(), 'the server does not answer');
    if (hello.type === 'refused') throw new TransferError(hello.code ?? 'unauthorized', hello.reason);
    if (hello.type !== 'hello') throw unexpected(hello);
    const granted = await within(CONNECT_MS, reader.expect(), 'the server does not answer');
    if (granted.type === 'refused') {
      if (kind === 'exporter' && granted.code === 'proof') {
        Link.exports = false;
        throw new TransferError('lost', 'the server computes another key of the session');
      }
      const isProof = granted.code === 'proof';
      throw new TransferError(isProof ? 'unauthorized' : granted.code ?? 'unauthorized', granted.reason);
    }
    if (granted.type !== 'granted') throw unexpected(granted);
    this.granted = granted;
    return granted;
  }

  // To what the proof is bound: the session where the browser can export it, else the certificate
  // that was pinned, else the origin.
  async #binding() {
    if (this.kind === 'webtransport') {
      if (Link.exports && typeof this.transport.exportKeyingMaterial === 'function') {
        const label = protocol.exporterLabel();
        return { kind: 'exporter', boundTo: await this.transport.exportKeyingMaterial(label, new Uint8Array(0), 32) };
      }
      return { kind: 'certificate', boundTo: fromHex(this.config.webtransport.hashes[0]) };
    }
    const origin = new TextEncoder().encode(location.origin);
    return { kind: 'origin', boundTo: new Uint8Array(await crypto.subtle.digest('SHA-256', origin)) };
  }

  async #stream() {
    try {
      const { readable, writable } = await this.transport.createBidirectionalStream();
      return { reader: new MessageReader(readable), writer: new MessageWriter(writable) };
    } catch (error) {
      throw lost(error);
    }
  }

  // Sends a request, and returns its streams with the answer still to come.
  async ask(message, rate = 0) {
    const { reader, writer } = await this.#stream();
    await writer.send(protocol.hello(rate), message);
    const hello = await reader.expect();
    if (hello.type === 'refused') throw refusal(hello);
    if (hello.type !== 'hello') throw unexpected(hello);
    return { reader, writer, rate: hello.rate };
  }

  // Sends a request, and returns its streams when the server has accepted it.
  async request(message, rate = 0) {
    const { reader, writer, rate: takes } = await this.ask(message, rate);
    const accepted = await reader.expect();
    if (accepted.type === 'refused') throw refusal(accepted);
    if (accepted.type !== 'accepted') throw unexpected(accepted);
    return { reader, writer, rate: takes, ticket: accepted.ticket };
  }

  close() {
    this.ended = true;
    try { this.transport.close(); } catch { /* it is closed */ }
  }
}

export function unexpected(message) {
  return new TransferError('protocol', `the server sends ${message.type}, which is not allowed here`);
}

export function refusal(message) {
  return new TransferError(message.code ?? 'refused', message.reason);
}
