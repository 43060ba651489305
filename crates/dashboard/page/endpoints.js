// The load of each endpoint, compared with its fair share.

import { h } from "./dom.js";
import { counted, isOverloaded, signedPercent } from "./words.js";

// More are shown when asked for.
const FIRST = 60;
// The bar ends here; the figure does not.
const LONGEST = 1;

function bar(overload) {
  const part = Math.min(Math.abs(overload), LONGEST) / LONGEST / 2;
  const side = overload < 0 ? { right: "50%" } : { left: "50%" };
  return h("span", { class: "load", "aria-hidden": "true" },
    h("span", { class: `load-bar ${isOverloaded(overload) ? "over" : ""}`, style: { width: `${part * 100}%`, ...side } }));
}

const line = (load) => h("li", { class: "endpoint" },
  h("code", { class: "address" }, load.endpoint),
  h("span", { class: "zone" }, load.zone || "no zone"),
  bar(load.overload),
  h("span", { class: `number ${isOverloaded(load.overload) ? "over" : ""}` }, signedPercent(load.overload)));

/** The endpoints of a matrix, by zone. */
export function endpointList(matrix) {
  const loads = [...matrix.endpoints].sort((a, b) => a.zone.localeCompare(b.zone) || b.overload - a.overload);
  const list = h("ul", { class: "endpoints", tabindex: "0", "aria-label": "Load of each endpoint" }, loads.slice(0, FIRST).map(line));
  if (loads.length <= FIRST) return list;
  const more = h("button", {
    type: "button", class: "quiet",
    on: { click: () => { list.append(...loads.slice(FIRST).map(line)); more.remove(); } },
  }, `Show ${counted(loads.length - FIRST, "more endpoint")}`);
  return h("div", {}, list, more);
}
