// Where traffic goes, from every zone to every zone: a table with colours, and the same as a picture.

import { h, svg } from "./dom.js";
import { sentenceOf } from "./state.js";
import { modeWords, percent } from "./words.js";

/** All zones of a matrix: those that send, and those that only have endpoints. */
function zonesOf(matrix) {
  const to = matrix.from.flatMap((row) => Object.keys(row.to));
  return [...new Set([...matrix.from.map((row) => row.zone), ...matrix.endpoints.map((load) => load.zone), ...to])].sort();
}

const zoneName = (zone) => zone === "" ? "no zone" : zone;

/** The part of a row's traffic that goes to a zone, as it was before, if that differs. */
function before(other, zone, to) {
  const row = other?.from.find((one) => one.zone === zone);
  return row ? row.to[to] ?? 0 : null;
}

function cell(row, to, other) {
  const part = row.to[to] ?? 0;
  const was = before(other, row.zone, to);
  const changed = was !== null && Math.abs(was - part) >= 0.005;
  const home = row.zone === to;
  return h("td", {
    class: `heat ${home ? "home" : "away"}`,
    style: { "--part": part },
    "data-from": row.zone,
    "data-to": to,
  }, percent(part), changed ? h("span", { class: "was" }, `instead of ${percent(was)}`) : null);
}

/** A matrix as a table. With `other`, what differs from it is told. */
export function matrixTable(matrix, other = null) {
  const zones = zonesOf(matrix);
  const drops = matrix.from.some((row) => row.dropped > 0);
  const caption = `Traffic of ${matrix.service} ${matrix.port} ${matrix.protocol} ${matrix.family} from zone to zone`;
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: "matrix" },
      h("caption", { class: "hidden" }, caption),
      h("thead", {}, h("tr", {},
        h("th", { scope: "col" }, "from"), h("th", { scope: "col", class: "number" }, "sends"),
        zones.map((zone) => h("th", { scope: "col", class: "to" }, `to ${zoneName(zone)}`)),
        drops ? h("th", { scope: "col" }, "dropped") : null,
        h("th", { scope: "col" }, "endpoints used"))),
      h("tbody", {}, matrix.from.map((row) => h("tr", {},
        h("th", { scope: "row" }, zoneName(row.zone)),
        h("td", { class: "number" }, percent(row.share)),
        zones.map((zone) => cell(row, zone, other)),
        drops ? h("td", { class: "number" }, row.dropped > 0 ? percent(row.dropped) : "–") : null,
        h("td", { class: "mode", title: sentenceOf(row.reason) }, modeWords(row.mode)))))));
}

/** Which colour means what. */
export const matrixLegend = () => h("p", { class: "legend" },
  h("span", {}, h("span", { class: "swatch home", "aria-hidden": "true" }), "stays in its zone"),
  h("span", {}, h("span", { class: "swatch away", "aria-hidden": "true" }), "crosses zones"),
  h("span", {}, "The stronger the colour, the larger the part."));

const SIZE = { left: 110, top: 60, cell: 84, high: 46 };
const HOME = [116, 167, 242];
const AWAY = [240, 168, 96];

const mixed = (colour, part) => `rgb(${colour.map((value) => Math.round(255 + (value - 255) * part)).join(",")})`;

/** A matrix as a picture, for files. It has its colours in itself. */
export function matrixPicture(matrix) {
  const zones = zonesOf(matrix);
  const width = SIZE.left + zones.length * SIZE.cell + 20;
  const height = SIZE.top + matrix.from.length * SIZE.high + 20;
  const text = (x, y, content, attributes = {}) => svg("text", { x, y, fill: "#1b2430", "font-size": 13, ...attributes }, content);
  const middle = { "text-anchor": "middle" };
  const at = (index) => SIZE.left + index * SIZE.cell;
  return svg("svg", {
    xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${height}`, width, height,
    "font-family": "system-ui, sans-serif", role: "img", "aria-label": `Traffic of ${matrix.service}`,
  },
  svg("rect", { width, height, fill: "#ffffff" }),
  text(12, 22, `${matrix.service} ${matrix.port}/${matrix.protocol} ${matrix.family}`, { "font-weight": 600 }),
  text(12, 44, matrix.inZone === null ? "" : `stays in its zone: ${percent(matrix.inZone)}`),
  zones.map((zone, index) => text(at(index) + SIZE.cell / 2, SIZE.top - 4, `to ${zoneName(zone)}`, { ...middle, "font-size": 11 })),
  matrix.from.map((row, line) => [
    text(12, SIZE.top + line * SIZE.high + 28, zoneName(row.zone)),
    zones.map((zone, index) => {
      const part = row.to[zone] ?? 0;
      const y = SIZE.top + line * SIZE.high + 2;
      return [
        svg("rect", {
          x: at(index) + 2, y, width: SIZE.cell - 4, height: SIZE.high - 4, rx: 5,
          fill: mixed(row.zone === zone ? HOME : AWAY, part), stroke: "#d5dae1",
        }),
        text(at(index) + SIZE.cell / 2, y + 26, percent(part), middle),
      ];
    }),
  ]));
}

/** The rows of a file of comma-separated values. */
export function matrixCsv(matrix) {
  const zones = zonesOf(matrix);
  return [["from", "share", ...zones.map((zone) => `to ${zone}`), "dropped", "mode", "reason"],
    ...matrix.from.map((row) => [row.zone, row.share, ...zones.map((zone) => row.to[zone] ?? 0), row.dropped, row.mode, row.reason])];
}
