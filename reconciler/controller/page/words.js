// How verdicts, times and stages are told.

/** Troubled first, as in every list of the command line; `sign` and shape say the same as the colour. */
export const VERDICTS = [
  { name: "stuck", sign: "!" },
  { name: "failed", sign: "✕" },
  { name: "waiting", sign: "…" },
  { name: "working", sign: "▶" },
  { name: "ok", sign: "✓" },
  { name: "aside", sign: "–" },
  { name: "absent", sign: "○" },
];
export const SIGNS = new Map(VERDICTS.map((v) => [v.name, v.sign]));
const RANKS = new Map(VERDICTS.map((v, rank) => [v.name, rank]));
const AT_WORK = RANKS.get("working");

/** Lower is shown first. Who only waits for his turn comes after those at work: at a rollout's start that is almost everybody. */
export function rankOf(row) {
  if (row.verdict === "waiting" && row.awaits === "slot") return AT_WORK + 0.5;
  return RANKS.get(row.verdict) ?? AT_WORK; // a verdict of a newer controller
}

export const STAGES = [
  "pre-install", "install", "configure", "verify", "ready", "unconfigure", "uninstall", "post-uninstall", "failed", "absent",
];
const RESTING = new Set(["ready", "failed", "absent"]);

/** Milliseconds as a person says them: 42s, 3m 05s, 2h 14m, 3d 4h. */
export function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m ${String(s % 60).padStart(2, "0")}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")}m`;
  return `${Math.floor(s / 86400)}d ${Math.floor((s % 86400) / 3600)}h`;
}

/** A length without its zeros: 10m instead of 10m 00s. */
const length = (ms) => span(ms).replace(/ 0+[smh]$/, "");

/** Time in the stage against its deadline: the text, the part that is used up (null: no deadline counts), and whether it is over. */
export function timing(row, now) {
  const since = Date.parse(row.since ?? "");
  if (Number.isNaN(since)) return { text: "", part: null, over: false };
  const spent = now - since;
  const deadline = Date.parse(row.deadline ?? "");
  if (Number.isNaN(deadline) || RESTING.has(row.stage)) return { text: span(spent), part: null, over: false };
  if (now > deadline) return { text: `${span(now - deadline)} over`, part: 1, over: true };
  return { text: `${span(spent)} / ${length(deadline - since)}`, part: spent / Math.max(deadline - since, 1), over: false };
}

/** Moment of the controller's clock, in UTC, as its log writes it. */
export const moment = (ms) => new Date(ms).toISOString().replace("T", " ").slice(0, 19) + "Z";

/** An element with a class and a text; text only, whatever a payload has written into its error. */
export function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== "") made.textContent = text;
  return made;
}

export function sign(verdict) {
  const made = element("span", `sign ${verdict}`, SIGNS.get(verdict) ?? "?");
  made.setAttribute("aria-hidden", "true");
  return made;
}
