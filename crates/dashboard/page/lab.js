// A lab: what its clients have measured, as its terminal shows it.

import { h, panel, renew, table } from "./dom.js";
import { endpointList } from "./endpoints.js";
import { exportMenu } from "./export.js";
import { matrixCsv, matrixLegend, matrixPicture, matrixTable } from "./matrix.js";
import { state } from "./state.js";
import { figure, percent, signedPercent } from "./words.js";

function act(view) {
  if (!view.act) return h("p", { class: "muted" }, view.ended.length > 0 ? "The story has ended. The cluster runs on." : "The cluster starts.");
  return h("div", { class: "act" },
    h("h2", {}, `${view.act.number}/${view.act.of}  ${view.act.title}`),
    h("p", {}, view.act.look),
    h("progress", { max: 1, value: view.act.done ?? 0, "aria-label": "How far this act is" }),
    h("ul", { class: "muted" }, view.act.steps.map((step) => h("li", {}, step))));
}

const acts = (ended) => ended.length === 0 ? null : panel("Acts that have ended", { id: "acts" },
  table("Acts", ["act", "in zone", "overload", "as expected"],
    ended.map((one) => [one.title, percent(one.inZone), signedPercent(one.overload), one.held ? "yes" : "no"])));

const services = (view) => panel("Services", { id: "services" },
  table("Services of the lab", ["Service", "in zone", "overload", "per second", "failed", "reason"],
    view.services.map((one) => [one.name, percent(one.inZone), signedPercent(one.overload), figure(one.rate, 0), figure(one.failed),
      h("span", {}, one.reason)])));

/** The view of a lab. */
export function openLab() {
  const body = h("div", {}, h("p", { class: "empty" }, "Waiting for the lab…"));
  const update = () => {
    const view = state.lab;
    if (!view) return;
    const { matrix } = view;
    const selected = view.services[view.selected];
    const stat = (name, value) => h("div", { class: "stat" }, h("dt", {}, name), h("dd", {}, value));
    renew(body,
      view.kernel === "memory" ? h("p", { role: "note", id: "simulated" }, "Simulated: the nodes have a kernel in memory. Decisions and rules are real; packets are walked through the rules, and take no time.") : null,
      act(view),
      h("dl", { class: "stats" },
        stat("Service", selected?.name ?? "–"),
        stat("Stayed in its zone", percent(matrix.inZone)),
        stat("Most loaded endpoint", signedPercent(selected?.overload)),
        stat("Connections", `${view.connections.toLocaleString("en")}`),
        stat("Failed", view.failed.toLocaleString("en")),
        stat("Per second", figure(view.rate, 0))),
      h("div", { class: "columns", "data-merge": true },
        h("div", { class: "column", "data-merge": true },
          panel("Measured: from zone to zone", { id: "matrix" }, matrixTable(matrix), matrixLegend()),
          services(view)),
        h("div", { class: "column", "data-merge": true },
          panel("Measured: load of endpoints", { id: "endpoints" },
            h("p", { class: "muted" }, "Compared with the fair share of each"), endpointList(matrix)),
          acts(view.ended))),
      view.trouble ? h("p", { role: "alert" }, view.trouble) : null);
  };
  const menu = exportMenu("lab", () => {
    const matrix = state.lab?.matrix;
    return { title: "Lab", documents: { lab: state.lab }, csv: matrix ? matrixCsv(matrix) : [], picture: matrix ? matrixPicture(matrix) : null };
  });
  return { update, element: h("div", { class: "lab" }, h("div", { class: "heading" }, h("h1", {}, "Live traffic"), menu), body) };
}
