// What if: other endpoints, nodes, cores, demand, requests, a zone lost. The server computes what comes of it with the
// controller's own functions; the address of the page reproduces the question.

import { copyButton, h, panel, renew, replace, table } from "./dom.js";
import { exportMenu } from "./export.js";
import { matrixCsv, matrixLegend, matrixPicture, matrixTable } from "./matrix.js";
import { about, document_ } from "./server.js";
import { state, touches } from "./state.js";
import { counted, figure, isOverloaded, money, percent, signedPercent } from "./words.js";

// Numbers per zone that can be changed: their letter in the address, and how far a slider goes.
const NUMBERS = {
  endpoints: { letter: "e", label: "endpoints", most: (now) => Math.max(10, now * 3), step: 1 },
  nodes: { letter: "n", label: "nodes", most: (now) => Math.max(6, now * 3), step: 1 },
  cores: { letter: "c", label: "cores", most: (now) => Math.max(16, now * 3), step: 1 },
  demand: { letter: "d", label: "sends (%)", most: () => 100, step: 1 },
};

/** The question in an address: `e.eu-a=4&lost=eu-b&key=…&value=…`. */
function readQuestion(query) {
  const question = { endpoints: {}, nodes: {}, cores: {}, demand: {}, lost: query.getAll("lost"), ask: null };
  for (const [name, text] of query) {
    for (const [kind, { letter }] of Object.entries(NUMBERS)) {
      const number = Number(text);
      if (name.startsWith(`${letter}.`) && Number.isFinite(number)) question[kind][name.slice(2)] = number;
    }
  }
  if (query.has("key")) {
    const whole = (name) => query.get(name) ? Number(query.get(name)) : null;
    question.ask = { key: query.get("key"), value: query.get("value") ?? "", startingThreshold: whole("threshold"), padding: whole("padding") };
  }
  return question;
}

function writeQuestion(question) {
  const query = new URLSearchParams();
  for (const [kind, { letter }] of Object.entries(NUMBERS)) {
    for (const [zone, number] of Object.entries(question[kind])) query.set(`${letter}.${zone}`, number);
  }
  for (const zone of question.lost) query.append("lost", zone);
  if (question.ask) {
    query.set("key", question.ask.key);
    query.set("value", question.ask.value);
    if (question.ask.startingThreshold !== null) query.set("threshold", question.ask.startingThreshold);
    if (question.ask.padding !== null) query.set("padding", question.ask.padding);
  }
  return query.toString();
}

/** What the server is asked. */
function requestOf(question) {
  const { endpoints, nodes, cores, demand, lost, ask } = question;
  return { endpoints, nodes, cores, demand, lost, ...(ask ? { ask } : {}) };
}

function difference(now, then, format, better) {
  if (now === null || then === null || now === undefined || then === undefined) return null;
  if (format(now) === format(then)) return h("span", { class: "muted" }, " unchanged");
  const good = better === "more" ? then > now : then < now;
  return h("span", { class: good ? "better" : "worse" }, ` ${then > now ? "▲" : "▼"} instead of ${format(now)}`);
}

function outcome(answer) {
  const { now, then } = answer;
  const item = (name, value, more, attributes = {}) => h("div", { class: "stat", ...attributes }, h("dt", {}, name), h("dd", {}, value, more));
  const writes = then.plan.explanation.slices;
  return h("dl", { class: "stats", id: "outcome", "aria-live": "polite" },
    item("Stays in its zone", percent(then.inZone), difference(now.inZone, then.inZone, percent, "more")),
    item("Possible without overload", percent(then.best), difference(now.best, then.best, percent, "more")),
    item("Most loaded endpoint", signedPercent(then.maxOverload), difference(now.maxOverload, then.maxOverload, signedPercent, "less"),
      { "data-over": isOverloaded(then.maxOverload) ? "yes" : null }),
    item("Slices written", `${writes.creates + writes.updates + writes.deletes}`,
      h("span", { class: "muted" }, ` ${writes.creates} new, ${writes.updates} changed, ${writes.deletes} deleted`)),
    then.cost ? item("Cost per month", money(then.cost.now), difference(now.cost?.now, then.cost.now, money, "less")) : null);
}

function zoneRows(answer) {
  return answer.then.plan.explanation.zones.map((zone) => [zone.zone, figure(zone.nodes), figure(zone.cpu), percent(zone.share),
    figure(zone.endpoints), figure(zone.expected), figure(zone.assigned), signedPercent(zone.overload)]);
}

