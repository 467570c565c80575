// The candidate tree of one round, left to right. Its layout mirrors specviz/analysis/layout.py; it lives here because people fold it.
const MANY = 36; // leaves
const OFF_PATH = new Set(["rejected", "untested", "passed_not_chosen", "unreached", "passenger"]);

// Everything that is drawn, as nodes of one tree: the verified nodes, the bonus as a leaf of its own, cut candidates if wanted
function itemsOf(round, withCuts) {
  const n = round.node;
  const items = n.text.map((text, i) => ({
    key: i, text, parent: n.parent[i], kind: n.verdict[i], rank: n.rank[i], score: n.score[i], total: n.total[i], p: n.p[i], place: n.place[i],
    q: n.q ? n.q[i] : null, warped: n.warped ? n.warped[i] : null, source: n.source ? n.source[i] : null, why: n.why[i], test: round.test[i],
  }));
  if (round.bonus) items.push({ key: "bonus", text: round.bonus.text, parent: round.bonus.parent, kind: round.bonus.kind, why: round.bonus.why });
  if (withCuts) round.cut.forEach(([text, parent, total, why], i) => items.push({ key: `cut${i}`, text, parent, kind: "pruned", total, why }));
  items.forEach((item, i) => { item.at = i; item.kids = []; item.depth = item.parent < 0 ? 0 : items[item.parent].depth + 1; if (item.parent >= 0) items[item.parent].kids.push(item); });
  return items;
}

const folds = (item) => item.kids.length > 0 && OFF_PATH.has(item.kind);
const folded = (item, by = state.unfold) => folds(item) && (by.has(item.key) ? !by.get(item.key) : item.shut);
function setFold(item, closed) { state.unfold.set(item.key, !closed); drawTree(); focusNode(item.key); }
const offspring = (item) => item.kids.reduce((sum, kid) => sum + 1 + offspring(kid), 0);

// Leaves take consecutive rows, a parent stands midway between its first and last child; returns the visible items in preorder
function placeRows(items, by = state.unfold) {
  const order = [], shut = state.foldAll === null ? items.filter((item) => !item.kids.length).length > MANY : state.foldAll;
  for (const item of items) item.shut = shut; // what cannot be overlooked at once opens folded
  let rows = 0;
  (function visit(item) {
    order.push(item);
    if (!item.kids.length || folded(item, by)) { item.row = rows++; return; }
    item.kids.forEach(visit);
    item.row = (item.kids[0].row + item.kids[item.kids.length - 1].row) / 2;
  })(items[0]);
  return { order, rows };
}

function sizes(rows) {
  const scale = state.large ? 1.3 : 1;
  const [row, height, font] = rows <= 20 ? [27, 23, 13] : rows <= 40 ? [23, 20, 12.5] : [19, 16, 11];
  return { row: row * scale, height: height * scale, font: font * scale, small: Math.max(9.5, font - 3) * scale, scale };
}
const limits = () => (props.compact || parts.tree.clientWidth < 520 ? { box: 400, text: 10 } : { box: 560, text: 14 });

// Columns are as wide as their longest text; what is left over widens the gaps
function placeColumns(order, size, room) {
  const family = getComputedStyle(parts.tree).getPropertyValue("--sv-mono") || "monospace", font = `${size.font}px ${family}`, small = `${size.small}px ${family}`;
  const depth = Math.max(...order.map((item) => item.depth)), widths = Array(depth + 1).fill(34 * size.scale);
  for (const item of order) {
    item.label = shorten(item.text, limits().text);
    widths[item.depth] = Math.max(widths[item.depth], textWidth(item.label, font) + 29 * size.scale);
  }
  const one = textWidth("<.01", small) + 6, gapLow = 26, total = widths.reduce((a, b) => a + b, 24);
  const need = (numbers) => total + depth * (gapLow + numbers);
  const numbers = props.compact || need(2 * one) > room ? (need(one) > room && depth > 3 ? 0 : one) : 2 * one;
  const gap = clamp((room - total - depth * numbers) / Math.max(1, depth), gapLow, 70);
  const left = [];
  let x = 12;
  for (let d = 0; d <= depth; d++) { left[d] = x; x += widths[d] + (d && d < depth ? numbers : 0) + gap; }
  for (const item of order) { item.x = left[item.depth]; item.width = widths[item.depth]; item.numbers = item.depth === 0 || typeof item.key !== "number" ? 0 : numbers; }
  return { left, widths, width: x - gap + 12 + (numbers ? numbers : 0), numbers, one };
}

