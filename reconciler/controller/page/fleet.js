// One card per runtime: its numbers, and a picture of the whole fleet with one mark per node, in the order of names.

import { STAGES, VERDICTS, element } from "./words.js";

const SIZES = [16, 14, 12, 10, 8, 7, 6, 5, 4, 3]; // px of a mark, the gap to the next one included
const TALLEST = 64; // px
const ALARM = 11; // px, at least, of a mark that must not be missed
const BAR = ["ok", "working", "waiting", "stuck", "failed", "aside"]; // from the left; what is absent stays empty
const LOUD = new Set(["stuck", "failed"]);

export class Fleet {
  #cards = new Map();
  #model = null;

  /** `choose(node)` is called for a click, `tell(event, text)` while the pointer is over a mark, text "" when it left. */
  constructor(root, { choose, tell }) {
    this.root = root;
    this.choose = choose;
    this.tell = tell;
    new ResizeObserver(() => this.#paint()).observe(root);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#paint());
  }

  show(model) {
    this.#model = model;
    const names = new Set(model.runtimes.map((r) => r.name));
    for (const [name, card] of this.#cards) {
      if (names.has(name)) continue;
      card.root.remove();
      this.#cards.delete(name);
    }
    for (const runtime of model.runtimes) this.#card(runtime.name).show(runtime, model.census(runtime.name));
    this.#paint();
  }

  #paint() {
    if (this.#model === null) return;
    const style = getComputedStyle(document.documentElement);
    const probe = element("i");
    this.root.append(probe);
    const colours = new Map();
    for (const name of [...VERDICTS.map((v) => v.name), "sheet"]) {
      probe.style.color = style.getPropertyValue(`--${name}`); // resolves light-dark()
      colours.set(name, getComputedStyle(probe).color);
    }
    probe.remove();
    for (const card of this.#cards.values()) card.paint(this.#model.ordered, colours);
  }

  #card(name) {
    let card = this.#cards.get(name);
    if (card === undefined) {
      card = new Card(name, this);
      this.#cards.set(name, card);
      this.root.append(card.root);
    }
    return card;
  }
}

class Card {
  constructor(name, fleet) {
    this.name = name;
    this.root = element("article", "runtime");
    this.root.dataset.runtime = name;
    this.title = element("div", "title");
    this.bar = element("div", "bar");
    this.bar.setAttribute("aria-hidden", "true");
    this.stages = element("div", "stages");
    this.problem = element("div", "problem");
    this.halted = element("div", "halted");
    this.canvas = element("canvas");
    this.canvas.setAttribute("role", "img");
    const left = element("div");
    const right = element("div");
    left.append(this.title, this.bar, this.stages);
    right.append(this.canvas, this.problem, this.halted);
    this.root.append(left, right);
    this.drawn = [];
    this.canvas.addEventListener("pointermove", (e) => fleet.tell(e, this.#wordsAt(e)));
    this.canvas.addEventListener("pointerleave", (e) => fleet.tell(e, ""));
    this.canvas.addEventListener("click", (e) => {
      const node = this.#at(e);
      if (node !== undefined) fleet.choose(node.name);
    });
  }

  show(runtime, census) {
    this.title.replaceChildren(
      element("h2", "", runtime.name),
      element("span", "ready", `${runtime.ready}/${runtime.total} ready`),
      ...badges(runtime),
    );
    const rows = [...census.values()].reduce((a, b) => a + b, 0);
    this.bar.replaceChildren(
      ...BAR.filter((v) => census.has(v)).map((v) => {
        const part = element("i", v);
        part.style.width = `${(100 * census.get(v)) / Math.max(rows, 1)}%`;
        return part;
      }),
    );
    const known = STAGES.filter((stage) => stage in runtime.stages);
    const others = Object.keys(runtime.stages).filter((stage) => !STAGES.includes(stage));
    this.stages.textContent = [...known, ...others].map((stage) => `${stage}\u00a0${runtime.stages[stage]}`).join(" · ") || "no node yet";
    this.stages.title = runtime.revision && `revision ${runtime.revision}`;
    say(this.problem, runtime.problem === null ? "" : `${runtime.problem.reason}: ${runtime.problem.message ?? ""}`);
    say(this.halted, runtime.halted && `Halted: ${runtime.halted}`);
    const said = VERDICTS.filter((v) => census.has(v.name)).map((v) => `${census.get(v.name)} ${v.name}`).join(", ");
    this.canvas.setAttribute("aria-label", `${runtime.name}: ${said || "no nodes"}`);
  }

  paint(nodes, colours) {
    const width = this.canvas.clientWidth;
    if (width === 0) return;
    this.drawn = nodes.filter((node) => node.rows.has(this.name));
    const picture = [width, devicePixelRatio, colours.get("sheet"), ...this.drawn.map((node) => node.rows.get(this.name).verdict)].join();
    if (picture === this.picture) return; // thousands of marks: only when one is another
    this.picture = picture;
    this.size = SIZES.find((size) => Math.ceil(this.drawn.length / this.#perLine(width, size)) * size <= TALLEST) ?? SIZES.at(-1);
    this.perLine = this.#perLine(width, this.size);
    const height = Math.max(Math.ceil(this.drawn.length / this.perLine), 1) * this.size;
    const scale = devicePixelRatio;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    const alarms = [];
    this.drawn.forEach((node, i) => {
      const verdict = node.rows.get(this.name).verdict;
      const at = [(i % this.perLine) * this.size, Math.floor(i / this.perLine) * this.size];
      if (LOUD.has(verdict)) alarms.push([verdict, ...at]);
      else this.#mark(pen, colours, verdict, ...at, this.size);
    });
    for (const [verdict, x, y] of alarms) this.#alarm(pen, colours, verdict, x, y, width, height);
  }

  #mark(pen, colours, verdict, x, y, size) {
    pen.fillStyle = colours.get(verdict) ?? colours.get("waiting");
    pen.globalAlpha = verdict === "ok" ? 0.45 : 1;
    mark(pen, verdict, x, y, size);
    pen.globalAlpha = 1;
  }

  /** Large enough to be found among thousands, with a rim that lifts it off its neighbours. */
  #alarm(pen, colours, verdict, x, y, width, height) {
    const size = Math.max(this.size, ALARM);
    const grown = (size - this.size) / 2;
    const left = Math.max(Math.min(x - grown, width - size), 0);
    const top = Math.max(Math.min(y - grown, height - size), 0);
    pen.fillStyle = colours.get("sheet");
    pen.fillRect(left - 1, top - 1, size, size);
    this.#mark(pen, colours, verdict, left, top, size);
  }

  #perLine(width, size) {
    return Math.max(Math.floor(width / size), 1);
  }

  #at(event) {
    const line = Math.floor(event.offsetY / this.size);
    const column = Math.floor(event.offsetX / this.size);
    return column < this.perLine ? this.drawn[line * this.perLine + column] : undefined;
  }

