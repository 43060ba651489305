// What is seen, as files: JSON, CSV, SVG, and one HTML file for the record of an incident.

import { h } from "./dom.js";
import { state } from "./state.js";

function save(name, type, content) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** A cell of a CSV file. A text that a spreadsheet would compute gets an apostrophe. */
function csvCell(value) {
  if (value === null || value === undefined) return "";
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export const csvText = (rows) => rows.map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";

const stamp = () => new Date().toISOString().replace(/[:.]/g, "-").slice(0, 19);

/** What an exported document says of its origin. */
const origin = () => ({ cluster: state.cluster?.name ?? "", at: new Date().toISOString(), version: state.version });

/** A copy of what is seen, or what stands for it, with its style and without scripts. */
async function wholePage({ title, record }) {
  const style = await (await fetch("/style.css")).text();
  const copy = record ? h("main", {}, record()) : document.getElementById("view").cloneNode(true);
  for (const element of copy.querySelectorAll("button, .export, select, input[type=search]")) element.remove();
  for (const input of copy.querySelectorAll("input")) {
    input.setAttribute("value", input.value);
    input.toggleAttribute("checked", input.checked);
  }
  const page = document.implementation.createHTMLDocument(title);
  const meta = page.createElement("meta");
  meta.setAttribute("charset", "utf-8");
  const policy = page.createElement("meta");
  policy.setAttribute("http-equiv", "Content-Security-Policy");
  policy.setAttribute("content", "default-src 'none'; style-src 'unsafe-inline'");
  page.head.prepend(meta, policy);
  page.documentElement.lang = "en";
  page.body.className = "record";
  const note = page.createElement("p");
  note.className = "muted";
  note.textContent = `${title} · ${state.cluster?.name ?? ""} · ${new Date().toISOString()} · ${state.cluster?.summary ?? ""}`;
  page.body.append(note, page.importNode(copy, true));
  // An element for it would be forbidden here, by the policy of this page.
  const sheet = `<style>\n${style}</style></head>`;
  return `<!doctype html>\n${page.documentElement.outerHTML.replace("</head>", () => sheet)}\n`;
}

/**
 * A menu that saves what is seen. `what` gives a title, documents (for JSON), rows (for CSV), a picture (for SVG) and,
 * where the view has not all of it, an element (for HTML) of the moment.
 */
export function exportMenu(name, what) {
  const file = (ending) => `zonewise-${name}-${stamp()}.${ending}`;
  const saves = {
    JSON: () => save(file("json"), "application/json", JSON.stringify({ ...origin(), ...what().documents }, null, 2)),
    CSV: () => save(file("csv"), "text/csv", csvText(what().csv)),
    SVG: () => {
      const picture = what().picture;
      if (picture) save(file("svg"), "image/svg+xml", new XMLSerializer().serializeToString(picture));
    },
    HTML: async () => save(file("html"), "text/html", await wholePage(what())),
  };
  const button = (kind) => h("button", { type: "button", "data-export": kind, on: { click: saves[kind] } }, kind);
  return h("div", { class: "export", role: "group", "aria-label": "Export what is seen" },
    h("span", { class: "muted" }, "Export"), Object.keys(saves).map(button));
}
