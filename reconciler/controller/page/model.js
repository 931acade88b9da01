// What is known, and what is shown of it. No DOM in here.

import { rankOf } from "./words.js";

const byName = new Intl.Collator("en", { numeric: true });

export class Model {
  head = null;
  /** Node's name → { name, place, rows: Map(runtime → row) }; `place` is that of its name in order. */
  nodes = new Map();
  /** Nodes in the order of their names. */
  ordered = [];

  /** The whole: everything from before is forgotten. */
  load(whole) {
    this.head = whole;
    this.nodes.clear();
    for (const row of whole.nodes) this.#put(row);
    this.#order();
  }

  change(change) {
    this.head = change;
    const before = this.nodes.size;
    let left = false;
    for (const row of change.rows) this.#put(row);
    for (const [node, runtime] of change.gone) left = this.#drop(node, runtime) || left;
    if (left || this.nodes.size !== before) this.#order();
  }

  get runtimes() {
    return this.head === null ? [] : this.head.runtimes;
  }

  /** Names of the columns: every runtime that is there, or that a node still carries. */
  get columns() {
    const names = new Set(this.runtimes.map((r) => r.name));
    for (const node of this.ordered) for (const name of node.rows.keys()) names.add(name);
    return [...names];
  }

  /** Verdict → rows, of one runtime or of all. */
  census(runtime = "") {
    const counts = new Map();
    for (const node of this.ordered) {
      for (const [name, row] of node.rows) {
        if (runtime === "" || name === runtime) counts.set(row.verdict, (counts.get(row.verdict) ?? 0) + 1);
      }
    }
    return counts;
  }

  /** Nodes with at least one row that the filter lets through, in order. */
  select(filter, order) {
    const found = this.ordered.filter((node) => [...node.rows.values()].some((row) => filter(row)));
    if (order === "name") return found;
    const worst = new Map(found.map((node) => [node, worstRank(node)]));
    return found.sort((a, b) => worst.get(a) - worst.get(b) || a.place - b.place);
  }

  #put(row) {
    let node = this.nodes.get(row.node);
    if (node === undefined) this.nodes.set(row.node, (node = { name: row.node, place: 0, rows: new Map() }));
    node.rows.set(row.runtime, row);
  }

  #drop(name, runtime) {
    const node = this.nodes.get(name);
    node?.rows.delete(runtime);
    return node !== undefined && node.rows.size === 0 && this.nodes.delete(name);
  }

  #order() {
    this.ordered = [...this.nodes.values()].sort((a, b) => byName.compare(a.name, b.name));
    this.ordered.forEach((node, place) => (node.place = place));
  }
}

/** A predicate on rows; `words` must all be found, `verdicts` is a Set, empty for all. */
export function filterOf({ words, runtime, stage, verdicts }) {
  const terms = words.toLowerCase().split(/\s+/).filter(Boolean);
  return (row) =>
    (runtime === "" || row.runtime === runtime) &&
    (stage === "" || row.stage === stage) &&
    (verdicts.size === 0 || verdicts.has(row.verdict)) &&
    (terms.length === 0 || matches(row, terms));
}

function matches(row, terms) {
  const error = row.error === null ? "" : `${row.error.reason} ${row.error.message ?? ""}`;
  const text = `${row.node} ${row.runtime} ${row.stage} ${row.verdict} ${row.reason} ${error}`.toLowerCase();
  return terms.every((term) => text.includes(term));
}

const worstRank = (node) => [...node.rows.values()].reduce((worst, row) => Math.min(worst, rankOf(row)), Infinity);

/** The row that a node's error column tells of: the worst one that has an error. */
export function worstError(node) {
  let found = null;
  for (const row of node.rows.values()) {
    if (row.error !== null && (found === null || rankOf(row) < rankOf(found))) found = row;
  }
  return found;
}

/** The node's barrier; its rows agree, but for a runtime that nobody asked about yet. */
export function barrierOf(node) {
  const states = new Set([...node.rows.values()].map((row) => row.barrier));
  return states.has("closed") ? "closed" : states.has("open") ? "open" : "unknown";
}
