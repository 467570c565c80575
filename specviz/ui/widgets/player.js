// Puts the parts together, listens, and draws when a value arrives.
const parts = {};
const LABEL = "Candidate tree";

const PLACES = {
  numbers: "div",
  about: "div",
  prompt: "details",
  strip: "div",
  controls: "div",
  ribbon: "div",
  tree: "div",
  legend: "div",
  rows: "div",
  live: "p",
};
const CARDS = ["why", "bars", "facts"];

function build() {
  for (const [name, tag] of Object.entries(PLACES)) parts[name] = html(tag, { class: `sv-${name}` });
  for (const name of CARDS) parts[name] = html("section", { class: `sv-card sv-${name}` });
  fill(parts.strip, { role: "listbox", "aria-label": "The text, token by token", "aria-orientation": "horizontal" }, []);
  fill(parts.live, { role: "status", "aria-live": "polite" }, []);
  parts.none = html("div", { class: "sv-card sv-nothing" }, html("p", {}, props.empty));
  parts.body = html(
    "div",
    { class: "sv-body" },
    html("section", { class: "sv-card sv-head", "aria-label": "Numbers and text" }, parts.numbers, parts.about, parts.prompt, parts.strip),
    html(
      "div",
      { class: "sv-grid" },
      html("div", { class: "sv-main" }, html("section", { class: "sv-card sv-rounds", "aria-label": "Rounds" }, parts.controls, parts.ribbon), stageCard()),
      html("aside", { class: "sv-side", "aria-label": "Why" }, parts.why, parts.bars),
      parts.facts,
    ),
    parts.live,
  );
  parts.root = html("div", { class: `sv${props.compact ? " compact" : ""}` }, parts.none, parts.body);
  element.querySelector(".specviz-player").replaceChildren(parts.root);
  buildControls();
}
function stageCard() {
  parts.title = html("h3", {});
  parts.fold = toggle("Fold never reached", () => (state.foldAll = !parts.items || !parts.items[0].shut));
  parts.cuts = toggle("Show cut candidates", () => (state.cuts = !state.cuts));
  parts.large = toggle("Larger", () => (state.large = !state.large));
  parts.phases = html("div", { class: "sv-phases", role: "group", "aria-label": "Show the round up to" }, ...PHASES.map(phaseButton));
  parts.table = html("details", { class: "sv-table", toggle: drawTable }, html("summary", {}, "As a table"), parts.rows);
  const tools = html("div", { class: "sv-toggles" }, parts.cuts, parts.fold, parts.large);
  return html(
    "section",
    { class: "sv-card sv-stage", "aria-label": LABEL },
    html("div", { class: "sv-bar-top" }, parts.title, parts.phases, tools),
    parts.tree,
    parts.legend,
    parts.table,
    glossary(),
  );
}
function phaseButton(name, i) {
  return html("button", { type: "button", "data-phase": name, click: () => showPhase(name) }, `${i + 1} ${name[0].toUpperCase()}${name.slice(1)}`);
}
function showPhase(name) {
  halt();
  state.phase = name;
  drawPhase();
}
function glossary() {
  const told = [...Object.values(TERMS), ...Object.entries(MEANING).map(([kind, text]) => `${word(kind)}: ${text}.`)];
  return html(
    "details",
    { class: "sv-words" },
    html("summary", {}, "What the words and colours mean"),
    html("dl", {}, ...told.map((text) => html("dd", {}, text))),
    html("p", {}, KEYS),
  );
}
function toggle(label, change) {
  return html(
    "button",
    {
      type: "button",
      class: "sv-chip",
      "aria-pressed": "false",
      click: () => {
        change();
        state.unfold = new Map();
        draw();
      },
    },
    label,
  );
}

function draw() {
  const some = state.view !== null;
  parts.none.hidden = some;
  parts.body.hidden = !some;
  if (!some) return;
  const round = current();
  parts.root.classList.toggle("large", state.large);
  parts.large.setAttribute("aria-pressed", String(state.large));
  parts.cuts.setAttribute("aria-pressed", String(state.cuts));
  drawNumbers();
  drawAbout();
  drawStrip();
  drawControls();
  drawRibbon();
  drawPhase();
  drawTree();
  mark();
  const said = round ? round.live : "";
  if (parts.live.textContent !== said && !(running() && state.follow)) parts.live.textContent = said;
}
function heading(round) {
  if (!round) return LABEL;
  const drafted = round.node.text.length - 1,
    end = round.bonus ? `, +1 ${round.bonus.kind}` : "";
  if (state.phase === "draft") return `Round ${round.i + 1}: the draft proposes ${drafted} tokens`;
  if (state.phase === "verify") return `Round ${round.i + 1}: one target forward reads all ${drafted + 1} nodes`;
  return `Round ${round.i + 1}: ${drafted} drafted, ${round.path.length} accepted${end}`;
}
function drawPhase() {
  parts.root.dataset.phase = state.phase;
  parts.title.textContent = heading(current());
  for (const button of parts.phases.children) button.setAttribute("aria-pressed", String(button.dataset.phase === state.phase));
}

// Links token, node and bar of the same thing, and keeps one tab stop in the tree and one in the text
function mark() {
  const target = focus();
  for (const node of parts.root.querySelectorAll(".hot, .pinned")) node.classList.remove("hot", "pinned");
  for (const node of parts.root.querySelectorAll('[aria-selected="true"]')) node.setAttribute("aria-selected", "false");
  if (!target) return;
  const cls = state.peeked || !state.picked ? "hot" : "pinned";
  for (const node of parts.root.querySelectorAll(`[data-key="${target.round}:${target.key}"]`)) {
    node.classList.add(cls);
    if (node.hasAttribute("aria-selected")) node.setAttribute("aria-selected", "true");
  }
  for (const box of [parts.tree, parts.strip]) {
    for (const node of box.querySelectorAll('[data-key][tabindex="0"]')) node.setAttribute("tabindex", "-1");
    const stop = box.querySelector(`[data-key="${target.round}:${target.key}"]`) || box.querySelector("[data-key]");
    if (stop) stop.setAttribute("tabindex", "0");
  }
  drawPanel();
}

function main() {
  build();
  listen();
  listenRibbon();
  take(props.value);
  draw();
  watch("value", () => {
    take(props.value);
    draw();
  });
  let width = 0;
  new ResizeObserver(([entry]) => {
    const now = Math.round(entry.contentRect.width);
    if (now && now !== width) {
      width = now;
      draw();
    }
  }).observe(parts.root);
}
