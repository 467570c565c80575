// One round as a tree that can be drawn: its items and where they lie. The layout mirrors specviz/analysis/layout.py, which a test
// holds it against; it lives here because people fold branches.
const MANY = 36; // leaves; a tree with more opens folded
const OFF_PATH = new Set(["rejected", "untested", "passed_not_chosen", "unreached", "passenger"]);

// Everything that is drawn: the verified nodes, the bonus as a leaf of its own, cut candidates if wanted
function itemsOf(round, withCuts) {
  const n = round.node,
    at = (column, i) => (column ? column[i] : null);
  const items = n.text.map((text, i) => ({
    key: i,
    text,
    parent: n.parent[i],
    kind: n.verdict[i],
    why: n.why[i],
    rank: n.rank[i],
    place: n.place[i],
    score: n.score[i],
    total: n.total[i],
    q: at(n.q, i),
    p: at(n.p, i),
    warped: at(n.warped, i),
    source: at(n.source, i),
  }));
  const { bonus } = round,
    blank = { score: null, total: null, q: null, p: null, warped: null, place: null };
  if (bonus) items.push({ ...blank, key: "bonus", text: bonus.text, parent: bonus.parent, kind: bonus.kind, why: bonus.why });
  if (withCuts) round.cut.forEach(([text, parent, total, why], i) => items.push({ ...blank, key: `cut${i}`, text, parent, kind: "pruned", total, why }));
  for (const item of items) {
    item.kids = [];
    item.depth = item.parent < 0 ? 0 : items[item.parent].depth + 1;
    if (item.parent >= 0) items[item.parent].kids.push(item);
  }
  return items;
}

const folds = (item) => item.kids.length > 0 && OFF_PATH.has(item.kind);
const folded = (item, by = state.unfold) => folds(item) && (by.has(item.key) ? !by.get(item.key) : item.shut);
const offspring = (item) => item.kids.reduce((sum, kid) => sum + 1 + offspring(kid), 0);
function setFold(item, closed) {
  state.unfold.set(item.key, !closed);
  drawTree();
  mark();
  focusNode(item.key);
}

// Leaves take consecutive rows, a parent stands midway between its first and last child; returns the visible items in preorder
function placeRows(items, by = state.unfold) {
  const order = [];
  const shut = state.foldAll === null ? items.filter((item) => !item.kids.length).length > MANY : state.foldAll;
  for (const item of items) item.shut = shut;
  let rows = 0;
  (function visit(item) {
    order.push(item);
    if (!item.kids.length || folded(item, by)) {
      item.row = rows++;
      return;
    }
    item.kids.forEach(visit);
    item.row = (item.kids[0].row + item.kids[item.kids.length - 1].row) / 2;
  })(items[0]);
  return { order, rows };
}

// The most rows of the rounds known so far, so that the stage does not jump while scrubbing
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

const limits = () => (props.compact || parts.tree.clientWidth < 520 ? { box: 400, text: 10 } : { box: 560, text: 14 });
function sizesFor(rows) {
  const scale = state.large ? 1.3 : 1;
  const [row, height, font] = rows <= 20 ? [27, 23, 13] : rows <= 40 ? [23, 20, 12.5] : [19, 16, 11];
  const family = getComputedStyle(parts.tree).getPropertyValue("--sv-mono") || "monospace";
  return { row: row * scale, height: height * scale, font: font * scale, small: Math.max(9.5, font - 3) * scale, scale, family, head: 26 * scale };
}

// Columns are as wide as their longest text. Beside a node stand q and p, or q alone, or nothing, as there is room; the rest widens the gaps
function placeColumns(order, size, room) {
  const depth = Math.max(...order.map((item) => item.depth)),
    widths = Array(depth + 1).fill(34 * size.scale);
  for (const item of order) {
    item.label = shorten(item.text, limits().text);
    item.own = textWidth(item.label, `${size.font}px ${size.family}`) + 29 * size.scale;
    widths[item.depth] = Math.max(widths[item.depth], item.own);
  }
  const one = textWidth("<.01", `${size.small}px ${size.family}`) + 6,
    least = depth > 7 ? 16 : 26,
    taken = widths.reduce((a, b) => a + b, 24);
  const fits = (numbers) => taken + depth * (least + numbers) <= room;
  const numbers = !props.compact && fits(2 * one) ? 2 * one : fits(one) || depth <= 3 ? one : 0;
  const gap = clamp((room - taken - depth * numbers) / Math.max(1, depth), least, 70),
    left = [];
  let x = 12;
  for (let d = 0; d <= depth; d++) {
    left[d] = x;
    x += widths[d] + (d && d < depth ? numbers : 0) + gap;
  }
  for (const item of order) {
    item.x = left[item.depth];
    item.width = item.key === "bonus" ? item.own : widths[item.depth];
    item.numbers = item.depth && typeof item.key === "number" ? numbers : 0;
  }
  return { left, widths, numbers, one, width: x - gap + 12 + numbers };
}
