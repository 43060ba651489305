// What became of a Service since the server was started: the share that stays in its zone, the overload, writes, events.

import { h, svg } from "./dom.js";
import { counted, percent, signedPercent, time } from "./words.js";

const WIDTH = 640;
const HEIGHT = 120;
const EDGE = { left: 44, right: 10, top: 10, bottom: 20 };

/** A line that goes from figure to figure in steps: each holds until the next. */
function steps(samples, value, x, y, end) {
  let path = "";
  let open = false;
  for (const [index, sample] of samples.entries()) {
    const figure = value(sample);
    if (figure === null || figure === undefined) {
      open = false;
      continue;
    }
    const next = index + 1 < samples.length ? samples[index + 1].at : end;
    path += `${open ? "L" : "M"}${x(sample.at).toFixed(1)} ${y(figure).toFixed(1)}L${x(next).toFixed(1)} ${y(figure).toFixed(1)}`;
    open = true;
  }
  return path;
}

function chart(label, samples, lines, { low, high, format }) {
  const begin = samples[0].at;
  const end = Math.max(Date.now(), begin + 1000);
  const x = (at) => EDGE.left + ((at - begin) / (end - begin)) * (WIDTH - EDGE.left - EDGE.right);
  const y = (figure) => EDGE.top + (1 - (figure - low) / (high - low)) * (HEIGHT - EDGE.top - EDGE.bottom);
  const grid = [low, (low + high) / 2, high].map((figure) => [
    svg("line", { class: "grid", x1: EDGE.left, x2: WIDTH - EDGE.right, y1: y(figure), y2: y(figure) }),
    svg("text", { class: "tick", x: EDGE.left - 6, y: y(figure) + 4, "text-anchor": "end" }, format(figure)),
  ]);
  return svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label },
    grid,
    lines.map(([name, value]) => svg("path", { class: `line ${name}`, d: steps(samples, value, x, y, end) })),
    svg("text", { class: "tick", x: EDGE.left, y: HEIGHT - 4 }, time(begin)),
    svg("text", { class: "tick", x: WIDTH - EDGE.right, y: HEIGHT - 4, "text-anchor": "end" }, time(end)));
}

/** The history of a Service. */
export function historyCharts(history) {
  if (!history || history.samples.length === 0) return h("p", {}, "Nothing is known of it yet.");
  const { samples } = history;
  const last = samples[samples.length - 1];
  const most = Math.max(0.5, ...samples.map((sample) => sample.maxOverload ?? 0));
  const told = `Since ${time(samples[0].at)}: ${counted(samples.length - 1, "change")}, ${counted(last.writes, "write")} of slices.`;
  return h("div", { class: "history" },
    h("p", {}, told),
    h("figure", {}, h("figcaption", {}, "Stays in its zone ", h("span", { class: "muted" }, "(line), possible (dashed)")),
      chart(`Stays in its zone: ${percent(last.inZone)} now`, samples,
        [["best", (sample) => sample.best], ["now", (sample) => sample.inZone]], { low: 0, high: 1, format: percent })),
    h("figure", {}, h("figcaption", {}, "Overload of the most loaded endpoint"),
      chart(`Overload: ${signedPercent(last.maxOverload)} now`, samples,
        [["overload", (sample) => sample.maxOverload]], { low: 0, high: most, format: signedPercent })),
    history.events.length === 0 ? null : h("div", {},
      h("h3", {}, "Events"),
      h("ol", { class: "events", tabindex: "0", "aria-label": "Events" }, [...history.events].reverse().slice(0, 50).map((event) => h("li", {},
        h("time", {}, time(event.at)), " ", event.text)))));
}
