// Building blocks. Token text is untrusted: it enters the page as text nodes only, never as markup.
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}
const html = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

function icon(path, label, onclick, extra) {
  return html(
    "button",
    { type: "button", class: "sv-btn", "aria-label": label, title: label, click: onclick, ...extra },
    svg("svg", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" }, svg("path", { d: path, fill: "currentColor" })),
  );
}

const word = (kind) => (Object.hasOwn(props.words, kind) ? props.words[kind] : kind);
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
const shorten = (text, size) => {
  const all = Array.from(text);
  return all.length > size ? all.slice(0, size - 1).join("") + "…" : text;
};

// 0.27 as ".27": in the tree every pixel counts; the panel and the table have the full number
function brief(value) {
  if (value === null || value === undefined) return "";
  if (value >= 0.995) return "1.0";
  return value < 0.005 ? "<.01" : value.toFixed(2).slice(1);
}
function exact(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0 || value === 1) return String(value);
  if (value < 0.0001) return value.toExponential(0);
  return value < 0.01 ? value.toFixed(4) : value.toFixed(3);
}
const milliseconds = (value) =>
  value >= 1000 ? (value / 1000).toFixed(1) + " s" : (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)) + " ms";

const pen = document.createElement("canvas").getContext("2d");
function textWidth(text, font) {
  pen.font = font;
  return pen.measureText(text).width;
}

// A word with its definition: on hover and on focus here, and in plain text in the glossary below
function term(name, key) {
  const box = html("button", { type: "button", class: "sv-term" }, name);
  if (TERMS[key]) box.append(html("span", { class: "sv-tip", role: "tooltip" }, TERMS[key]));
  return box;
}
