// One Service: where its traffic goes, why, what would change that, and what became of it.

import { command, h, panel, renew, replace, table } from "./dom.js";
import { endpointList } from "./endpoints.js";
import { exportMenu } from "./export.js";
import { historyCharts } from "./history.js";
import { matrixCsv, matrixLegend, matrixPicture, matrixTable } from "./matrix.js";
import { shareBar, stateChip } from "./overview.js";
import { about, document_ } from "./server.js";
import { sentenceOf, state, touches } from "./state.js";
import { counted, figure, isOverloaded, modeWords, money, percent, signedPercent } from "./words.js";

// After so long, a server that could not answer is asked again.
const AGAIN = 2000;

const portName = (matrix) => `${matrix.port || "port"} ${matrix.protocol} ${matrix.family}`;

/** Figures that say most. */
function figures(explanation, matrix, line) {
  const inZone = explanation.inZone ?? {};
  const overload = line?.maxOverload;
  const item = (name, value, attributes, ...more) =>
    h("div", { class: "stat", ...attributes }, h("dt", {}, name), h("dd", {}, value, ...more));
  return h("dl", { class: "stats" },
    item("Stays in its zone now", percent(line?.inZone ?? matrix?.inZone), { id: "in-zone" }, shareBar(line?.inZone ?? matrix?.inZone, line?.best)),
    item("Once the decision is carried out", percent(inZone.planned), {}),
    item("Possible without overload", percent(inZone.best), {}),
    item("Most loaded endpoint", signedPercent(overload), { "data-over": isOverloaded(overload) ? "yes" : null }),
    explanation.cost ? item("Cost per month", money(explanation.cost.now), {}, h("span", { class: "muted" }, ` ${money(explanation.cost.best)} at best`)) : null);
}

function verdictPanel(explanation) {
  const { verdict, sentence, remedy, reason } = explanation;
  const known = state.reasons.get(reason);
  return panel("Why", { id: "why" },
    verdict ? h("p", { class: "verdict" }, verdict.sentence) : null,
    verdict ? h("p", {}, verdict.why) : null,
    reason ? h("details", {}, h("summary", {}, "The reason in full: ", h("code", {}, reason)),
      h("p", {}, sentence), h("p", {}, h("strong", {}, "What to do: "), remedy),
      known && known.sentence !== sentence ? h("p", { class: "muted" }, known.sentence) : null,
      h("p", { class: "muted" }, explanation.docs)) : null);
}

/** How many endpoints may serve a zone; without a most, there are too few to give every zone its least. */
const allowed = ({ min, max }) => max > 0 ? `${min} – ${max}` : `at least ${min}`;

function zonesPanel(explanation) {
  const by = explanation.groupedBy;
  const rows = explanation.zones.map((zone) => [zone.zone, figure(zone.nodes), figure(zone.cpu), percent(zone.share),
    figure(zone.endpoints), figure(zone.expected), allowed(zone), figure(zone.assigned), signedPercent(zone.overload)]);
  const left = explanation.nodesLeftOut;
  return panel("Arithmetic", { id: "arithmetic" },
    table(`Capacity and endpoints of each ${by}`,
      [by, "nodes", "cores", "share", "endpoints", "endpoints by share", "allowed", "endpoints used", "overload"], rows),
    left.length > 0 ? h("p", { class: "muted" }, `${counted(left.length, "node")} not counted: `,
      left.slice(0, 10).map((node) => `${node.node} (${node.why})`).join(", "), left.length > 10 ? ", …" : "") : null);
}

function stepsOf(sentences) {
  return sentences.map((sentence) => sentence.startsWith("kubectl ") ? command(sentence) : h("p", {}, sentence));
}

