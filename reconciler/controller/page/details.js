// Everything that is known of one node.

import { element, moment, sign, span, timing } from "./words.js";

export class Details {
  #name = null;
  #shown = null;
  #timed = [];

  constructor(root, { clock, closed }) {
    this.root = root;
    this.clock = clock;
    this.closed = closed;
    this.close = this.close.bind(this);
  }

  open(name) {
    this.#name = name;
    this.root.hidden = false;
  }

  close() {
    if (this.#name === null) return;
    this.#name = null;
    this.root.hidden = true;
    this.closed();
  }

  /** Built anew only when a row is another, so that a message can be marked and copied; else only times go on. */
  show(model) {
    if (this.#name === null) return;
    const node = model.nodes.get(this.#name);
    const rows = node === undefined ? [] : [...node.rows.values()];
    const known = this.#shown;
    if (known === null || known.name !== this.#name || known.rows.length !== rows.length || rows.some((row, i) => row !== known.rows[i])) {
      this.#shown = { name: this.#name, rows };
      this.#build(rows);
    }
    const now = this.clock.now();
    for (const { target, text } of this.#timed) {
      const words = now === null ? "" : text(now);
      if (target.textContent !== words) target.textContent = words;
    }
  }

  #build(rows) {
    this.#timed = [];
    const head = element("header");
    const button = element("button", "", "Close (Esc)");
    button.type = "button";
    button.addEventListener("click", this.close);
    head.append(element("h2", "", this.#name), element("span", "push"), button);
    const focused = this.root.contains(document.activeElement);
    const parts = rows.map((row) => this.#section(row));
    if (rows.length === 0) parts.push(element("p", "faint", "This node is not there any more."));
    this.root.replaceChildren(head, ...parts);
    if (focused) button.focus();
  }

  #section(row) {
    const section = element("section");
    const title = element("h3");
    title.append(sign(row.verdict), element("span", "", `${row.runtime}: ${row.stage}`), element("span", "faint", row.verdict));
    const list = element("dl");
    for (const [name, value] of facts(row)) {
      if (!value) continue;
      const target = element("dd", "", typeof value === "function" ? "" : value);
      if (typeof value === "function") this.#timed.push({ target, text: value });
      list.append(element("dt", "", name), target);
    }
    section.append(title, list);
    if (row.advice) {
      const advice = element("p", "advice");
      advice.append(element("b", "", "What to do: "), row.advice);
      section.append(advice);
    }
    return section;
  }
}

/** Name and text; a text that goes with the time is a function of it. */
function facts(row) {
  const since = Date.parse(row.since ?? "");
  const deadline = Date.parse(row.deadline ?? "");
  const left = (now) => (timing(row, now).over ? `${span(now - deadline)} over` : `in ${span(deadline - now)}`);
  return [
    ["In stage", Number.isNaN(since) ? "" : (now) => `${span(now - since)}, since ${moment(since)}`],
    ["Deadline", Number.isNaN(deadline) ? "" : (now) => `${moment(deadline)} (${left(now)})`],
    ["Attempt", row.attempt > 1 ? String(row.attempt) : ""],
    ["Reason", row.reason],
    ["Waits for", row.waitsFor],
    ["Last seen", row.lastSeen],
    ["Next", row.next],
    ["Barrier", row.barrier],
    ["Error", row.error === null ? "" : `${row.error.reason}: ${row.error.message ?? ""}`],
    ["Revision", row.revision],
  ];
}
