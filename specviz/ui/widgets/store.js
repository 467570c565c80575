// What is known of the run and what the person looks at. `rounds` may have holes while updates are coalesced; the last value fills them.
const state = {
  view: null,
  rounds: [],
  cur: 0,
  follow: false,
  picked: null,
  peeked: null,
  phase: "accept",
  foldAll: null,
  unfold: new Map(),
  cuts: false,
  large: false,
  speed: 1,
  timer: null,
};

function take(value) {
  const view = value ? JSON.parse(value) : null; // text, see Player.postprocess
  if (!view) {
    halt();
    state.view = null;
    state.rounds = [];
    return;
  }
  if (view.rounds) {
    const before = state.view,
      going = view.status === "running";
    const fresh = !before || before.run !== view.run || before.row !== view.row || view.total < state.rounds.length;
    if (fresh) {
      halt();
      Object.assign(state, { rounds: [], picked: null, peeked: null, unfold: new Map(), follow: going });
    }
    for (const round of view.rounds) state.rounds[round.i] = round;
    state.rounds.length = view.total;
    state.view = { ...view, rounds: null };
    if (fresh && !going) state.cur = view.start;
    else if (state.follow) look(view.total - 1);
    if (!going) state.follow = false;
  }
  if (Number.isInteger(view.seek)) {
    state.follow = false;
    look(view.seek);
  }
  state.cur = clamp(state.cur, 0, Math.max(0, state.rounds.length - 1));
}

function look(index) {
  const next = clamp(index, 0, Math.max(0, state.rounds.length - 1));
  if (next === state.cur) return;
  Object.assign(state, { cur: next, picked: null, peeked: null, unfold: new Map() });
}

const current = () => state.rounds[state.cur] || null;
const running = () => state.view !== null && state.view.status === "running";

// What the panel speaks about: the peeked node, else the pinned one, else the end of what the round accepted
function focus() {
  if (state.peeked) return state.peeked;
  if (state.picked) return state.picked;
  const round = current();
  if (!round) return state.view && state.view.first ? { round: -1, key: "first" } : null;
  if (round.path.length) return { round: state.cur, key: round.path[round.path.length - 1] };
  return { round: state.cur, key: round.bonus ? "bonus" : 0 };
}

// A step by a person: leaves the live end, tells the page (at most every 150 ms) and the players of the same group
let telling = null;
function go(index, options = {}) {
  if (!options.play) halt();
  if (running()) state.follow = false;
  look(index);
  if (!options.quiet && props.group)
    document.dispatchEvent(new CustomEvent("specviz-round", { detail: { group: props.group, round: state.cur, by: element } }));
  if (!options.quiet && telling === null)
    telling = setTimeout(() => {
      telling = null;
      trigger("round_select", { row: state.view ? state.view.row : 0, round: state.cur });
    }, 150);
  draw();
}

function follow() {
  halt();
  state.follow = true;
  look(state.rounds.length - 1);
  draw();
}

function pin(round, key) {
  if (round >= 0 && round !== state.cur) go(round);
  state.picked = { round, key };
  state.peeked = null;
  if (round >= 0) trigger("node_select", { round, node: key });
  mark();
}
function unpin() {
  state.picked = null;
  state.peeked = null;
  mark();
}
function peek(target) {
  state.peeked = target;
  mark();
}

const PHASES = ["draft", "verify", "accept"];
function halt() {
  if (state.timer !== null) clearTimeout(state.timer);
  Object.assign(state, { timer: null, phase: "accept" });
}
// Speed 0 is "step by step": every round passes through draft, verify and accept
function play() {
  if (state.timer !== null) {
    halt();
    draw();
    return;
  }
  if (state.cur >= state.rounds.length - 1) go(0);
  if (state.speed === 0) state.phase = "draft";
  draw();
  wait();
}
function wait() {
  state.timer = setTimeout(tick, state.speed === 0 ? 1100 : 1000 / state.speed);
  drawControls();
}
function tick() {
  const last = state.cur >= state.rounds.length - 1;
  if (state.speed === 0 && state.phase !== "accept") {
    state.phase = PHASES[PHASES.indexOf(state.phase) + 1];
    draw();
    wait();
    return;
  }
  if (last) {
    halt();
    draw();
    return;
  }
  if (state.speed === 0) state.phase = "draft";
  go(state.cur + 1, { play: true });
  wait();
}