function fixesPanel(explanation) {
  const { changes, improvements, notes } = explanation;
  if (changes.length + improvements.length + notes.length === 0) return null;
  return panel("Smallest fixes", { id: "fixes" },
    notes.length > 0 ? h("h3", {}, "Ignored settings") : null,
    notes.map((note) => h("div", { class: "fix" },
      h("p", {}, h("code", {}, note.source), ": ", h("code", {}, note.value)),
      h("p", {}, note.sentence), note.commands.map(command))),
    changes.length > 0 ? h("h3", {}, "Each of these turns zone routing on") : null,
    changes.map((change) => h("div", { class: "fix" }, stepsOf(change.sentences),
      h("p", { class: "muted" }, `Then: ${sentenceOf(change.then)}`, change.needs.length > 0 ? `; needs zonewise's ${change.needs.join(" and ")}` : ""))),
    improvements.length > 0 ? h("h3", {}, "Each of these makes it better") : null,
    improvements.map((change) => h("div", { class: "fix" }, stepsOf(change.sentences),
      h("p", { class: "muted" }, `Then ${percent(change.inZone)} stays in its zone, overload ${signedPercent(change.maxOverload)}: ${sentenceOf(change.then)}`))));
}

function marginPanel(margin) {
  if (!margin) return null;
  const rows = margin.endpoints.map((loss) => {
    const zone = margin.zones.find((one) => one.zone === loss.zone);
    return [loss.zone, figure(loss.has), figure(loss.survives), h("span", {}, loss.then ? sentenceOf(loss.then) : "–"),
      h("span", {}, zone ? (zone.survives ? "zone routing stays on elsewhere" : sentenceOf(zone.then)) : "–")];
  });
  const critical = margin.criticalNodes;
  return panel("What it survives", { id: "margin" },
    table("Losses of each zone", ["zone", "endpoints", "can lose", "then", "the whole zone lost"], rows),
    h("p", {}, margin.criticalNodesInAll === 0 ? "Any single node can be lost."
      : `The loss of one of ${counted(margin.criticalNodesInAll, "node")} turns zone routing off: ${critical.map((node) => `${node.node} (${sentenceOf(node.then)})`).join(", ")}`));
}

function proxiesPanel(consumers) {
  if (consumers.length === 0) return null;
  const zones = [...new Set(consumers.flatMap((one) => one.from.map((zone) => zone.zone)))];
  const mode = (consumer, zone) => {
    const found = consumer.from.find((one) => one.zone === zone);
    return h("span", { title: found ? sentenceOf(found.reason) : null }, found ? `${percent(found.inZone)}: ${modeWords(found.mode)}` : "–");
  };
  const rows = consumers.map((consumer) => [
    h("span", { title: consumer.remark }, consumer.consumer, consumer.family ? ` ${consumer.family}` : ""),
    percent(consumer.inZone), ...zones.map((zone) => mode(consumer, zone))]);
  return panel("What each kind of proxy does", { id: "proxies" },
    h("p", { class: "muted" }, "Once the decision is carried out: the part that stays in its zone, and the endpoints that are used"),
    table("Once the decision is carried out", ["proxy", "in zone", ...zones.map((zone) => `from ${zone}`)], rows),
    h("ul", { class: "muted remarks" }, [...new Map(consumers.map((one) => [one.consumer, one.remark]))].map(([name, remark]) =>
      h("li", {}, `${name}: ${remark}`))));
}

function heuristicsPanel(scores) {
  const known = scores.filter((score) => score.inZone !== null);
  if (known.length === 0) return null;
  return panel("Other ways to route it", { id: "heuristics" },
    h("ul", { class: "scores" }, known.map((score) => h("li", {},
      h("code", {}, score.heuristic), shareBar(score.inZone, null),
      h("span", { class: "number" }, percent(score.inZone)),
      h("span", { class: `number ${isOverloaded(score.maxOverload) ? "over" : ""}` }, signedPercent(score.maxOverload))))),
    h("p", { class: "muted" }, "In-zone share and overload by the simulator's model. ", h("q", {}, "What if"), " tries them with these objects."));
}

function writesPanel(plan) {
  if (!plan) return null;
  const { creates, updates, deletes, unchanged, settled } = plan.services[0];
  const told = [["to create", creates.length], ["to update", updates.length], ["to delete", deletes.length], ["unchanged", unchanged.length]];
  return panel("Slices", { id: "slices" },
    h("dl", { class: "writes" }, told.map(([name, count]) => h("div", {}, h("dt", {}, name), h("dd", {}, count)))),
    settled ? h("p", { class: "muted" }, "Some of it is written once the Service has been quiet for a while.") : null,
    h("p", { class: "muted" }, [...creates, ...updates].slice(0, 8).map((slice) => slice.metadata?.name ?? "").filter(Boolean).join(", ")));
}

