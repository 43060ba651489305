// All Services in one table. Only the rows that can be seen are elements, so that thousands scroll well.

import { h, replace, shortened, svg, table } from "./dom.js";
import { exportMenu } from "./export.js";
import { state } from "./state.js";
import { counted, isOverloaded, money, percent, signedPercent, stateSign, stateWord } from "./words.js";

const ROW = 45;
const NARROW_ROW = 92;
// Rows beyond the edges, so that scrolling shows no gaps.
const MARGIN = 12;

/** What can be gained, as the command sorts it: money first, and what looks alike counts as equal, so that names decide. */
function gain(line) {
  if (line.cost) return 1e9 + Math.round((line.cost.now - line.cost.best) * 100);
  if (line.best === null || line.inZone === null) return null;
  return Math.round(Math.max(0, line.best - line.inZone) * 100);
}

// What the table can be sorted by: its name, what that means, what decides, and whether the largest comes first.
const SORTS = {
  gain: ["Possible gain", "what could be saved, or stay in its zone and does not", gain, true],
  name: ["Service", "namespace and name", () => 0, false],
  state: ["Zone routing", "whether traffic is kept closer now", (line) => line.state, false],
  inZone: ["In zone", "the part of the traffic that stays in the zone where it starts, now", (line) => line.inZone, false],
  best: ["Possible", "the largest part that could stay in its zone without overload", (line) => line.best, true],
  overload: ["Overload", "how much more than its fair share the most loaded endpoint gets", (line) => line.maxOverload, true],
  cost: ["Cost per month", "what the traffic costs that crosses zones", (line) => line.cost?.now, true],
  reason: ["Reason", "why the controller decides so", (line) => line.reason, false],
};

const isKnown = (value) => value !== null && value !== undefined;

/** Compares two Services; those of which the figure is not known are last. */
function order([, , key, descending], reversed) {
  const sign = descending === reversed ? 1 : -1;
  return (one, other) => {
    const [a, b] = [key(one), key(other)];
    if (!isKnown(a) || !isKnown(b)) return Number(isKnown(b)) - Number(isKnown(a));
    return sign * (typeof a === "string" ? a.localeCompare(b) : a - b);
  };
}

const FILTERS = {
  all: ["All Services", () => true],
  active: ["Zone routing active", (line) => line.state === "active" || line.state === "partlyActive"],
  notActive: ["Zone routing not active", (line) => line.state === "notActive"],
  overloaded: ["Overloaded endpoints", (line) => isOverloaded(line.maxOverload)],
  ignored: ["Ignored settings", (line) => line.ignored.length > 0],
  empty: ["Zones without endpoints", (line) => line.zonesWithoutEndpoints.length > 0],
};

/** The text in which the search looks. */
const haystack = (line) => `${line.service} ${line.asked} ${line.reason ?? ""} ${stateWord(line.state)}`.toLowerCase();

/** The Services that are shown, in their order. */
export function shown(services, { query, filter, namespace, sort, reversed }) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = (FILTERS[filter] ?? FILTERS.all)[1];
  const fits = (line) => wanted(line) && (!namespace || line.service.startsWith(`${namespace}/`)) &&
    (words.length === 0 || words.every((word) => haystack(line).includes(word)));
  const compare = order(SORTS[sort] ?? SORTS.gain, reversed === "yes");
  const byName = sort === "name" && reversed === "yes" ? -1 : 1;
  return [...services].filter(fits).sort((a, b) => compare(a, b) || (a.service < b.service ? -byName : byName));
}

/** How much stays in its zone, and a mark for what is possible. */
export function shareBar(now, best) {
  return h("span", { class: "share", "aria-hidden": "true" },
    h("span", { class: "share-now", style: { width: `${(now ?? 0) * 100}%` } }),
    best === null || best === undefined ? null : h("span", { class: "share-best", style: { left: `${best * 100}%` } }));
}

export const stateChip = (name) => h("span", { class: "state", "data-state": name },
  h("span", { "aria-hidden": "true" }, stateSign(name)), ` ${stateWord(name)}`);

const address = (service) => `#/service/${service.split("/").map(encodeURIComponent).join("/")}`;

