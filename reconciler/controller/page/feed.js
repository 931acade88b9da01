// The document once, then its changes; and the controller's clock.

const SILENCE = 15_000; // ms without a beat (one comes every 5 s) until the line counts as dead
const RETRY = 1_000; // ms until the first new try; doubled each time, up to RETRY_MAX
const RETRY_MAX = 15_000;

/** Counts the controller's time between two words from it; a browser's own clock may be wrong by hours. */
export class Clock {
  #offset = null;

  hear(time) {
    this.#offset = Date.parse(time) - performance.now();
  }

  /** Milliseconds since 1970 on the controller's clock; null before it has said anything. */
  now() {
    return this.#offset === null ? null : this.#offset + performance.now();
  }
}

export class Feed {
  #events = null;
  #heard = 0;
  #tries = 0;
  #retry = 0;
  #version = "";

  /** `listener` has load(whole), change(change), beat(time) and state(name): connecting, live, polling or lost. */
  constructor(listener) {
    this.listener = listener;
    setInterval(() => this.#watch(), 1_000);
    this.#load();
  }

  async #load() {
    this.#hangUp();
    try {
      const answer = await fetch("status.json", { cache: "no-cache", signal: AbortSignal.timeout(60_000) });
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const whole = await answer.json();
      this.#version = whole.version;
      this.listener.load(whole);
      this.#listen();
    } catch (error) {
      this.#again("lost");
    }
  }

  #listen() {
    const events = new EventSource(`status/events?since=${encodeURIComponent(this.#version)}`);
    this.#events = events;
    this.#heard = performance.now();
    events.addEventListener("beat", (e) => this.#hear(() => this.listener.beat(JSON.parse(e.data).time)));
    events.addEventListener("change", (e) => this.#hear(() => this.#change(JSON.parse(e.data))));
    events.addEventListener("reload", () => this.#again("connecting"));
    events.addEventListener("error", () => {
      // refused (too many pages are open): the whole is loaded now and then instead
      if (events.readyState === EventSource.CLOSED) this.#again("polling");
      else this.listener.state("connecting");
    });
  }

  #change(change) {
    this.#version = change.version;
    this.listener.change(change);
  }

  #hear(act) {
    this.#heard = performance.now();
    this.#tries = 0;
    act();
    this.listener.state("live");
  }

  #watch() {
    if (this.#events !== null && performance.now() - this.#heard > SILENCE) this.#again("lost");
  }

  #again(state) {
    this.#hangUp();
    this.listener.state(state);
    const pause = Math.min(RETRY * 2 ** this.#tries++, RETRY_MAX);
    this.#retry = setTimeout(() => this.#load(), pause * (0.5 + Math.random() / 2));
  }

  #hangUp() {
    clearTimeout(this.#retry);
    this.#events?.close();
    this.#events = null;
  }
}
