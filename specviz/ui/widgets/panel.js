// The why-panel: one token's verdict in sentences, both models' first choices at its parent, and the numbers of its round.
function drawPanel() {
  const target = focus();
  if (!target) {
    parts.why.replaceChildren(html("h3", {}, "Why"), html("p", { class: "sv-empty" }, "Select a token to read why it was accepted or rejected."));
    parts.bars.replaceChildren();
    parts.facts.replaceChildren();
    return;
  }
  const round = target.round < 0 ? null : state.rounds[target.round];
  if (target.round >= 0 && !round) return;
  const items = round ? itemsOf(round, true) : [],
    item = round ? items.find((one) => one.key === target.key) || items[0] : firstItem();
  const say = round ? item.why.map((place) => round.say[place]) : state.view.first.say;
  const pinned = state.picked && !state.peeked && state.picked.key === target.key;
  parts.why.replaceChildren(
    html(
      "h3",
      {},
      "Why",
      pinned
        ? html("button", { type: "button", class: "sv-pin", click: unpin }, "pinned, Esc releases")
        : html("span", { class: "sv-soft" }, state.peeked ? "peeking" : ""),
    ),
    html("div", { class: "sv-what" }, html("code", {}, item.text), html("span", { class: `sv-verdict ${item.kind}` }, glyph(item.kind), word(item.kind))),
    html("p", { class: "sv-unjudged" }, "Not accepted or rejected yet."),
    html("p", { class: "sv-say" }, coded(untagged(say[0]))),
    ...say.slice(1).map((text) => html("p", { class: "sv-more" }, coded(text))),
    facts(item, items, round),
  );
  drawBars(item, items, round);
  drawFacts(round);
}
const firstItem = () => ({ key: "first", text: state.view.first.seen, kind: "plain", depth: 0, parent: -1, place: null, p: null });
function glyph(kind) {
  if (kind === "bonus") return html("span", { class: "sv-dia", "aria-hidden": "true" }, "◆");
  return GLYPHS[kind] ? svg("svg", { width: 12, height: 12, "aria-hidden": "true" }, svg("path", { d: GLYPHS[kind], class: "sv-tick" })) : "";
}
// The verdict stands beside the token already, so the sentence need not begin with it
const untagged = (text) => {
  const at = text.indexOf(": ");
  if (at < 0 || at > 24) return text;
  const rest = text.slice(at + 2);
  return rest[0].toUpperCase() + rest.slice(1);
};

// Tokens stand in curly quotes in the sentences; here the code style sets them apart
const coded = (text) => text.split(/(“[^”]+”)/).map((part, i) => (i % 2 ? html("code", {}, part.slice(1, -1)) : part));

function facts(item, items, round) {
  const rows = [];
  const add = (key, name, value) => {
    if (value !== null && value !== undefined && value !== "") rows.push(html("dt", {}, key ? term(name, key) : name), html("dd", {}, value));
  };
  if (typeof item.key === "number" && item.depth) {
    add("q", "draft q", exact(item.score));
    if (item.q !== null && item.q !== item.score) add("warped", "q when drawn", exact(item.q));
    add("p", "target p", exact(item.p));
    if (item.warped !== null) add("warped", "p as read", exact(item.warped));
    add("place", "target's rank", item.place === null ? null : (item.place + 1).toLocaleString("en"));
    if (item.depth > 1) add("total", "path score", exact(item.total));
    add("", "draft's rank", `${item.rank + 1} of ${items[item.parent].kids.filter((kid) => typeof kid.key === "number").length}`);
    add("", "drafted by", item.source);
  }
  if (item.kind === "pruned") add("total", "path score", exact(item.total));
  const here = round && round.top[item.key === "bonus" || item.parent >= 0 ? item.parent : 0];
  if (here) add("entropy", "target's entropy", `${exact(here.entropy)} nats`);
  return rows.length ? html("dl", { class: "sv-dl" }, ...rows) : null;
}

