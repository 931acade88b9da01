// The table of nodes × runtimes. Only the rows that can be seen exist; they are filled anew as one scrolls.

import { barrierOf, worstError } from "./model.js";
import { element, sign, SIGNS, timing } from "./words.js";

const ROW = 40; // px; --row of the style
const SPARE = 6; // rows above and below what can be seen

export class Grid {
  #nodes = [];
  #columns = [];
  #filter = () => true;
  #pool = [];
  #active = { row: 0, column: 0 };
  #chosen = null;
  #pending = false;

  /** `choose(name)` when a node is clicked or Enter is pressed on it. */
  constructor({ root, columns, canvas }, { clock, choose }) {
    this.root = root;
    this.heads = columns;
    this.canvas = canvas;
    this.clock = clock;
    this.choose = choose;
    root.addEventListener("scroll", () => this.#soon(), { passive: true });
    root.addEventListener("keydown", (e) => this.#key(e));
    new ResizeObserver(() => this.#soon()).observe(root);
    canvas.addEventListener("click", (e) => this.#click(e));
  }

  /** The nodes to show, in order; cells that `filter` does not let through are dimmed. */
  show(nodes, runtimes, filter) {
    const name = this.#nodes[this.#active.row]?.name;
    this.#nodes = nodes;
    this.#filter = filter;
    if (runtimes.join("\n") !== this.#columns.join("\n")) this.#head(runtimes);
    const place = this.#chosen === null ? -1 : nodes.findIndex((n) => n.name === name);
    this.#active.row = place >= 0 ? place : Math.min(this.#active.row, Math.max(nodes.length - 1, 0));
    this.canvas.style.height = `${nodes.length * ROW}px`;
    this.root.setAttribute("aria-rowcount", String(nodes.length + 1));
    this.draw();
  }

  /** Mark a node as the one whose details are shown, and bring it into sight; null: none. */
  mark(name) {
    this.#chosen = name;
    const place = this.#nodes.findIndex((n) => n.name === name);
    if (place >= 0) {
      this.#active.row = place;
      this.#reveal();
    }
    this.draw();
  }

  draw() {
    const first = Math.max(Math.floor(this.root.scrollTop / ROW) - SPARE, 0);
    const last = Math.min(first + Math.ceil(this.root.clientHeight / ROW) + 2 * SPARE, this.#nodes.length);
    while (this.#pool.length < last - first) this.#pool.push(this.#line());
    const now = this.clock.now();
    this.#pool.forEach((line, i) => {
      const place = first + i;
      line.root.hidden = place >= last;
      if (place < last) this.#fill(line, this.#nodes[place], place, now);
    });
    const active = this.#pool[this.#active.row - first];
    if (active !== undefined && !active.root.hidden) {
      this.root.setAttribute("aria-activedescendant", active.cells[this.#active.column].id);
    } else this.root.removeAttribute("aria-activedescendant");
  }

  #soon() {
    if (this.#pending) return;
    this.#pending = true;
    requestAnimationFrame(() => {
      this.#pending = false;
      this.draw();
    });
  }

  #head(runtimes) {
    this.#columns = runtimes;
    const n = runtimes.length;
    this.root.style.setProperty("--columns", `minmax(11rem, 1.1fr) repeat(${n}, minmax(14rem, 1fr)) 7rem minmax(14rem, 2fr)`);
    this.root.style.setProperty("--least", `${11 + 14 * n + 7 + 14}rem`);
    this.root.setAttribute("aria-colcount", String(n + 3));
    const titles = ["Node", ...runtimes, "Barrier", "Last error"];
    this.heads.replaceChildren(...titles.map((title) => {
      const head = element("div", "words", title);
      head.setAttribute("role", "columnheader");
      return head;
    }));
    for (const line of this.#pool) line.root.remove();
    this.#pool = [];
    this.#active.column = Math.min(this.#active.column, n + 2);
  }

  #line() {
    const root = element("div", "row");
    root.setAttribute("role", "row");
    const number = this.#pool.length;
    const cells = [element("div", "name"), ...this.#columns.map(stageCell), element("div", "barrier"), element("div", "error")];
    cells.forEach((cell, column) => {
      cell.setAttribute("role", "gridcell");
      cell.id = `cell-${number}-${column}`;
      root.append(cell);
    });
    this.canvas.append(root);
    return { root, cells };
  }

  #fill(line, node, place, now) {
    const { root, cells } = line;
    root.style.transform = `translateY(${place * ROW}px)`;
    root.setAttribute("aria-rowindex", String(place + 2));
    root.classList.toggle("chosen", node.name === this.#chosen);
    root.setAttribute("aria-selected", String(node.name === this.#chosen));
    root.dataset.node = node.name;
    put(cells[0], node.name);
    cells[0].title = node.name;
    this.#columns.forEach((runtime, i) => fillStage(cells[i + 1], node.rows.get(runtime), now, this.#filter));
    const barrier = cells.at(-2);
    barrier.dataset.state = barrierOf(node);
    put(barrier, barrier.dataset.state);
    fillError(cells.at(-1), worstError(node), this.#columns.length > 1);
    cells.forEach((cell, column) => cell.classList.toggle("active", place === this.#active.row && column === this.#active.column));
  }

  #click(event) {
    const row = event.target.closest(".row");
    if (row === null) return;
    this.#active.row = this.#nodes.findIndex((n) => n.name === row.dataset.node);
    this.choose(row.dataset.node);
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(Math.floor(this.root.clientHeight / ROW) - 2, 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const sides = { ArrowLeft: -1, ArrowRight: 1 };
    if (event.key in steps) this.#active.row = clamp(this.#active.row + steps[event.key], this.#nodes.length - 1);
    else if (event.key in sides) this.#active.column = clamp(this.#active.column + sides[event.key], this.#columns.length + 2);
    else if (event.key === "Enter" && this.#nodes.length > 0) this.choose(this.#nodes[this.#active.row].name);
    else return;
    event.preventDefault();
    this.#reveal();
    this.draw();
  }

  #reveal() {
    const top = this.#active.row * ROW;
    const room = this.root.clientHeight - this.heads.offsetHeight - ROW;
    if (top < this.root.scrollTop) this.root.scrollTop = top;
    else if (top > this.root.scrollTop + room) this.root.scrollTop = top - room;
  }
}

const clamp = (value, most) => Math.max(0, Math.min(value, most));

/** Touches the DOM only where something is another. */
function put(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

function stageCell() {
  const cell = element("div", "cell");
  const track = element("div", "track");
  track.append(element("div", "fill"));
  cell.append(sign("absent"), element("span", "words"), element("span", "time"), track);
  return cell;
}

function fillStage(cell, row, now, filter) {
  const [chip, words, time, track] = cell.children;
  const verdict = row?.verdict ?? "";
  if (cell.dataset.verdict !== verdict) {
    cell.dataset.verdict = verdict;
    cell.className = `cell ${verdict}`;
    chip.className = `sign ${verdict}`;
    chip.textContent = row === undefined ? "" : SIGNS.get(verdict) ?? "?";
  }
  cell.classList.toggle("dim", row !== undefined && !filter(row));
  const { text, part, over } = row === undefined || now === null ? { text: "", part: null, over: false } : timing(row, now);
  put(words, row === undefined ? "" : row.attempt > 1 ? `${row.stage} (try ${row.attempt})` : row.stage);
  put(time, text);
  time.classList.toggle("over", over);
  track.hidden = part === null;
  if (part !== null) track.firstChild.style.transform = `scaleX(${part})`;
  const label = row === undefined ? "not selected" : `${row.runtime}: ${row.stage}, ${verdict}, ${text}`;
  if (cell.getAttribute("aria-label") !== label) cell.setAttribute("aria-label", label);
}

function fillError(cell, row, several) {
  const reason = row === null ? "" : `${several ? `${row.runtime}: ` : ""}${row.error.reason}`;
  const text = row === null ? "" : ` ${row.error.message ?? ""}`;
  if (cell.textContent === reason + text) return;
  cell.replaceChildren(element("b", "", reason), text);
  cell.title = reason + text;
}
