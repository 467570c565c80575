// What the marks mean: always the common ones, the others when they occur.
const COMMON = ["accepted", "rejected", "untested", "unreached", "bonus"];
function drawLegend(order) {
  const seen = new Set([...COMMON, ...order.map((item) => item.kind)]),
    kinds = Object.keys(MEANING).filter((kind) => seen.has(kind));
  const samples = kinds.map((kind) =>
    html("span", { class: "sv-key", title: MEANING[kind] }, sample(kind), html("b", {}, word(kind).toLowerCase()), html("span", {}, ` ${MEANING[kind]}`)),
  );
  parts.legend.replaceChildren(
    ...samples,
    html(
      "span",
      { class: "sv-key" },
      picture(
        svg("rect", { x: 0.5, y: 0.5, width: 29, height: 13, rx: 3, class: "sv-sample" }),
        svg("rect", { x: 1.5, y: 1.5, width: 19, height: 11, rx: 2, class: "sv-q" }),
        svg("rect", { x: 1.5, y: 10, width: 12, height: 2.6, class: "sv-p" }),
      ),
      html("b", {}, "fill"),
      " draft confidence q, ",
      html("b", {}, "bottom bar"),
      " target probability p",
    ),
  );
}
const picture = (...children) => svg("svg", { width: 30, height: 14, "aria-hidden": "true" }, ...children);
function sample(kind) {
  if (kind === "pruned") return picture(svg("g", { class: "sv-node pruned" }, svg("text", { x: 5, y: 11, class: "sv-text", style: "font-size:11px" }, "abc")));
  const line = svg("path", { d: "M1 7h28", class: `sv-edge ${kind}` });
  if (kind === "bonus") return picture(line, svg("path", { d: "M15 2l5 5-5 5-5-5z", class: "sv-diamond" }));
  const sign = GLYPHS[kind] ? svg("path", { d: GLYPHS[kind], transform: "translate(9.3 1.3) scale(.95)", class: "sv-glyph" }) : null;
  return picture(line, svg("g", { class: `sv-node ${kind}` }, svg("rect", { x: 8, y: 1, width: 14, height: 12, rx: 3, class: "sv-box" }), sign));
}
