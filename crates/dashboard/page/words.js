// Figures and states as people read them. They are written as the commands write them.

const NBSP = "\u00a0";

/** `92 %`; a dash for what is not known. */
export const percent = (part) => part === null || part === undefined ? "–" : `${Math.round(part * 100) + 0}${NBSP}%`;

/** `+33 %`, `−20 %`, `0 %`. */
export function signedPercent(part) {
  if (part === null || part === undefined) return "–";
  const rounded = Math.round(part * 100);
  if (rounded === 0) return `0${NBSP}%`;
  return `${rounded > 0 ? "+" : "−"}${Math.abs(rounded)}${NBSP}%`;
}

/** A figure of money. */
export const money = (amount) => amount === null || amount === undefined
  ? "–" : amount.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

/** A figure without needless digits. */
export const figure = (number, digits = 2) => number === null || number === undefined
  ? "–" : number.toLocaleString("en", { maximumFractionDigits: digits });

/** `1 endpoint`, `2 endpoints`. */
export const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/** The time of day of a moment in milliseconds. */
export const time = (at) => new Date(at).toLocaleTimeString("en-GB");

const STATES = {
  active: ["active", "●"],
  partlyActive: ["partly active", "◐"],
  notActive: ["not active", "○"],
  local: ["local", "■"],
  notApplicable: ["not applicable", "–"],
  unknown: ["unknown", "?"],
};

/** A state in words, and a sign that does not need colours. */
export const stateWord = (state) => (STATES[state] ?? [state])[0];
export const stateSign = (state) => (STATES[state] ?? ["", "?"])[1];

const MODES = {
  any: "all endpoints",
  local: "its own node's alone",
  "same-node": "its own node's",
  "same-zone": "its own zone's",
  "same-region": "its own region's",
  shares: "zones by their shares",
  terminating: "those that end, for want of others",
};

/** How close traffic is kept, in words; several modes of the nodes of a zone have commas between them. */
export const modeWords = (modes) => modes.split(",").map((mode) => MODES[mode] ?? mode).join(", or ");

/** The limit of KEP-2433 for the overload of an endpoint, beyond which the page marks it. */
export const OVERLOAD = 0.2;
export const isOverloaded = (overload) => overload !== null && overload !== undefined && overload > OVERLOAD + 1e-6;