  #wordsAt(event) {
    const node = this.#at(event);
    if (node === undefined) return "";
    const row = node.rows.get(this.name);
    return `${node.name} · ${this.name}: ${row.stage}, ${row.verdict}${row.error === null ? "" : ` (${row.error.reason})`}`;
  }
}

/** The worse, the larger and fuller: told apart without colours. Stuck is round, failed a cross, work a triangle. */
function mark(pen, verdict, x, y, size) {
  const room = size - (size > 6 ? 2 : 1);
  const middle = room / 2;
  if (verdict === "stuck") {
    pen.beginPath();
    pen.arc(x + middle, y + middle, middle, 0, 2 * Math.PI);
    pen.fill();
  } else if (verdict === "failed") {
    const arm = Math.max(room / 3, 1.5);
    pen.fillRect(x + middle - arm / 2, y, arm, room);
    pen.fillRect(x, y + middle - arm / 2, room, arm);
  } else if (verdict === "working") {
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(x + room, y + middle);
    pen.lineTo(x, y + room);
    pen.fill();
  } else if (verdict === "ok") {
    pen.fillRect(x, y, room, room);
  } else if (verdict === "waiting") {
    pen.fillRect(x, y + room / 2, room, room / 2);
  } else {
    pen.fillRect(x + middle / 2, y + room - 1.5, middle, 1.5);
  }
}

function badges(runtime) {
  const found = [];
  if (runtime.deleting) found.push(element("span", "badge", "deleting"));
  if (runtime.paused) found.push(element("span", "badge", "paused"));
  if (runtime.halted && !runtime.paused) found.push(element("span", "badge alarm", "halted"));
  if (runtime.stuck) found.push(element("span", "badge alarm", `${runtime.stuck} stuck`));
  if (runtime.failed) found.push(element("span", "badge alarm", `${runtime.failed} failed`));
  if (runtime.setAside) found.push(element("span", "badge", `${runtime.setAside} set aside`));
  return found;
}

/** One line, and all of it for who points at it. */
function say(line, text) {
  line.textContent = text;
  line.title = text;
}
