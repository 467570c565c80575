// Draws the candidate tree of the current round.
function drawTree() {
  const round = current();
  parts.cuts.hidden = !round || !round.cut.length;
  parts.fold.hidden = !round;
  if (!round) {
    const reason = state.rounds.length
      ? "This round has not arrived yet."
      : running()
        ? "The prompt is read; the first tree comes next."
        : "This recording holds no trees (it was made without detail).";
    parts.tree.replaceChildren(html("p", { class: "sv-empty" }, reason));
    parts.order = [];
    drawTable();
    return;
  }
  const focused = parts.tree.contains(document.activeElement),
    items = itemsOf(round, state.cuts),
    { order, rows } = placeRows(items);
  const stage = drawStage(items, order, rows);
  parts.fold.setAttribute("aria-pressed", String(items[0].shut));
  Object.assign(parts, { items, order });
  drawLegend(order);
  drawTable();
  if (focused) focusNode(focus().key);
  else showPath(order, stage);
}

// The stage is as high as the largest tree needs; a smaller one spreads over it
function drawStage(items, order, rows) {
  const most = Math.max(rows, mostRows()),
    size = sizesFor(most),
    columns = placeColumns(order, size, (parts.tree.clientWidth || 800) - 2);
  const stage = props.compact ? limits().box : Math.min(limits().box, size.head + most * size.row + 14),
    room = stage - size.head - 12;
  size.row = clamp((room - 2) / rows, size.row, size.row * 1.45);
  const height = Math.max(rows * size.row + 8, room),
    above = (height - rows * size.row - 8) / 2 + 4;
  for (const item of order) item.y = above + (item.row + 0.5) * size.row;
  const edges = order
    .filter((item) => item.parent >= 0)
    .sort((a, b) => weight(a) - weight(b))
    .map((item) => edge(items[item.parent], item));
  parts.tree.style.height = `${stage}px`;
  parts.tree.replaceChildren(
    svg("svg", { width: columns.width, height: size.head - 2, class: "sv-heads", "aria-hidden": "true" }, ...heads(order, columns, size)),
    svg(
      "svg",
      { width: columns.width, height, role: "tree", "aria-label": `Candidate tree of round ${state.cur + 1}` },
      ...bands(columns, height),
      ...edges,
      ...order.map((item) => node(item, items, size, columns)),
    ),
  );
  return stage;
}

function heads(order, columns, size) {
  const y = 15 * size.scale,
    small = `font-size:${size.small}px`;
  const depths = columns.left.map((x, d) =>
    svg("text", { x: x + 2, y, class: "sv-axis", style: `font-size:${11 * size.scale}px` }, d === 0 ? "last token" : `+${d}`),
  );
  const counted = columns.numbers ? new Set(order.filter((item) => item.numbers).map((item) => item.depth)) : [];
  const numbers = Array.from(counted, (d) => {
    const x = columns.left[d] + columns.widths[d];
    return [
      svg("text", { x: x + 4, y, class: "sv-num-q", style: small }, "q"),
      columns.numbers > columns.one ? svg("text", { x: x + 2 + columns.one, y, class: "sv-num-p", style: small }, "p") : null,
    ];
  });
  return [...depths, ...numbers.flat()];
}
function bands(columns, height) {
  return columns.left.map((x, d) =>
    d % 2 ? svg("rect", { x: x - 10, y: 0, width: columns.widths[d] + columns.numbers + 20, height, class: "sv-band" }) : null,
  );
}

const weight = (item) => (["unreached", "untested", "pruned", "passenger"].includes(item.kind) ? 0 : item.kind === "rejected" ? 1 : 2);
function edge(parent, item) {
  const x1 = parent.x + parent.width + parent.numbers + 1,
    x2 = item.x - 1,
    middle = (x1 + x2) / 2;
  return svg("path", { d: `M${x1} ${parent.y}C${middle} ${parent.y} ${middle} ${item.y} ${x2} ${item.y}`, class: `sv-edge ${item.kind}` });
}

function describe(item) {
  const bits = [`depth ${item.depth}`, `token ${item.text}`];
  if (item.score !== null && item.depth) bits.push(`draft ${exact(item.score)}`);
  if (item.p !== null) bits.push(`target ${exact(item.p)}`);
  return [...bits, word(item.kind)].join(", ");
}