function drawBars(item, items, round) {
  const parent = item.parent >= 0 ? items[item.parent] : items[0];
  const top = round ? round.top[parent.key] : { target: state.view.first.target, draft: [] };
  if (!top) {
    parts.bars.replaceChildren();
    return;
  }
  const kids = new Map(parent ? parent.kids.filter((kid) => kid.kind !== "pruned").map((kid) => [kid.text, kid]) : []);
  const list = (title, rows, cls) =>
    rows.length
      ? html("div", { class: `sv-list ${cls}` }, html("h4", {}, title), ...rows.map(([text, value]) => bar(text, value, item, kids.get(text))))
      : null;
  parts.bars.replaceChildren(
    html("h3", {}, parent ? ["First choices after ", html("code", {}, shorten(parent.text, 16))] : "First choices after the prompt"),
    html("div", { class: "sv-lists" }, list("Target, p", top.target, "target"), list("Draft, q", top.draft, "draft")),
  );
}
function bar(text, value, item, kid) {
  const key = kid ? `${focus().round}:${kid.key}` : null;
  return html(
    "div",
    {
      class: `sv-row${text === item.text ? " me" : ""}${kid ? " in" : ""}`,
      "data-key": key,
      title: kid ? `in the tree: ${word(kid.kind)}` : "not in the tree",
    },
    html("code", {}, shorten(text, 12)),
    html("span", { class: "sv-track" }, html("i", { style: `width:${Math.max(0.5, value * 100)}%` })),
    html("span", { class: "sv-val" }, exact(value)),
  );
}

const NOTES = {
  drafted: "drafted in all",
  pruned: "cut before verification",
  match: "matched tokens",
  origin: "copied from position",
  gain: "accepted per draft, recently",
  paused: "drafting paused",
};
const PHASES_TIMED = ["draft", "verify", "accept", "commit"]; // the words of the steps and of the charts
function drawFacts(round) {
  if (!round) {
    parts.facts.replaceChildren();
    return;
  }
  const passengers = round.node.verdict.filter((kind) => kind === "passenger").length,
    rows = [];
  const add = (name, value, key) => rows.push(html("div", {}, html("dt", {}, key ? term(name, key) : name), html("dd", {}, value)));
  add("nodes verified", round.node.text.length, "nodes");
  add("candidates verified", round.node.text.length - 1 - passengers);
  add("accepted", round.path.length);
  add("tokens gained", round.strip.length);
  add("tokens in the cache", round.committed, "committed");
  for (const [name, value] of Object.entries(round.note))
    if (value !== null)
      add(Object.hasOwn(NOTES, name) ? NOTES[name] : name.replace(/_/g, " "), typeof value === "number" ? value.toLocaleString("en") : String(value));
  const phases = PHASES_TIMED.filter((name) => typeof round.ms[name] === "number"),
    total = phases.reduce((sum, name) => sum + round.ms[name], 0);
  parts.facts.replaceChildren(
    html("h3", {}, `Round ${round.i + 1} in numbers`),
    html("dl", { class: "sv-dl" }, ...rows),
    total
      ? html(
          "div",
          { class: "sv-split", role: "img", "aria-label": phases.map((name) => `${name} ${milliseconds(round.ms[name])}`).join(", ") },
          ...phases.map((name) => html("i", { class: name, style: `flex-grow:${round.ms[name] / total}` })),
        )
      : null,
    html(
      "dl",
      { class: "sv-dl sv-ms" },
      ...phases.map((name) =>
        html("div", {}, html("dt", {}, html("i", { class: `sv-dot ${name}` }), name), html("dd", {}, milliseconds(round.ms[name]))),
      ),
    ),
  );
}

// The table twin says all that the tree says, for screen readers and small screens; it is built when it is opened
const HEADS = ["Token", "Ahead", "After", "Draft q", "Target p", "Target's rank", "Verdict", "Why"];
function drawTable() {
  const round = current();
  if (!parts.table.open || !round) {
    parts.rows.replaceChildren();
    return;
  }
  const items = itemsOf(round, state.cuts),
    head = html("thead", {}, html("tr", {}, ...HEADS.map((name) => html("th", { scope: "col" }, name))));
  const body = html("tbody", {}, ...items.map((item) => tableRow(item, items, round)));
  parts.rows.replaceChildren(html("table", {}, html("caption", {}, round.live), head, body));
}
function tableRow(item, items, round) {
  const name = html("button", { type: "button", click: () => pin(state.cur, item.key) }, item.text),
    rank = item.place === null ? "–" : (item.place + 1).toLocaleString("en");
  const values = [item.depth, item.parent < 0 ? "–" : items[item.parent].text, item.depth ? exact(item.score) : "–", exact(item.p), rank];
  return html(
    "tr",
    { "data-key": `${state.cur}:${item.key}` },
    html("th", { scope: "row" }, name),
    ...values.map((value) => html("td", {}, value)),
    html("td", { class: `sv-verdict ${item.kind}` }, word(item.kind)),
    html("td", {}, untagged(round.say[item.why[0]])),
  );
}
