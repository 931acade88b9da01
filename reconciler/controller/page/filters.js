// What the person at the page wants to see; kept in the address, so that it can be handed on.

import { STAGES, VERDICTS, element, sign } from "./words.js";

export class Filters {
  #picks = new Map();

  constructor(find, changed) {
    this.words = find("words");
    this.runtime = find("runtime");
    this.stage = find("stage");
    this.order = find("order");
    this.changed = changed;
    for (const stage of STAGES) this.stage.append(new Option(stage, stage));
    for (const { name } of VERDICTS) find("verdicts").append(this.#pick(name));
    this.#read();
    find("filters").addEventListener("submit", (e) => e.preventDefault());
    find("filters").addEventListener("input", () => this.#tell());
  }

  /** For `filterOf`, and the order. */
  get wanted() {
    const verdicts = new Set([...this.#picks].filter(([, p]) => p.root.ariaPressed === "true").map(([name]) => name));
    return { words: this.words.value, runtime: this.runtime.value, stage: this.stage.value, verdicts, order: this.order.value };
  }

  get any() {
    const { words, runtime, stage, verdicts } = this.wanted;
    return words.trim() !== "" || runtime !== "" || stage !== "" || verdicts.size > 0;
  }

  /** Offer these runtimes, and tell how many rows there are of each verdict. */
  offer(runtimes, census) {
    const offered = [...this.runtime.options].map((o) => o.value).filter(Boolean);
    if (offered.join("\n") !== runtimes.join("\n")) {
      const chosen = this.runtime.value || this.asked;
      this.runtime.replaceChildren(new Option("all runtimes", ""), ...runtimes.map((name) => new Option(name, name)));
      this.runtime.value = runtimes.includes(chosen) ? chosen : "";
      this.asked = this.runtime.value === "" ? chosen : ""; // wanted, but not there (yet)
    }
    for (const [name, pick] of this.#picks) {
      const count = census.get(name) ?? 0;
      pick.count.textContent = String(count);
      pick.root.classList.toggle("none", count === 0);
    }
  }

  #pick(name) {
    const root = element("button", "pick");
    const count = element("span", "", "0");
    root.type = "button";
    root.ariaPressed = "false";
    root.dataset.verdict = name;
    root.append(sign(name), element("span", "", name), count);
    root.addEventListener("click", () => {
      root.ariaPressed = String(root.ariaPressed !== "true");
      this.#tell();
    });
    this.#picks.set(name, { root, count });
    return root;
  }

  #tell() {
    this.#write();
    this.changed();
  }

  #read() {
    const kept = new URLSearchParams(location.hash.slice(1));
    this.words.value = kept.get("words") ?? "";
    this.asked = kept.get("runtime") ?? "";
    this.stage.value = kept.get("stage") ?? "";
    this.order.value = kept.get("order") === "name" ? "name" : "trouble";
    for (const name of kept.getAll("verdict")) {
      if (this.#picks.has(name)) this.#picks.get(name).root.ariaPressed = "true";
    }
  }

  #write() {
    const { words, runtime, stage, verdicts, order } = this.wanted;
    const kept = new URLSearchParams();
    if (words) kept.set("words", words);
    if (runtime) kept.set("runtime", runtime);
    if (stage) kept.set("stage", stage);
    if (order !== "trouble") kept.set("order", order);
    for (const name of verdicts) kept.append("verdict", name);
    history.replaceState(null, "", `#${kept}`);
  }
}
