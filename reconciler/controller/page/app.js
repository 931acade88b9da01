// The status page: reads the document and its changes, and draws. It never writes anything to the controller.

import { Details } from "./details.js";
import { Clock, Feed } from "./feed.js";
import { Filters } from "./filters.js";
import { Fleet } from "./fleet.js";
import { Grid } from "./grid.js";
import { Model, filterOf } from "./model.js";
import { moment, span } from "./words.js";

const find = (id) => document.getElementById(id);
const LINKS = {
  connecting: "connecting",
  live: "live",
  polling: "not live: too many pages are open; loaded again now and then",
  lost: "no answer from the controller: what is shown is old",
};

const model = new Model();
const clock = new Clock();
const details = new Details(find("details"), { clock, closed: () => leave() });
const grid = new Grid({ root: find("grid"), columns: find("columns"), canvas: find("canvas") }, { clock, choose });
const fleet = new Fleet(find("runtimes"), { choose, tell });
const filters = new Filters(find, () => drawRows());
let columns = [];

function choose(name) {
  details.open(name);
  details.show(model);
  grid.mark(name);
}

function leave() {
  grid.mark(null);
  find("grid").focus();
}

/** How long one drawing took, in ms; the longest is kept beside it. Tests read both. */
function measured(work) {
  const begun = performance.now();
  work();
  const took = performance.now() - begun;
  const seen = document.body.dataset;
  seen.drawMs = took.toFixed(2);
  seen.drawMaxMs = Math.max(took, Number(seen.drawMaxMs ?? 0)).toFixed(2);
}

function draw() {
  if (model.head === null) return;
  drawHead();
  if (document.hidden) return; // its title is all that can be seen
  columns = model.columns;
  fleet.show(model);
  filters.offer(columns, model.census());
  drawRows();
  details.show(model);
}

function drawRows() {
  if (model.head === null) return;
  const wanted = filters.wanted;
  const filter = filterOf(wanted);
  const nodes = filters.any ? model.select(filter, wanted.order) : model.select(() => true, wanted.order);
  grid.show(nodes, columns, filter);
  find("count").textContent = filters.any ? `${nodes.length} of ${model.nodes.size} nodes` : `${model.nodes.size} nodes`;
  find("nothing").hidden = nodes.length > 0;
  find("nothing").textContent = filters.any ? "No node matches the filter." : "No node is selected by any NodeRuntime.";
}

function drawHead() {
  const { controller, stopped, version } = model.head;
  document.body.dataset.version = version;
  find("leader").textContent = controller.leads ? `leader: ${controller.identity}` : `standby: ${controller.identity}`;
  find("standby").hidden = controller.leads && controller.synced;
  find("standby").textContent = controller.synced
    ? `${controller.identity} does not lead. This is what it sees; another replica acts, or none does.`
    : `${controller.identity || "No controller"} has not seen everything yet: what is shown is a part.`;
  find("stopped").hidden = stopped === null;
  if (stopped !== null) {
    const since = Date.parse(stopped.since ?? "");
    const ago = Number.isNaN(since) || clock.now() === null ? "" : `, ${span(clock.now() - since)} ago`;
    find("stopped").textContent = `STOPPED by ${stopped.by || "somebody"}${ago}: ${stopped.reason || "no reason given"}. No new step begins until it is resumed.`;
  }
  const count = model.census();
  const bad = (count.get("stuck") ?? 0) + (count.get("failed") ?? 0);
  document.title = `${stopped === null ? "" : "STOPPED "}${bad > 0 ? `(${bad}!) ` : ""}runtime-reconciler`;
}

function tell(event, text) {
  const tip = find("tip");
  tip.hidden = text === "";
  tip.textContent = text;
  tip.style.left = `${Math.max(Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8), 0)}px`;
  tip.style.top = `${event.clientY + 16}px`;
}

/** Once a second: only times that can be seen. */
function tick() {
  const now = clock.now();
  if (now === null || document.hidden) return;
  find("clock").textContent = moment(now);
  measured(() => grid.draw());
  details.show(model);
}

document.addEventListener("visibilitychange", () => draw());
document.addEventListener("keydown", (e) => {
  const typing = e.target instanceof HTMLInputElement || e.target instanceof HTMLSelectElement;
  if (e.key === "/" && !typing) {
    e.preventDefault();
    find("words").focus();
  } else if (e.key === "Escape") {
    if (e.target === find("words")) find("grid").focus();
    else details.close();
  }
});

new Feed({
  load(whole) {
    clock.hear(whole.time);
    model.load(whole);
    measured(draw);
  },
  change(change) {
    model.change(change);
    measured(draw);
  },
  beat(time) {
    clock.hear(time);
    tick();
  },
  state(name) {
    find("link").textContent = LINKS[name];
    find("link").dataset.state = name;
    document.body.classList.toggle("stale", name === "lost");
  },
});
setInterval(tick, 1_000);
