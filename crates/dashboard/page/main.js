// The page: what is above and below the views, and which view is open.

import { h, replace } from "./dom.js";
import { connect, setPaused, useToken } from "./live.js";
import { openLab } from "./lab.js";
import { openOverview } from "./overview.js";
import { openService } from "./service.js";
import { listen, state } from "./state.js";
import { openWhatIf } from "./what-if.js";

const element = (id) => document.getElementById(id);
let view = null;

/** The view and its parameters of an address such as `#/service/shop/web?port=http`. */
function route() {
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  const [name, ...rest] = path.split("/").filter(Boolean).map(decode);
  return { name: name ?? "", service: rest.join("/"), query: new URLSearchParams(query ?? "") };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const VIEWS = { "": openOverview, service: openService, "what-if": openWhatIf, lab: openLab };

function open() {
  const target = route();
  if (location.hash === "#view") return;
  // The same view of the same Service takes other parameters by itself.
  if (view?.name === target.name && view.service === target.service && view.reroute) {
    view.reroute(target.query);
    return;
  }
  view?.close?.();
  const opened = (VIEWS[target.name] ?? openOverview)(target);
  view = { ...opened, name: target.name, service: target.service };
  replace(element("view"), view.element);
  view.update();
  drawFrame();
  window.scrollTo(0, 0);
  if (started) element("view").focus({ preventScroll: true });
}

const CONNECTIONS = {
  connecting: "Connecting…",
  live: "Live",
  lost: "Connection lost",
  paused: "Paused",
  refused: "Token needed",
};

function drawFrame() {
  const { cluster, connection, connectionError } = state;
  replace(element("cluster"), cluster?.name ?? "");
  const still = connection === "live" && cluster && !cluster.live;
  replace(element("connection"), still ? "From files" : CONNECTIONS[connection]);
  element("connection").dataset.state = still ? "still" : connection;
  const paused = connection === "paused";
  element("pause").setAttribute("aria-pressed", String(paused));
  replace(element("pause"), paused ? "Resume" : "Pause");
  element("pause").hidden = Boolean(still) || connection === "refused";
  element("to-lab").hidden = !cluster?.lab;
  replace(element("environment"), cluster ? `Programs that were seen: ${cluster.summary}` : "");
  for (const [id, names] of [["to-services", ["", "service", "what-if"]], ["to-lab", ["lab"]]]) {
    const current = names.includes(view?.name ?? "");
    if (current) element(id).setAttribute("aria-current", "page");
    else element(id).removeAttribute("aria-current");
  }
  drawTrouble(cluster?.trouble, connection, connectionError);
}

let shownTrouble = "";

function drawTrouble(trouble, connection, error) {
  const lost = connection === "lost" ? `There is no connection to the server (${error}). What is shown was true before; the page connects again by itself.` : "";
  const gone = trouble ? `The cluster cannot be read now: ${trouble}. What is shown was true before.` : "";
  const text = connection === "refused" ? `token ${error}` : lost || gone;
  if (text === shownTrouble) return;
  shownTrouble = text;
  element("trouble").hidden = !text;
  replace(element("trouble"), connection === "refused" ? tokenForm(error) : text);
}

function tokenForm(error) {
  const field = h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false" });
  const fault = h("p", { role: "alert" });
  const submit = (event) => {
    event.preventDefault();
    const token = field.value.trim();
    // Browsers refuse to send anything else.
    if (/^[\x21-\x7e]+$/.test(token)) useToken(token);
    else replace(fault, "This is not a token: it must have letters, digits and signs of ASCII, and no spaces.");
  };
  return h("form", { class: "token", on: { submit } },
    h("p", {}, error),
    h("label", { for: "token" }, "Token of the cluster, such as the output of ",
      h("code", {}, "kubectl create token NAME"), " for a service account. It is kept in this tab and nowhere else."),
    field, fault, h("button", { type: "submit" }, "Use it"));
}

const THEMES = ["auto", "light", "dark"];

function setTheme(theme) {
  if (theme === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = theme;
  replace(element("theme"), `Theme: ${theme}`);
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // A browser may keep nothing.
  }
}

function storedTheme() {
  try {
    return THEMES.find((theme) => theme === localStorage.getItem("theme")) ?? "auto";
  } catch {
    return "auto";
  }
}

function keys(event) {
  const typing = event.target.closest?.("input, select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/" && !typing) {
    const search = document.querySelector("input[type=search]");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  }
  if (event.key === "p" && !typing && !element("pause").hidden) element("pause").click();
  if (event.key === "Escape" && !typing && view?.name) location.hash = "#/";
}

let started = false;

function start() {
  let theme = storedTheme();
  setTheme(theme);
  element("theme").addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    setTheme(theme);
  });
  element("pause").addEventListener("click", () => setPaused(state.connection !== "paused"));
  window.addEventListener("hashchange", open);
  document.addEventListener("keydown", keys);
  listen(() => {
    drawFrame();
    view?.update();
  });
  open();
  started = true;
  connect();
}

start();