function drawTree() {
  const round = current(), box = parts.tree;
  parts.cuts.hidden = !round || !round.cut.length;
  parts.fold.hidden = !round;
  if (!round) { box.replaceChildren(html("p", { class: "sv-empty" }, state.rounds.length ? "This round has not arrived yet." : running() ? "The prompt is read; the first tree comes next." : "This recording holds no trees (it was made without detail).")); parts.order = []; drawTable(); return; }
  const items = itemsOf(round, state.cuts), { order, rows } = placeRows(items), most = Math.max(rows, mostRows()), size = sizes(most);
  const columns = placeColumns(order, size, (box.clientWidth || 800) - 2), top = 26 * size.scale;
  const stage = Math.min(limits().box, top + most * size.row + 14);
  size.row = clamp((stage - top - 14) / rows, size.row, size.row * 1.45); // a small tree fills the stage of a large one
  const height = rows * size.row + 8, offset = Math.max(0, (stage - top - 12 - height) / 2);
  for (const item of order) item.y = offset + 4 + (item.row + 0.5) * size.row;
  const deepest = columns.left.length - 1, heads = columns.left.map((x, d) => svg("text", { x: x + 2, y: 15 * size.scale, class: "sv-axis", style: `font-size:${11 * size.scale}px` }, d === 0 ? "last token" : `+${d}`));
  if (columns.numbers) for (const d of new Set(order.filter((item) => item.numbers).map((item) => item.depth))) heads.push(...headNumbers(columns, d, size));
  const bands = columns.left.map((x, d) => (d % 2 ? svg("rect", { x: x - 10, y: 0, width: columns.widths[d] + (d < deepest || columns.numbers ? columns.numbers : 0) + 20, height: Math.max(height + 2 * offset, stage - top - 12), class: "sv-band" }) : null));
  const edges = order.filter((item) => item.parent >= 0).sort((a, b) => weight(a) - weight(b)).map((item) => edge(items[item.parent], item));
  const chart = svg("svg", { width: columns.width, height: Math.max(height + 2 * offset, stage - top - 12), role: "tree", "aria-label": `Candidate tree of round ${state.cur + 1}` }, ...bands, ...edges, ...order.map((item) => node(item, items, size, columns)));
  const focused = box.contains(document.activeElement);
  box.style.height = `${stage}px`;
  box.replaceChildren(svg("svg", { width: columns.width, height: top - 2, class: "sv-heads", "aria-hidden": "true" }, ...heads), chart);
  parts.fold.setAttribute("aria-pressed", String(items[0].shut));
  Object.assign(parts, { items, order });
  drawLegend(order);
  mark();
  if (focused) focusNode(focus().key); else showPath(order, stage);
  drawTable();
}

function headNumbers(columns, d, size) {
  const at = { y: 15 * size.scale, style: `font-size:${size.small}px` }, x = columns.left[d] + columns.widths[d];
  return [svg("text", { ...at, x: x + 4, class: "sv-num-q" }, "q"), columns.numbers > columns.one ? svg("text", { ...at, x: x + 2 + columns.one, class: "sv-num-p" }, "p") : ""];
}

// Over the rounds known so far, so that the stage does not jump while scrubbing
const known = { mode: "", rows: new WeakMap() };
function mostRows() {
  const mode = `${state.foldAll}${state.cuts}`;
  if (known.mode !== mode) Object.assign(known, { mode, rows: new WeakMap() });
  let most = 3;
  for (const round of state.rounds) {
    if (!round) continue;
    if (!known.rows.has(round)) known.rows.set(round, placeRows(itemsOf(round, state.cuts), new Map()).rows);
    most = Math.max(most, known.rows.get(round));
  }
  return most;
}

const weight = (item) => ["unreached", "untested", "pruned", "passenger"].includes(item.kind) ? 0 : item.kind === "rejected" ? 1 : 2;
function edge(parent, item) {
  const x1 = parent.x + parent.width + (parent.numbers || 0) + 1, x2 = item.x - 1, middle = x1 + (x2 - x1) * 0.5;
  return svg("path", { d: `M${x1} ${parent.y}C${middle} ${parent.y} ${middle} ${item.y} ${x2} ${item.y}`, class: `sv-edge ${item.kind}` });
}

function describe(item) {
  const bits = [`depth ${item.depth}`, `token ${item.text}`];
  if (item.score !== undefined && item.score !== null && item.depth) bits.push(`draft ${exact(item.score)}`);
  if (item.p !== undefined && item.p !== null) bits.push(`target ${exact(item.p)}`);
  bits.push(props.words[item.kind] || item.kind);
  return bits.join(", ");
}

