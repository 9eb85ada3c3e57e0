// How fast a transfer may go: a rate, which may change while it runs, and pauses. One may stand
// below another, whose rate and pauses hold for it, too.

export class Pace {
  #above;
  #rate = null;
  // when the next byte may go, in milliseconds of performance.now()
  #next = 0;
  #going = Promise.resolve();
  #go = null;
  // wakes those that wait for the rate
  #waiting = new Set();

  constructor(above = null) {
    this.#above = above;
  }

  setRate(bytesPerSecond) {
    this.#rate = bytesPerSecond > 0 ? bytesPerSecond : null;
    this.#next = Math.min(this.#next, performance.now());
    for (const wake of this.#waiting) wake();
  }

  pause() {
    if (!this.#go) this.#going = new Promise(resolve => { this.#go = resolve; });
  }

  resume() {
    this.#go?.();
    this.#go = null;
  }

  // Whether something holds it: then silence of the other side means nothing.
  get isHeld() {
    return this.#go !== null || this.#rate !== null || (this.#above?.isHeld ?? false);
  }

  // Returns how many bytes to move at once at most.
  slice(bytes) {
    const own = this.#rate === null ? bytes : Math.min(bytes, Math.max(16 << 10, Math.floor(this.#rate / 10)));
    return this.#above ? this.#above.slice(own) : own;
  }

  // Waits until so many bytes may move.
  async take(bytes) {
    await this.#above?.take(bytes);
    while (this.#go) await this.#going;
    if (this.#rate === null) return;
    const now = performance.now();
    const start = Math.max(this.#next, now - 50);
    this.#next = start + bytes / this.#rate * 1000;
    while (this.#rate !== null && this.#next > performance.now()) {
      const wait = Math.min(start, this.#next) - performance.now();
      if (wait <= 0) break;
      await new Promise(resolve => {
        const wake = () => {
          clearTimeout(timer);
          this.#waiting.delete(wake);
          resolve();
        };
        const timer = setTimeout(wake, wait);
        this.#waiting.add(wake);
      });
      if (start <= performance.now()) break;
    }
  }
}