function row(line, index, priced) {
  const cell = (name, ...content) => h("div", { role: "cell", class: `c-${name}` }, ...content);
  const [namespace, ...name] = line.service.split("/");
  const notes = line.ignored.length;
  return h("div", { role: "row", class: "row", "aria-rowindex": index + 2, style: { "--i": index } },
    cell("name",
      h("a", { href: address(line.service), "data-row": index },
        h("span", { class: "namespace" }, `${namespace}/`), h("wbr"), name.join("/")),
      notes > 0 ? h("span", { class: "mark", title: line.ignored.map((note) => note.sentence).join("\n").slice(0, 500) },
        "! ", counted(notes, "setting"), " ignored") : null),
    cell("state", stateChip(line.state)),
    cell("share", h("span", { class: "number" }, percent(line.inZone)), shareBar(line.inZone, line.best)),
    cell("best", h("span", { class: "label" }, "possible "), percent(line.best)),
    cell("overload", h("span", { class: isOverloaded(line.maxOverload) ? "over" : "" },
      h("span", { class: "label" }, "overload "), signedPercent(line.maxOverload))),
    priced ? cell("cost", money(line.cost?.now)) : null,
    cell("reason", h("span", { title: state.reasons.get(line.reason)?.sentence }, reasonWords(line))));
}

const KINDS = {
  headless: "headless: clients choose by DNS",
  externalName: "ExternalName: an alias in DNS",
  withoutSelector: "no selector: others write its slices",
  localPolicy: "internalTrafficPolicy is Local",
};

function reasonWords(line) {
  if (!line.reason) return KINDS[line.serviceKind] ?? "";
  return state.reasons.get(line.reason)?.sentence ?? line.reason;
}

/** The view of all Services. */
export function openOverview({ query }) {
  const options = read(query);
  const list = new List(options);
  const search = h("input", {
    type: "search", placeholder: "Search Services, reasons, requests", "aria-label": "Search", value: options.query,
    on: { input: () => choose({ query: search.value }) },
  });
  const choice = (name, label, entries) => h("select", {
    "aria-label": label, "data-choice": name, on: { change: (event) => choose({ [name]: event.target.value }) },
  }, entries.map(([value, text]) => h("option", { value, selected: options[name] === value }, text)));
  const filter = choice("filter", "Filter", Object.entries(FILTERS).map(([value, [text]]) => [value, text]));
  const sort = choice("sort", "Sort by", Object.entries(SORTS).map(([value, [text]]) => [value, `Sort: ${text}`]));
  const namespace = h("select", { "aria-label": "Namespace", on: { change: () => choose({ namespace: namespace.value }) } });
  const counts = h("ul", { class: "counts", "aria-label": "Services by what is to be seen" });
  let namespaces = "";

  function choose(fields) {
    Object.assign(options, "sort" in fields ? { reversed: "" } : {}, fields);
    const changed = Object.entries(options).filter(([name, value]) => value !== DEFAULTS[name]);
    const text = new URLSearchParams(changed).toString();
    history.replaceState(null, "", text ? `#/?${text}` : "#/");
    filter.value = options.filter;
    sort.value = options.sort;
    update();
  }

  function drawNamespaces() {
    const names = [...new Set([...state.services.keys()].map((name) => name.split("/")[0]))].sort();
    if (names.join("/") === namespaces) return;
    namespaces = names.join("/");
    if (options.namespace && !names.includes(options.namespace)) names.unshift(options.namespace);
    replace(namespace, h("option", { value: "" }, "All namespaces"),
      names.map((name) => h("option", { value: name, selected: name === options.namespace }, name)));
  }

  function drawCounts() {
    const lines = [...state.services.values()];
    const item = (name) => {
      const count = name === "all" ? lines.length : lines.filter(FILTERS[name][1]).length;
      return h("li", {}, h("button", {
        type: "button", class: "count", "data-filter": name, "aria-pressed": String(options.filter === name),
        on: { click: () => choose({ filter: options.filter === name ? "all" : name }) },
      }, h("span", { class: "figure" }, count.toLocaleString("en")), h("span", {}, FILTERS[name][0])));
    };
    const focused = counts.contains(document.activeElement) ? document.activeElement.dataset.filter : null;
    replace(counts, ["all", "active", "notActive", "overloaded", "ignored", "empty"].map(item));
    if (focused) counts.querySelector(`[data-filter=${focused}]`)?.focus();
  }

  function update() {
    drawNamespaces();
    drawCounts();
    list.draw(shown(state.services.values(), options), choose);
  }

  const menu = exportMenu("services", () => ({
    title: "Services", documents: { services: list.lines }, csv: servicesCsv(list.lines),
    picture: servicesPicture(list.lines), record: () => servicesRecord(list.lines),
  }));
  return {
    update,
    reroute: (parameters) => {
      Object.assign(options, read(parameters));
      search.value = options.query;
      update();
    },
    close: () => list.close(),
    element: h("div", { class: "overview" },
      h("div", { class: "heading" }, h("h1", {}, "Services"), menu),
      counts,
      h("div", { class: "controls" }, search, filter, namespace, sort),
      list.element),
  };
}

