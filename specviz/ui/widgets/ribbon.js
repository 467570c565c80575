// The round ribbon: a chart (height = tokens gained) that is also the scrubber.
const RIBBON = { height: 78, top: 6, foot: 16, left: 22, right: 44 };

function drawRibbon() {
  const box = parts.ribbon,
    count = state.rounds.length,
    focused = document.activeElement === box.firstChild,
    round = current();
  const width = Math.max(160, box.clientWidth || 600),
    most = Math.max(2, ...Array.from(state.rounds, (one) => (one ? one.strip.length : 0)));
  const wide = Math.min(42, (width - RIBBON.left - RIBBON.right) / Math.max(count, 12)),
    base = RIBBON.height - RIBBON.foot;
  const scale = { base, wide, most, unit: Math.min(14, (base - RIBBON.top) / most), gap: wide > 8 ? 3 : wide > 4 ? 1 : 0, end: width - RIBBON.right };
  const chart = svg(
    "svg",
    {
      width,
      height: RIBBON.height,
      role: "slider",
      tabindex: 0,
      "aria-label": "Round",
      "aria-valuemin": 1,
      "aria-valuemax": Math.max(1, count),
      "aria-valuenow": Math.min(state.cur + 1, Math.max(1, count)),
      "aria-valuetext": round ? round.live : "no round yet",
    },
    ...ticks(scale),
    ...Array.from({ length: count }, (_, i) => column(state.rounds[i], i, scale)),
    ...meanLine(scale),
  );
  box.replaceChildren(chart);
  box.dataset.wide = String(wide);
  if (focused) chart.focus();
}
function ticks({ base, most, unit, end }) {
  const step = Math.ceil(most / 4),
    levels = Array.from({ length: Math.floor(most / step) }, (_, i) => (i + 1) * step);
  return levels.flatMap((level) => [
    svg("line", { x1: RIBBON.left, x2: end, y1: base - level * unit, y2: base - level * unit, class: "sv-grid-line" }),
    svg("text", { x: RIBBON.left - 6, y: base - level * unit + 3.5, class: "sv-axis", "text-anchor": "end" }, level),
  ]);
}
function column(round, i, { base, wide, unit, gap }) {
  const x = RIBBON.left + i * wide,
    size = { x: x + gap / 2, width: Math.max(1, wide - gap), height: Math.max(1, unit - 1.2), rx: Math.min(2, wide / 4) };
  const units = !round
    ? [svg("rect", { ...size, y: base - unit, class: "sv-hole" })]
    : round.strip.map(([, kind, node], k) =>
        svg("rect", { ...size, y: base - (k + 1) * unit, class: `sv-unit ${kind}`, "data-key": `${i}:${node < 0 ? "bonus" : node}` }),
      );
  const cursor = i === state.cur ? svg("path", { d: `M${x + wide / 2} ${base + 3}l4.5 7h-9z`, class: "sv-cursor" }) : null;
  const when = i === state.cur ? " cur" : i > state.cur ? " later" : "";
  return svg("g", { class: `sv-bar${when}`, "data-round": i }, svg("rect", { x, y: 0, width: wide, height: RIBBON.height, class: "sv-hit" }), ...units, cursor);
}
function meanLine({ base, unit, end }) {
  const { tau, says } = state.view.summary;
  if (tau === null || !state.rounds.length) return [];
  const y = base - tau * unit;
  return [
    svg("line", { x1: RIBBON.left, x2: end, y1: y, y2: y, class: "sv-tau" }),
    svg("text", { x: end + 4, y: y + 4, class: "sv-tau-text" }, `τ ${says.tau}`),
  ];
}

function roundAt(event) {
  const box = parts.ribbon.getBoundingClientRect();
  return clamp(Math.floor((event.clientX - box.left - RIBBON.left) / Number(parts.ribbon.dataset.wide || 1)), 0, state.rounds.length - 1);
}
let dragging = false;
function listenRibbon() {
  const box = parts.ribbon;
  box.addEventListener("pointerdown", (event) => {
    if (event.button || !state.rounds.length) return;
    dragging = true;
    box.setPointerCapture(event.pointerId);
    const hit = keyOf(event.target);
    go(roundAt(event));
    if (hit && hit.round === state.cur) {
      state.picked = hit;
      mark();
    }
    box.firstChild.focus({ preventScroll: true });
    event.preventDefault();
  });
  box.addEventListener("pointermove", (event) => {
    if (dragging && roundAt(event) !== state.cur) go(roundAt(event));
  });
  for (const end of ["pointerup", "pointercancel", "lostpointercapture"])
    box.addEventListener(end, () => {
      dragging = false;
    });
}

const PLAY = "M4 2.5v11l9-5.5z",
  PAUSE = "M4 3h3v10H4zM9 3h3v10H9z";
const STEPS = [
  ["M3 3h2v10H3zM13 3v10L6 8z", "First round (Home)", () => 0],
  ["M11 3v10L4 8z", "Previous round (Left)", () => state.cur - 1],
  ["M5 3v10l7-5z", "Next round (Right)", () => state.cur + 1],
  ["M3 3v10l7-5zM11 3h2v10h-2z", "Last round (End)", () => state.rounds.length - 1],
];
const SPEEDS = [
  [0, "step by step"],
  [0.5, "0.5 rounds/s"],
  [1, "1 round/s"],
  [2, "2 rounds/s"],
  [4, "4 rounds/s"],
];
function buildControls() {
  const [first, previous, next, last] = STEPS.map(([path, label, where]) => icon(path, label, () => go(where())));
  parts.play = icon(PLAY, "Play (Space)", play, { class: "sv-btn sv-play" });
  parts.speed = html(
    "select",
    { class: "sv-select", "aria-label": "Speed", change: () => (state.speed = Number(parts.speed.value)) },
    ...SPEEDS.map(([value, label]) => html("option", { value, selected: value === state.speed }, label)),
  );
  parts.where = html("span", { class: "sv-where" });
  parts.follow = html("button", { type: "button", class: "sv-chip sv-follow", click: follow }, "Follow the newest round");
  parts.status = html("span", { class: "sv-chip sv-status" });
  const buttons = html("div", { class: "sv-buttons", role: "group", "aria-label": "Step through the rounds" }, first, previous, parts.play, next, last);
  parts.controls.replaceChildren(buttons, parts.where, parts.speed, parts.follow, parts.status);
}
const ENDED = {
  eos: "ended: end token",
  length: "ended: token limit",
  context: "ended: context full",
  stopped: "stopped",
  error: "ended: error",
};
function drawControls() {
  const count = state.rounds.length,
    playing = state.timer !== null;
  parts.where.replaceChildren("Round ", html("b", {}, count ? state.cur + 1 : 0), ` of ${count}`);
  parts.play.querySelector("path").setAttribute("d", playing ? PAUSE : PLAY);
  for (const name of ["aria-label", "title"]) parts.play.setAttribute(name, playing ? "Pause (Space)" : "Play (Space)");
  parts.follow.hidden = !running() || state.follow;
  parts.status.className = `sv-chip sv-status ${state.view.status}`;
  parts.status.textContent = running() ? (state.follow ? "live" : "still running") : ENDED[state.view.status] || state.view.status;
  if (state.view.message) parts.status.title = state.view.message;
}
