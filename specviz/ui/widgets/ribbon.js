// The round ribbon: a chart (height = tokens gained) that is also the scrubber.
const RIBBON = { height: 78, top: 6, foot: 16, left: 22, right: 44 };

function drawRibbon() {
  const count = state.rounds.length, box = parts.ribbon, width = Math.max(160, box.clientWidth || 600);
  const gains = state.rounds.map((round) => (round ? round.strip.length : 0));
  const most = Math.max(2, ...gains), space = RIBBON.height - RIBBON.top - RIBBON.foot, unit = Math.min(14, space / most);
  const wide = Math.min(42, (width - RIBBON.left - RIBBON.right) / Math.max(count, 12)), gap = wide > 8 ? 3 : wide > 4 ? 1 : 0;
  const base = RIBBON.height - RIBBON.foot, made = [];
  const step = Math.ceil(most / 4);
  for (let level = step; level <= most; level += step) {
    const y = base - level * unit;
    made.push(svg("line", { x1: RIBBON.left, x2: width - RIBBON.right, y1: y, y2: y, class: "sv-grid-line" }), svg("text", { x: RIBBON.left - 6, y: y + 3.5, class: "sv-axis", "text-anchor": "end" }, level));
  }
  for (let i = 0; i < count; i++) {
    const round = state.rounds[i], x = RIBBON.left + i * wide;
    const bar = svg("g", { class: `sv-bar${i === state.cur ? " cur" : i > state.cur ? " later" : ""}`, "data-round": i });
    bar.append(svg("rect", { x, y: 0, width: wide, height: RIBBON.height, class: "sv-hit" }));
    if (!round) bar.append(svg("rect", { x: x + gap / 2, y: base - unit, width: wide - gap, height: unit - 1, class: "sv-hole" }));
    else round.strip.forEach(([, kind, node], k) => bar.append(svg("rect", { x: x + gap / 2, y: base - (k + 1) * unit, width: Math.max(1, wide - gap), height: Math.max(1, unit - 1.2), rx: Math.min(2, wide / 4), class: `sv-unit ${kind}`, "data-key": `${i}:${node < 0 ? "bonus" : node}` })));
    if (i === state.cur) bar.append(svg("path", { d: `M${x + wide / 2} ${base + 3}l4.5 7h-9z`, class: "sv-cursor" }));
    made.push(bar);
  }
  const tau = state.view.summary.tau;
  if (tau !== null && count) {
    const y = base - tau * unit, end = width - RIBBON.right;
    made.push(svg("line", { x1: RIBBON.left, x2: end, y1: y, y2: y, class: "sv-tau" }), svg("text", { x: end + 4, y: y + 4, class: "sv-tau-text" }, `τ ${tau.toFixed(2)}`));
  }
  const focused = document.activeElement === box.firstChild;
  const round = current();
  const chart = svg("svg", {
    width, height: RIBBON.height, role: "slider", tabindex: 0, "aria-label": "Round", "aria-valuemin": 1, "aria-valuemax": Math.max(1, count),
    "aria-valuenow": state.cur + 1, "aria-valuetext": round ? round.live : "no round yet",
  }, ...made);
  box.replaceChildren(chart);
  box.dataset.wide = String(wide);
  if (focused) chart.focus();
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
    if (hit && hit.round === state.cur) { state.picked = hit; mark(); }
    box.firstChild.focus({ preventScroll: true });
    event.preventDefault();
  });
  box.addEventListener("pointermove", (event) => { if (dragging && roundAt(event) !== state.cur) go(roundAt(event)); });
  for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) box.addEventListener(end, () => { dragging = false; });
}

const PLAY = "M4 2.5v11l9-5.5z", PAUSE = "M4 3h3v10H4zM9 3h3v10H9z";
function buildControls() {
  const speeds = [[0, "step by step"], [0.5, "0.5 rounds/s"], [1, "1 round/s"], [2, "2 rounds/s"], [4, "4 rounds/s"]];
  parts.play = icon(PLAY, "Play", play, { class: "sv-btn sv-play" });
  parts.speed = html("select", { class: "sv-select", "aria-label": "Speed", change: () => { state.speed = Number(parts.speed.value); } }, ...speeds.map(([value, label]) => html("option", { value, selected: value === 1 }, label)));
  parts.where = html("span", { class: "sv-where" });
  parts.follow = html("button", { type: "button", class: "sv-chip sv-follow", click: () => { halt(); state.follow = true; look(state.rounds.length - 1); draw(); } }, "Follow the newest round");
  parts.status = html("span", { class: "sv-chip sv-status" });
  parts.controls.replaceChildren(
    html("div", { class: "sv-buttons", role: "group", "aria-label": "Step through the rounds" },
      icon("M3 3h2v10H3zM13 3v10L6 8z", "First round (Home)", () => go(0)), icon("M11 3v10L4 8z", "Previous round (Left)", () => go(state.cur - 1)), parts.play,
      icon("M5 3v10l7-5z", "Next round (Right)", () => go(state.cur + 1)), icon("M3 3v10l7-5zM11 3h2v10h-2z", "Last round (End)", () => go(state.rounds.length - 1))),
    parts.where, parts.speed, parts.follow, parts.status);
}
const ENDED = { eos: "ended with an end token", length: "ended at the token limit", context: "ended: the context is full", stopped: "stopped", error: "ended by an error" };
function drawControls() {
  const count = state.rounds.length, playing = state.timer !== null;
  parts.where.replaceChildren("Round ", html("b", {}, count ? state.cur + 1 : 0), ` of ${count}`);
  parts.play.querySelector("path").setAttribute("d", playing ? PAUSE : PLAY);
  for (const name of ["aria-label", "title"]) parts.play.setAttribute(name, playing ? "Pause (Space)" : "Play (Space)");
  parts.follow.hidden = !running() || state.follow;
  parts.status.className = `sv-chip sv-status ${state.view.status}`;
  parts.status.textContent = running() ? (state.follow ? "live" : "still running") : ENDED[state.view.status] || state.view.status;
  if (state.view.message) parts.status.title = state.view.message;
}