function node(item, items, size, columns) {
  const { x, width } = item, h = size.height, y = item.y - h / 2, s = size.scale, siblings = item.parent < 0 ? [item] : items[item.parent].kids;
  const group = svg("g", {
    class: `sv-node ${item.kind}`, transform: `translate(${x} ${y})`, role: "treeitem", tabindex: -1, "data-key": `${state.cur}:${item.key}`, "aria-label": describe(item),
    "aria-level": item.depth + 1, "aria-setsize": siblings.length, "aria-posinset": siblings.indexOf(item) + 1, "aria-selected": "false",
    "aria-expanded": item.kids.length ? String(!folded(item)) : null,
  });
  const own = item.key === "bonus" ? Math.min(width, textWidth(item.label, `bold ${size.font}px monospace`) + 30 * s) : width;
  group.append(svg("rect", { width: own, height: h, rx: item.key === "bonus" ? h / 2 : 4 * s, class: "sv-box" }));
  if (item.depth && item.score !== undefined && item.score !== null) group.append(svg("rect", { x: 1.5, y: 1.5, width: Math.max(0, (own - 3) * clamp(item.score, 0, 1)), height: h - 3, rx: 3, class: "sv-q" }));
  if (item.depth && item.p !== undefined && item.p !== null) group.append(svg("rect", { x: 1.5, y: h - 4 * s, width: Math.max(0, (own - 3) * clamp(item.p, 0, 1)), height: 2.6 * s, rx: 1.2, class: "sv-p" }));
  if (item.key === "bonus" && item.kind === "bonus") group.append(svg("path", { d: `M${11 * s} ${h / 2 - 5 * s}l${5 * s} ${5 * s}-${5 * s} ${5 * s}-${5 * s} -${5 * s}z`, class: "sv-diamond" }));
  else if (GLYPHS[item.kind]) group.append(svg("path", { d: GLYPHS[item.kind], transform: `translate(${4 * s} ${h / 2 - 6 * s}) scale(${s})`, class: "sv-glyph" }));
  group.append(svg("text", { x: (GLYPHS[item.kind] || item.key === "bonus" ? 21 : 10) * s, y: h / 2 + size.font * 0.34, class: "sv-text", style: `font-size:${size.font}px` }, item.label));
  if (item.numbers) {
    const at = { y: h / 2 + size.small * 0.36, style: `font-size:${size.small}px` };
    if (item.score !== null) group.append(svg("text", { ...at, x: own + 4, class: "sv-num-q" }, brief(item.score)));
    if (item.numbers > columns.one) group.append(svg("text", { ...at, x: own + 2 + columns.one, class: "sv-num-p" }, brief(item.p)));
  }
  if (folds(item)) group.append(foldHandle(item, own + item.numbers, h, s));
  group.append(svg("title", {}, describe(item)));
  return group;
}
function foldHandle(item, x, h, s) {
  const closed = folded(item), label = closed ? `+${offspring(item)}` : "–";
  return svg("g", { class: `sv-fold${closed ? " closed" : ""}`, transform: `translate(${x + 8 * s} ${h / 2})`, "data-fold": item.key },
    svg("rect", { x: -8 * s, y: -7 * s, width: (closed ? 14 + 6 * label.length : 16) * s, height: 14 * s, rx: 7 * s }), svg("text", { x: closed ? -3 * s : -3.5 * s, y: 3.6 * s, style: `font-size:${10 * s}px` }, label));
}

// The whole path if it fits, else its end
function showPath(order, stage) {
  const box = parts.tree, on = order.filter((item) => item.kind === "accepted" || item.key === "bonus" || item.depth === 0);
  const ys = on.map((item) => item.y), last = on[on.length - 1], low = Math.min(...ys), high = Math.max(...ys), right = Math.max(...on.map((item) => item.x + item.width)) + 14;
  box.scrollTop = Math.max(0, (high - low < stage - 60 ? (low + high) / 2 : last.y) - stage / 2 + 13);
  box.scrollLeft = Math.max(0, right - box.clientWidth);
}

function drawLegend(order) {
  const seen = new Set(order.map((item) => item.kind)), always = ["accepted", "rejected", "untested", "unreached", "bonus"];
  const kinds = ["accepted", "rejected", "untested", "unreached", "passed_not_chosen", "cut", "passenger", "pruned", "bonus", "plain"].filter((kind) => seen.has(kind) || always.includes(kind));
  const samples = kinds.map((kind) => html("span", { class: "sv-key", title: MEANING[kind] },
    svg("svg", { width: 30, height: 14, "aria-hidden": "true" }, kind === "pruned" ? "" : svg("path", { d: "M1 7h28", class: `sv-edge ${kind}` }),
      kind === "bonus" ? svg("path", { d: "M15 2l5 5-5 5-5-5z", class: "sv-diamond" }) : kind === "pruned" ? svg("g", { class: "sv-node pruned" }, svg("text", { x: 5, y: 11, class: "sv-text", style: "font-size:11px" }, "abc")) : svg("g", { class: `sv-node ${kind}` }, svg("rect", { x: 8, y: 1, width: 14, height: 12, rx: 3, class: "sv-box" }), GLYPHS[kind] ? svg("path", { d: GLYPHS[kind], transform: "translate(9.3 1.3) scale(.95)", class: "sv-glyph" }) : null)),
    html("b", {}, (props.words[kind] || kind).toLowerCase()), ` ${MEANING[kind] || ""}`));
  const bars = html("span", { class: "sv-key" }, svg("svg", { width: 30, height: 14, "aria-hidden": "true" }, svg("rect", { x: 0.5, y: 0.5, width: 29, height: 13, rx: 3, class: "sv-sample" }), svg("rect", { x: 1.5, y: 1.5, width: 19, height: 11, rx: 2, class: "sv-q" }), svg("rect", { x: 1.5, y: 10, width: 12, height: 2.6, class: "sv-p" })),
    html("b", {}, "fill"), " draft confidence q, ", html("b", {}, "bottom bar"), " target probability p");
  parts.legend.replaceChildren(...samples, bars);
}