function node(item, items, size, columns) {
  const siblings = item.parent < 0 ? [item] : items[item.parent].kids;
  return svg(
    "g",
    {
      class: `sv-node ${item.kind}`,
      transform: `translate(${item.x} ${item.y - size.height / 2})`,
      role: "treeitem",
      tabindex: -1,
      "data-key": `${state.cur}:${item.key}`,
      "aria-label": describe(item),
      "aria-level": item.depth + 1,
      "aria-setsize": siblings.length,
      "aria-posinset": siblings.indexOf(item) + 1,
      "aria-selected": "false",
      "aria-expanded": item.kids.length ? String(!folded(item)) : null,
    },
    ...face(item, size),
    ...beside(item, size, columns),
    folds(item) ? foldHandle(item, size) : null,
    svg("title", {}, describe(item)),
  );
}

// Box, draft confidence as its filling, target probability as the bar along its bottom, verdict as a sign, text
function face(item, size) {
  const { width } = item,
    h = size.height,
    s = size.scale,
    inner = width - 3,
    signed = GLYPHS[item.kind] || item.kind === "bonus";
  const part = (value) => Math.max(0, inner * clamp(value, 0, 1));
  const shown = item.depth && typeof item.key === "number";
  return [
    svg("rect", { width, height: h, rx: item.kind === "bonus" ? h / 2 : 4 * s, class: "sv-box" }),
    shown && item.score !== null ? svg("rect", { x: 1.5, y: 1.5, width: part(item.score), height: h - 3, rx: 3, class: "sv-q" }) : null,
    shown && item.p !== null ? svg("rect", { x: 1.5, y: h - 4 * s, width: part(item.p), height: 2.6 * s, rx: 1.2, class: "sv-p" }) : null,
    item.kind === "bonus" ? svg("path", { d: "M0 -5 5 0 0 5-5 0z", transform: `translate(${12 * s} ${h / 2}) scale(${s})`, class: "sv-diamond" }) : null,
    GLYPHS[item.kind] ? svg("path", { d: GLYPHS[item.kind], transform: `translate(${4 * s} ${h / 2 - 6 * s}) scale(${s})`, class: "sv-glyph" }) : null,
    svg("text", { x: (signed ? 21 : 10) * s, y: h / 2 + size.font * 0.34, class: "sv-text", style: `font-size:${size.font}px` }, item.label),
  ];
}
function beside(item, size, columns) {
  const at = { y: size.height / 2 + size.small * 0.36, style: `font-size:${size.small}px` };
  return [
    item.numbers ? svg("text", { ...at, x: item.width + 4, class: "sv-num-q" }, brief(item.score)) : null,
    item.numbers > columns.one ? svg("text", { ...at, x: item.width + 2 + columns.one, class: "sv-num-p" }, brief(item.p)) : null,
  ];
}
function foldHandle(item, size) {
  const closed = folded(item),
    label = closed ? `+${offspring(item)}` : "–",
    s = size.scale;
  return svg(
    "g",
    { class: `sv-fold${closed ? " closed" : ""}`, transform: `translate(${item.width + item.numbers + 8 * s} ${size.height / 2})`, "data-fold": item.key },
    svg("rect", { x: -8 * s, y: -7 * s, width: (closed ? 14 + 6 * label.length : 16) * s, height: 14 * s, rx: 7 * s }),
    svg("text", { x: (closed ? -3 : -3.5) * s, y: 3.6 * s, style: `font-size:${10 * s}px` }, label),
  );
}

// The whole path if it fits, else its end
function showPath(order, stage) {
  const path = order.filter((item) => ["accepted", "bonus", "root", "plain"].includes(item.kind)),
    heights = path.map((item) => item.y);
  const low = Math.min(...heights),
    high = Math.max(...heights),
    right = Math.max(...path.map((item) => item.x + item.width)) + 14;
  parts.tree.scrollTop = Math.max(0, (high - low < stage - 60 ? (low + high) / 2 : heights[heights.length - 1]) - stage / 2 + 13);
  parts.tree.scrollLeft = Math.max(0, right - parts.tree.clientWidth);
}
