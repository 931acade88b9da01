// Everything that is known of one node.

import { element, moment, sign, span, timing } from "./words.js";

export class Details {
  #name = null;

  constructor(root, { clock, closed }) {
    this.root = root;
    this.clock = clock;
    this.closed = closed;
    root.addEventListener("keydown", (e) => {
      if (e.key === "Escape") this.close();
    });
  }

  get name() {
    return this.#name;
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

  show(model) {
    if (this.#name === null) return;
    const node = model.nodes.get(this.#name);
    const head = element("header");
    const button = element("button", "", "Close (Esc)");
    button.type = "button";
    button.addEventListener("click", () => this.close());
    head.append(element("h2", "", this.#name), element("span", "push"), button);
    const focused = this.root.contains(document.activeElement) && document.activeElement.tagName === "BUTTON";
    const parts = node === undefined ? [element("p", "faint", "This node is not there any more.")] : [...node.rows.values()].map((r) => this.#section(r));
    this.root.replaceChildren(head, ...parts);
    if (focused) button.focus();
  }

  #section(row) {
    const section = element("section");
    const title = element("h3");
    title.append(sign(row.verdict), element("span", "", `${row.runtime}: ${row.stage}`), element("span", "faint", row.verdict));
    const list = element("dl");
    for (const [name, value] of this.#facts(row)) {
      if (value) list.append(element("dt", "", name), element("dd", "", value));
    }
    section.append(title, list);
    if (row.advice) {
      const advice = element("p", "advice");
      advice.append(element("b", "", "What to do: "), row.advice);
      section.append(advice);
    }
    return section;
  }

  #facts(row) {
    const now = this.clock.now();
    const since = Date.parse(row.since ?? "");
    const deadline = Date.parse(row.deadline ?? "");
    const time = now === null ? { over: false } : timing(row, now);
    return [
      ["In stage", Number.isNaN(since) || now === null ? "" : `${span(now - since)}, since ${moment(since)}`],
      ["Deadline", Number.isNaN(deadline) || now === null ? "" : `${moment(deadline)} (${time.over ? `${span(now - deadline)} over` : `in ${span(deadline - now)}`})`],
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
}