const DEFAULTS = { query: "", filter: "all", namespace: "", sort: "gain", reversed: "" };

const read = (query) => Object.fromEntries(Object.entries(DEFAULTS).map(([name, usual]) => [name, query.get(name) ?? usual]));

/** All Services that are shown, also those that are not drawn now. */
function servicesRecord(lines) {
  return h("section", { class: "panel" }, h("h1", {}, "Services"),
    table("Services", ["Service", "zone routing", "in zone", "possible", "overload", "cost per month", "reason"], lines.map((line) => [
      line.service, h("span", {}, stateWord(line.state)), percent(line.inZone), percent(line.best), signedPercent(line.maxOverload),
      money(line.cost?.now), h("span", {}, reasonWords(line))])));
}

const PICTURE = { row: 24, top: 58, width: 840, bar: 220, most: 400 };

/** The first Services as a picture: how much stays in its zone, and how much could. It has its colours in itself. */
function servicesPicture(lines) {
  const drawn = lines.slice(0, PICTURE.most);
  const height = PICTURE.top + (drawn.length + 1) * PICTURE.row;
  const text = (x, y, content, attributes = {}) => svg("text", { x, y, fill: "#1b2430", "font-size": 13, ...attributes }, content);
  const line = (one, index) => {
    const y = PICTURE.top + index * PICTURE.row;
    const bar = (x, width, fill, more = 0) => svg("rect", { x, y: y - 11 - more, width, height: 12 + 2 * more, fill });
    return [
      text(12, y, shortened(one.service, 52)),
      bar(380, PICTURE.bar, "#eef1f5"),
      isKnown(one.inZone) ? bar(380, one.inZone * PICTURE.bar, "#1d64c8") : null,
      isKnown(one.best) ? bar(379 + one.best * PICTURE.bar, 2, "#1b2430", 3) : null,
      text(620, y, percent(one.inZone)), text(690, y, percent(one.best)), text(760, y, signedPercent(one.maxOverload)),
    ];
  };
  const left = lines.length - drawn.length;
  return svg("svg", {
    xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${PICTURE.width} ${height}`, width: PICTURE.width, height,
    "font-family": "system-ui, sans-serif", role: "img", "aria-label": "Services",
  },
  svg("rect", { width: PICTURE.width, height, fill: "#ffffff" }),
  text(12, 24, counted(lines.length, "Service"), { "font-weight": 600 }),
  [[620, "in zone"], [690, "possible"], [760, "overload"]].map(([x, name]) => text(x, 36, name, { "font-size": 11 })),
  drawn.map(line),
  left > 0 ? text(12, PICTURE.top + drawn.length * PICTURE.row, `and ${counted(left, "more Service")}`) : null);
}

function servicesCsv(lines) {
  const head = ["service", "state", "asked", "source", "inZone", "best", "maxOverload", "dropped", "endpoints", "reason",
    "costNow", "costBest", "ignored"];
  return [head, ...lines.map((line) => [line.service, line.state, line.asked, line.source, line.inZone, line.best,
    line.maxOverload, line.dropped, line.endpoints, line.reason, line.cost?.now, line.cost?.best,
    line.ignored.map((note) => note.source).join(" ")])];
}

/** The table. */
class List {
  constructor(options) {
    this.options = options;
    this.lines = [];
    this.drawn = "";
    this.head = h("div", { role: "row", class: "row head", "aria-rowindex": 1 });
    this.body = h("div", { class: "rows", role: "rowgroup" });
    this.scroll = h("div", {
      class: "list", role: "table", tabindex: "0", "aria-label": "Services",
      on: { scroll: () => this.drawRows(), keydown: (event) => this.key(event) },
    }, h("div", { role: "rowgroup", class: "heads" }, this.head), this.body);
    this.empty = h("p", { class: "empty" });
    this.element = h("div", {}, this.scroll, this.empty);
    this.narrow = window.matchMedia("(max-width: 720px)");
    this.redraw = () => { this.drawn = ""; this.drawRows(); };
    this.narrow.addEventListener("change", this.redraw);
    window.addEventListener("resize", this.redraw);
  }

  close() {
    this.narrow.removeEventListener("change", this.redraw);
    window.removeEventListener("resize", this.redraw);
  }

  height() { return this.narrow.matches ? NARROW_ROW : ROW; }

  draw(lines, choose) {
    this.lines = lines;
    this.choose = choose;
    this.drawn = "";
    this.drawHead();
    this.scroll.setAttribute("aria-rowcount", lines.length + 1);
    replace(this.empty, this.emptyText());
    this.empty.hidden = lines.length > 0;
    this.scroll.hidden = lines.length === 0;
    this.drawRows();
  }

  emptyText() {
    if (state.services.size > 0) return "No Service is like that. Search for less, or choose all Services.";
    if (!state.cluster?.complete) return "Reading the cluster…";
    return "There is no Service yet.";
  }

  drawHead() {
    const priced = state.cluster?.priced;
    const heads = [["name", "name"], ["state", "state"], ["share", "inZone"], ["best", "best"], ["overload", "overload"],
      ...(priced ? [["cost", "cost"]] : []), ["reason", "reason"]];
    const reversed = this.options.reversed === "yes";
    const head = ([column, sort]) => {
      const [label, meaning, , descending] = SORTS[sort];
      const chosen = this.options.sort === sort;
      const direction = descending === reversed ? "ascending" : "descending";
      const choose = () => this.choose({ sort, reversed: chosen && !reversed ? "yes" : "" });
      return h("div", { role: "columnheader", class: `c-${column}`, "aria-sort": chosen ? direction : "none" },
        h("button", { type: "button", "data-sort": sort, title: meaning, on: { click: choose } },
          label, chosen ? (direction === "ascending" ? " ↑" : " ↓") : ""));
    };
    const text = `${this.options.sort} ${reversed} ${priced}`;
    if (this.headDrawn === text) return;
    this.headDrawn = text;
    const focused = this.head.contains(document.activeElement) ? document.activeElement.dataset.sort : null;
    replace(this.head, heads.map(head));
    if (focused) this.head.querySelector(`[data-sort=${focused}]`)?.focus();
    this.scroll.classList.toggle("priced", Boolean(priced));
  }

  drawRows() {
    const height = this.height();
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / height) - MARGIN);
    const last = Math.min(this.lines.length, Math.ceil((this.scroll.scrollTop + this.scroll.clientHeight) / height) + MARGIN);
    const text = `${first} ${last}`;
    if (text === this.drawn) return;
    this.drawn = text;
    const focused = this.body.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    this.body.style.setProperty("height", `${this.lines.length * height}px`);
    replace(this.body, this.lines.slice(first, last).map((line, index) => row(line, first + index, state.cluster?.priced)));
    if (focused === null) return;
    const links = [...this.body.querySelectorAll("a")];
    // A Service that is no longer among these leaves the focus where the keys still work.
    (links.find((link) => link.getAttribute("href") === focused) ?? this.scroll).focus({ preventScroll: true });
  }

  /** The arrows go from row to row. */
  key(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step === undefined || event.target.closest("button")) return;
    event.preventDefault();
    const at = event.target.dataset.row;
    const wanted = at === undefined ? 0 : Number(at) + step;
    this.focusRow(Math.min(this.lines.length - 1, Math.max(0, wanted)));
  }

  focusRow(index) {
    const height = this.height();
    const top = index * height;
    const head = this.head.offsetHeight;
    if (top < this.scroll.scrollTop) this.scroll.scrollTop = top;
    const bottom = this.scroll.scrollTop + this.scroll.clientHeight - head;
    if (top + height > bottom) this.scroll.scrollTop = top + height - this.scroll.clientHeight + head;
    this.drawRows();
    this.body.querySelector(`[data-row="${index}"]`)?.focus({ preventScroll: true });
  }
}
