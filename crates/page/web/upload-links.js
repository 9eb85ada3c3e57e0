// The connections of one upload.
//
// A browser controls the rate of each connection as TCP does: where packets are lost, that is a
// small part of what the network could carry. So an upload gets more connections, four times as
// many each time, as long as that at least doubles its rate. On a link that is full it does not,
// whoever fills it.

const MAX_LINKS = 16;
const TIMES = 4;
const LEAST_GAIN = 2;
// A rate is observed for this long, again while it is another one by more than this factor: at
// first a connection is slower than later, or faster until it loses packets.
const OBSERVED_MS = 300;
const STEADY = 1.5;
const MAX_OBSERVED = 8;

// What is on the way on one connection: as much as it moves in this time, within bounds, and then one
// piece more. The more, the longer is the last piece on the slowest connection waited for.
const AHEAD_MS = 500;
const LEAST_AHEAD = 512 << 10;
const MAX_AHEAD = 16 << 20;
// Before its rate is known.
const FIRST_AHEAD = 2 << 20;
// The server allows 16 on each connection, and Chromium does not wait for it to allow more.
const MAX_STREAMS = 12;
// A piece is what the fastest connection moves in this time.
const PIECE_MS = 50;

// What one connection has to carry, and has carried as the server says.
class Load {
  sent = 0;
  arrived = 0;
  opened = 0;
  ended = 0;
  isOver = false;
  // when what had arrived, in the last second
  #seen = [];

  constructor(link) {
    this.link = link;
  }

  get onTheWay() {
    return this.sent - this.arrived;
  }

  notice({ bytes, streams }) {
    const now = performance.now();
    this.arrived = bytes;
    this.ended = streams;
    // a stream that was given up here may have reached the server, which counts it as a whole
    this.sent = Math.max(this.sent, bytes);
    this.opened = Math.max(this.opened, streams);
    this.#seen.push({ at: now, bytes });
    while (this.#seen.length > 2 && now - this.#seen[1].at > 1000) this.#seen.shift();
  }

  get hasRoom() {
    return this.opened - this.ended < MAX_STREAMS && this.onTheWay < this.#ahead;
  }

  // Bytes per millisecond; null while it is not known.
  get rate() {
    if (this.#seen.length < 2) return null;
    const [first, last] = [this.#seen[0], this.#seen.at(-1)];
    return (last.bytes - first.bytes) / (last.at - first.at);
  }

  get #ahead() {
    const { rate } = this;
    return rate === null ? FIRST_AHEAD : Math.min(MAX_AHEAD, Math.max(LEAST_AHEAD, rate * AHEAD_MS));
  }
}

export class UploadLinks {
  #loads;
  #join;
  #onlost;
  #ended = false;
  #waiting = [];

  // `join` opens another connection for the upload, and resolves with it and a reader of its
  // messages; it is undefined where there is to be no other. `onlost` is called when a connection is
  // lost.
  constructor(first, join, onlost) {
    this.#loads = [];
    this.#join = join;
    this.#onlost = onlost;
    this.#add(first);
  }

  #add(link) {
    const load = new Load(link);
    this.#loads.push(load);
    link.closed.then(() => { if (!this.#ended && !load.isOver) this.#onlost(); });
    this.#wake();
    return load;
  }

  // Notes what has arrived on the first connection.
  arrived(message) {
    this.#notice(this.#loads[0], message);
  }

  #notice(load, message) {
    load.notice(message);
    this.#wake();
  }

  #wake() {
    for (const wake of this.#waiting.splice(0)) wake();
  }

  // Returns how many bytes the next piece should have, 0 while that is not known.
  get pieceBytes() {
    return Math.max(...this.#loads.map(it => it.rate ?? 0)) * PIECE_MS;
  }

  // Waits until a connection has room for another piece, and opens a stream for it on that with the
  // least on the way.
  async open(bytes) {
    let load;
    while (!(load = this.#choose())) await this.#news();
    load.sent += bytes;
    load.opened++;
    const { link } = load;
    const writer = (await link.transport.createUnidirectionalStream({ sendOrder: 0 })).getWriter();
    const abort = () => {
      load.sent -= bytes;
      load.opened--;
      writer.abort().catch(() => {});
    };
    return { link, writer, abort };
  }

  #choose() {
    const free = this.#ended ? this.#loads : this.#loads.filter(it => it.hasRoom);
    return free.toSorted((a, b) => a.onTheWay - b.onTheWay)[0];
  }

  // Resolves when the server has told something.
  #news() {
    return new Promise(resolve => this.#waiting.push(resolve));
  }

  // Adds connections as long as that helps.
  async grow(pace) {
    let before = 0;
    while (this.#join && !this.#ended && this.#loads.length < MAX_LINKS) {
      const rate = await this.#steadyRate();
      if (pace.isHeld) continue;
      if (this.#ended || rate < before * LEAST_GAIN) return;
      before = rate;
      const more = Array.from({ length: this.#loads.length * (TIMES - 1) }, () => this.#more());
      await Promise.allSettled(more);
    }
  }

  // Observes the rate until it is steady, from when something has arrived.
  async #steadyRate() {
    const sum = () => this.#loads.reduce((sum, it) => sum + it.arrived, 0);
    while (sum() === 0 && !this.#ended) await this.#news();
    let former = 0;
    for (let turn = 0; ; turn++) {
      const [from, since] = [sum(), performance.now()];
      await new Promise(resolve => setTimeout(resolve, OBSERVED_MS));
      const rate = (sum() - from) / (performance.now() - since);
      if (this.#ended || turn === MAX_OBSERVED) return rate;
      if (rate < former * STEADY && former < rate * STEADY) return rate;
      former = rate;
    }
  }

  async #more() {
    const { link, reader } = await this.#join();
    if (this.#ended) return link.close();
    const load = this.#add(link);
    this.#read(load, reader).catch(() => {});
  }

  async #read(load, reader) {
    for (;;) {
      const message = await reader.next();
      // the upload is over, which the first connection will say, too
      if (message?.type === 'end') load.isOver = true;
      if (message?.type !== 'arrived') return;
      this.#notice(load, message);
    }
  }

  // Closes all but the first.
  end() {
    this.#ended = true;
    this.#wake();
    for (const { link } of this.#loads.slice(1)) link.close();
  }
}