/** The view that tries things with one Service. */
export function openWhatIf({ service, query }) {
  let question = readQuestion(query);
  let answer = null;
  let options = [];
  let asked = "";
  let wanted = 0;
  let running = false;
  let drawnZones = "";
  const current = new AbortController();
  const form = h("form", { class: "what-if-form", on: { submit: (event) => event.preventDefault() } });
  const result = h("div", { class: "what-if-result" }, h("p", { class: "empty" }, "Computing…"));

  function changed() {
    const text = writeQuestion(question);
    const path = `#/what-if/${service.split("/").map(encodeURIComponent).join("/")}`;
    history.replaceState(null, "", text ? `${path}?${text}` : path);
    compute();
  }

  /** Asks for the newest question; those in between are left out. */
  async function compute() {
    wanted += 1;
    if (running) return;
    running = true;
    try {
      for (let computed = 0; computed !== wanted;) {
        computed = wanted;
        asked = touches(service);
        try {
          answer = await document_(about("what-if", service), { body: requestOf(question), signal: current.signal });
          drawForm();
          followAnswer();
          drawResult();
        } catch (error) {
          if (current.signal.aborted) return;
          drawForm();
          replace(result, h("p", { class: "empty", role: "alert" }, error.message));
        }
      }
    } finally {
      running = false;
    }
  }

  /** What zones have on one side of the answer. What they send is in the matrix: it may be measured. */
  function zonesOf(side) {
    const sends = new Map(side?.matrices[0]?.from.map((row) => [row.zone, row.share]));
    return (side?.plan.explanation.zones ?? []).map((zone) => ({
      zone: zone.zone, endpoints: zone.endpoints, nodes: zone.nodes, cores: zone.cpu,
      demand: Math.round((sends.get(zone.zone) ?? zone.share) * 100),
    }));
  }

  /** What zones have now, before anything is tried. */
  const present = () => zonesOf(answer?.now);

  /** Sliders that are not asked about show what comes of the others: more nodes have more cores. */
  function followAnswer() {
    const zones = new Map(zonesOf(answer.then).map((zone) => [zone.zone, zone]));
    for (const input of form.querySelectorAll("input[data-kind]")) {
      const { kind, zone } = input.dataset;
      input.disabled = question.lost.includes(zone);
      const value = zones.get(zone)?.[kind];
      if (input.disabled || value === undefined || question[kind][zone] !== undefined) continue;
      input.max = Math.max(input.max, value);
      input.value = value;
      replace(input.nextElementSibling, figure(value));
    }
  }

  /** Whether nothing else that is asked about changes this figure. */
  const isAsItIs = (kind, zone) => kind === "nodes" || (kind !== "demand" && question.nodes[zone] === undefined);

  function slider(kind, zone) {
    const { label, most, step } = NUMBERS[kind];
    const now = zone[kind];
    const value = question[kind][zone.zone] ?? now;
    const id = `${kind}-${zone.zone}`;
    const shown = h("output", { for: id }, figure(value));
    const input = h("input", {
      id, type: "range", min: 0, max: Math.max(most(now), value), step, "aria-label": `${label} in ${zone.zone}`,
      "data-kind": kind, "data-zone": zone.zone,
      on: {
        input: () => {
          const number = Number(input.value);
          if (kind === "demand") for (const other of present()) question.demand[other.zone] ??= other.demand;
          if (number === now && isAsItIs(kind, zone.zone)) delete question[kind][zone.zone];
          else question[kind][zone.zone] = number;
          replace(shown, figure(number));
          changed();
        },
      },
    });
    input.value = value;
    return h("div", { class: "slider" }, h("label", { for: id }, label), input, shown);
  }

  function lostBox(zone) {
    const id = `lost-${zone.zone}`;
    const box = h("input", {
      id, type: "checkbox", checked: question.lost.includes(zone.zone), "aria-label": `${zone.zone} is lost`,
      on: {
        change: () => {
          question.lost = question.lost.filter((name) => name !== zone.zone);
          if (box.checked) question.lost.push(zone.zone);
          changed();
        },
      },
    });
    return h("label", { class: "lost", for: id }, box, "lost");
  }

  const same = (option) => question.ask && question.ask.key === option.key && question.ask.value.split(":")[0] === option.value;

  function askFields() {
    const index = question.ask ? options.findIndex(same) : -1;
    const select = h("select", {
      id: "ask",
      on: {
        change: () => {
          const option = options[Number(select.value)];
          question.ask = option ? { key: option.key, value: option.value, startingThreshold: null, padding: null } : null;
          drawnZones = "";
          changed();
        },
      },
    }, h("option", { value: -1, selected: index < 0 }, "what it asks for now"),
    options.map((option, at) => h("option", { value: at, selected: at === index },
      option.key ? `${option.key.split("/").pop()}: ${option.value}` : "nothing")));
    const option = options[index];
    return h("div", { class: "ask" },
      h("label", { for: "ask" }, "The Service asks for"), select,
      option ? h("p", { class: "muted" }, option.summary) : null,
      option ? option.parameters.map((parameter) => parameterField(option, parameter)) : null,
      option?.key.endsWith("/subsetting") && option.value !== "Require" ? [
        numberField("startingThreshold", "Threshold: the number of endpoints around which subsetting starts"),
        numberField("padding", "Padding: it starts so many endpoints above the threshold, and ends so many below")] : null);
  }

  const parametersOf = () => new Map((question.ask.value.split(":")[1] ?? "").split(",").filter(Boolean).map((pair) => pair.split("=")));

  function parameterField(option, parameter) {
    const id = `parameter-${parameter.name}`;
    const input = h("input", {
      id, type: "number", min: 0, step: parameter.whole ? 1 : "any", placeholder: parameter.default ?? "",
      on: {
        input: () => {
          const given = parametersOf();
          if (input.value === "") given.delete(parameter.name);
          else given.set(parameter.name, input.value);
          const text = [...given].map(([name, number]) => `${name}=${number}`).join(",");
          question.ask.value = text ? `${option.value}:${text}` : option.value;
          changed();
        },
      },
    });
    input.value = parametersOf().get(parameter.name) ?? "";
    return h("div", { class: "parameter" }, h("label", { for: id }, `${parameter.name}: ${parameter.summary}`), input);
  }

  function numberField(name, label) {
    const input = h("input", {
      id: name, type: "number", min: 0, step: 1,
      on: { input: () => { question.ask[name] = input.value === "" ? null : Number(input.value); changed(); } },
    });
    input.value = question.ask[name] ?? "";
    return h("div", { class: "parameter" }, h("label", { for: name }, label), input);
  }

  /** Sliders stay the elements that they are while they are moved. */
  function drawForm() {
    const zones = present();
    const text = JSON.stringify([zones, options.length]);
    if (text === drawnZones) return;
    drawnZones = text;
    replace(form,
      askFields(),
      zones.map((zone) => h("fieldset", { class: "zone-fields" },
        h("legend", {}, zone.zone), lostBox(zone), Object.keys(NUMBERS).map((kind) => slider(kind, zone)))),
      h("div", { class: "form-tools" },
        h("button", { type: "button", id: "reset", on: { click: reset } }, "Reset"),
        h("button", { type: "button", class: "quiet", id: "link", on: { click: copyLink } }, "Copy a link to this question")));
  }

  function reset() {
    question = readQuestion(new URLSearchParams());
    drawnZones = "";
    changed();
  }

  async function copyLink(event) {
    try {
      await navigator.clipboard.writeText(location.href);
      event.target.textContent = "Copied";
    } catch {
      event.target.textContent = "The address of this page is the link";
    }
  }

  function drawResult() {
    const { then, now, changes } = answer;
    const explanation = then.plan.explanation;
    const matrix = then.matrices[0];
    const other = now.matrices.find((one) => one.port === matrix?.port && one.family === matrix?.family);
    renew(result,
      changes.length > 0 ? h("ul", { class: "changes", "aria-label": "What is tried" }, changes.map((change) => h("li", {}, change)))
        : h("p", { class: "muted" }, "Nothing is changed. Move a slider, or let the Service ask for something else."),
      h("p", { class: "muted" }, "What the controller decides then, once it is carried out, compared with what it decides for the objects as they are."),
      outcome(answer),
      panel("Where traffic would go", { id: "what-if-matrix" },
        matrix ? [matrixTable(matrix, other), matrixLegend()] : h("p", {}, "Nothing would be routed: no node sends, or there is no endpoint.")),
      panel("Why", {}, h("p", {}, h("code", {}, explanation.reason), ": ", explanation.sentence),
        explanation.notes.map((note) => h("p", {}, h("code", {}, note.source), ": ", note.sentence))),
      panel("Arithmetic", {}, table("Each zone", ["zone", "nodes", "cores", "share", "endpoints", "endpoints by share", "endpoints used", "overload"], zoneRows(answer))),
      panel("As YAML", { id: "yaml" }, answer.yaml
        ? h("div", { class: "command" }, h("pre", { tabindex: "0" }, answer.yaml), copyButton(answer.yaml, "the YAML"))
        : h("p", { class: "muted" }, "Nothing is changed.")));
  }

  async function start() {
    try {
      options = (await document_("/api/v1/options", { signal: current.signal })).options;
    } catch {
      // Without options, the Service asks for what it asks for.
    }
    compute();
  }

  start();
  const menu = exportMenu("what-if", () => ({
    title: `What if: ${service}`, documents: { question, answer },
    csv: answer?.then.matrices[0] ? matrixCsv(answer.then.matrices[0]) : [],
    picture: answer?.then.matrices[0] ? matrixPicture(answer.then.matrices[0]) : null,
  }));
  const back = `#/service/${service.split("/").map(encodeURIComponent).join("/")}`;
  return {
    update: () => { if (answer && asked !== touches(service) && state.connection === "live") compute(); },
    reroute: (parameters) => {
      const text = writeQuestion(readQuestion(parameters));
      if (text === writeQuestion(question)) return;
      question = readQuestion(parameters);
      drawnZones = "";
      compute();
    },
    close: () => current.abort(),
    element: h("div", { class: "what-if" },
      h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Services"), " / ", h("a", { href: back }, service)),
      h("div", { class: "heading" }, h("h1", {}, `What if: ${service}`), menu),
      h("div", { class: "what-if-columns" }, panel("Try", { class: "try" }, form), result)),
  };
}