/** The view of one Service. */
export function openService({ service, query }) {
  const body = h("div", {});
  const chip = h("span", {});
  let asked = "";
  let page = null;
  let port = query.get("port");
  const current = new AbortController();
  let running = false;
  let drawnReasons = 0;
  let timer = 0;

  const matrices = () => page?.matrices.matrices ?? [];
  const matrix = () => matrices().find((one) => portName(one) === port) ?? matrices()[0];

  async function load() {
    if (running) return;
    running = true;
    try {
      // Once more if something changed meanwhile.
      while (asked !== touches(service)) {
        asked = touches(service);
        page = await document_(about("service", service), { signal: current.signal });
        draw();
      }
    } catch (error) {
      if (current.signal.aborted) return;
      if (!page) replace(body, h("p", { class: "empty" }, error.message));
      // What it refuses, it refuses again; what it could not do, it may do later.
      if (error.status < 500 && error.status !== 429) return;
      asked = "";
      timer = setTimeout(load, AGAIN);
    } finally {
      running = false;
    }
  }

  function ports() {
    if (matrices().length < 2) return null;
    return h("select", { "aria-label": "Port", on: { change: (event) => { port = event.target.value; draw(); } } },
      matrices().map((one) => h("option", { value: portName(one), selected: one === matrix() }, portName(one))));
  }

  /** Details that are open stay open. */
  function withOpenDetails(parts) {
    const open = [...body.querySelectorAll("details[open]")].map((one) => one.parentElement.id);
    for (const details of parts.querySelectorAll("details")) details.open = open.includes(details.parentElement.id);
    return parts;
  }

  function draw() {
    const explanation = page.explanation;
    const line = state.services.get(service);
    const shown = matrix();
    const managed = explanation.kind === "Explanation";
    const fixes = managed ? fixesPanel(explanation) : null;
    const others = managed ? heuristicsPanel(explanation.inZoneByHeuristic) : null;
    replace(chip, stateChip(explanation.verdict?.state ?? line?.state ?? "unknown"));
    drawnReasons = state.reasons.size;
    renew(body, withOpenDetails(h("div", { "data-merge": true },
      figures(explanation, shown, line),
      h("div", { class: "columns", "data-merge": true },
        h("div", { class: "column", "data-merge": true },
          panel("Where traffic goes now", { id: "matrix", "data-merge": true }, h("div", {}, ports()),
            shown ? [matrixTable(shown), matrixLegend()] : h("p", {}, "No slice is stored, or no proxy routes the Service.")),
          managed ? zonesPanel(explanation) : null,
          shown ? panel("Endpoints", { id: "endpoints" },
            h("p", { class: "muted" }, "Load compared with the fair share of each"), endpointList(shown)) : null,
          managed ? proxiesPanel(explanation.consumers) : null,
          fixes ? others : null,
          writesPanel(page.plan)),
        h("div", { class: "column", "data-merge": true },
          verdictPanel(explanation),
          fixes,
          managed ? marginPanel(explanation.margin) : null,
          panel("History", { id: "history" }, historyCharts(page.history)),
          // The columns are about as long as each other.
          fixes ? null : others)))));
  }

  const menu = exportMenu(service.replaceAll(/[^A-Za-z0-9.-]+/g, "-").slice(0, 80), () => ({
    title: service, documents: page ?? {}, csv: matrix() ? matrixCsv(matrix()) : [], picture: matrix() ? matrixPicture(matrix()) : null,
  }));
  const whatIf = `#/what-if/${service.split("/").map(encodeURIComponent).join("/")}`;
  replace(body, h("p", { class: "empty" }, "Reading…"));
  return {
    update: () => {
      if (!state.services.has(service) && state.cluster?.complete && page === null && state.version !== null) load();
      else if (state.services.has(service) && asked !== touches(service)) load();
      else if (page && drawnReasons !== state.reasons.size) draw();
      else if (state.cluster?.complete && !state.services.has(service) && page) replace(chip, h("span", { class: "state" }, "gone"));
    },
    close: () => {
      current.abort();
      clearTimeout(timer);
    },
    element: h("div", { class: "service" },
      h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Services")),
      h("div", { class: "heading" }, h("h1", {}, service), chip,
        h("a", { class: "button", href: whatIf }, "What if…"), menu),
      body),
  };
}
