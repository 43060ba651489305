// Elements of the page. Whatever comes from a cluster is text here and nothing else: names, labels and annotations can
// be chosen by anyone.

const SVG = "http://www.w3.org/2000/svg";
// Longer texts are cut: an annotation can have 256 KB.
const LONGEST = 4000;

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
  else if (name === "style") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
  else if (name === "value" || name === "checked" || name === "selected" || name === "disabled") element[name] = value;
  else element.setAttribute(name, value === true ? "" : String(value));
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) set(element, name, value);
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(shortened(String(child))));
  }
}

/** An element of HTML: `h("p", {class: "note"}, "text", element)`. */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** An element of SVG. */
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** Puts these children in place of those that an element has. */
export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/**
 * The same, but what does not differ stays as it is: it keeps the focus, what is selected and how far it is scrolled.
 * What has something that people can use is taken whole, because that does what it did when it was made; only the parts of
 * elements with `data-merge` are each taken for themselves.
 */
export function renew(element, ...children) {
  merge(element, h("div", {}, ...children));
  return element;
}

const USED = "a, button, details, input, select";

function merge(element, wanted) {
  const before = [...element.childNodes];
  const after = [...wanted.childNodes];
  for (const [index, node] of after.entries()) {
    const known = before[index];
    if (!known) element.append(node);
    else if (known.isEqualNode(node)) continue;
    else if (isAlike(known, node)) merge(withAttributesOf(known, node), node);
    else known.replaceWith(node);
  }
  for (const node of before.slice(after.length)) node.remove();
}

const hasParts = (element) => element.hasAttribute("data-merge") || !(element.matches(USED) || element.querySelector(USED));

const isAlike = (one, other) => one instanceof Element && one.nodeName === other.nodeName && one.id === other.id &&
  hasParts(one) && hasParts(other);

function withAttributesOf(element, other) {
  for (const { name } of [...element.attributes]) if (!other.hasAttribute(name)) element.removeAttribute(name);
  for (const { name, value } of other.attributes) {
    // The policy of the page forbids an attribute for style, not the style itself.
    if (name === "style") element.style.cssText = other.style.cssText;
    else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
  }
  return element;
}

/** A text of bounded length. */
export function shortened(text, longest = LONGEST) {
  if (text.length <= longest) return text;
  return `${text.slice(0, longest)}… (${text.length.toLocaleString("en")} characters)`;
}

/** A button that copies a text. */
export function copyButton(text, what) {
  const button = h("button", { type: "button", class: "copy", "aria-label": `Copy ${what}` }, "Copy");
  button.addEventListener("click", async () => {
    button.textContent = (await copied(text)) ? "Copied" : "Not copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return button;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Browsers have no clipboard for pages that are not served by TLS or this machine.
    const field = h("textarea", { class: "hidden", value: text });
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

/** A command with a button that copies it. */
export const command = (text) => h("div", { class: "command" }, h("code", {}, text), copyButton(text, "the command"));

/** A part of the page with a heading. */
export const panel = (title, attributes, ...children) =>
  h("section", { ...attributes, class: `panel ${attributes?.class ?? ""}` }, h("h2", {}, title), ...children);

/** A table: headings, and rows of cells; the first cell of a row is its heading. */
export function table(caption, headings, rows, attributes = {}) {
  const cell = (content, index) => index === 0
    ? h("th", { scope: "row" }, content)
    : h("td", { class: typeof content === "object" ? null : "number" }, content);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", attributes,
      h("caption", { class: "hidden" }, caption),
      h("thead", {}, h("tr", {}, headings.map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map(cell))))));
}
