// The numbers on top, and the text: one element per token, grouped by round.
function drawNumbers() {
  const { summary, status } = state.view,
    { says } = summary; // written in Python, so that every place rounds alike
  const none = html("b", { class: "sv-none" }, status === "running" ? "running" : "no baseline yet");
  const against = summary.speedup === null ? "against" : "as fast as"; // the words of the sentence below the player
  parts.numbers.replaceChildren(
    number(html("b", {}, says.tau), "tokens per target forward", "tau", "τ, bonus counted"),
    number(html("b", {}, summary.tokens), "tokens", "tokens", `${summary.accepted} of them accepted drafts`),
    number(html("b", {}, summary.forwards), "target forwards", "forwards", `${summary.drafted.toLocaleString("en")} candidates verified`),
    number(
      summary.speedup === null ? none : html("b", {}, says.speedup, html("i", {}, "×")),
      "measured speed-up",
      "speedup",
      `${against} plain decoding · ${says.rate} tokens/s`,
    ),
  );
}
function number(value, label, key, note) {
  return html("div", { class: "sv-num" }, value, html("div", {}, term(label, key)), html("small", {}, note));
}

function drawAbout() {
  const a = state.view.about;
  const warp =
    a.temperature === 0 ? "temperature 0" : `temperature ${a.temperature}` + (a.top_p < 1 ? `, top-p ${a.top_p}` : "") + (a.top_k ? `, top-k ${a.top_k}` : "");
  const bits = [
    [a.drafter, a.shape && `on ${a.shape}`, a.knobs && `(${a.knobs})`].filter(Boolean).join(" "),
    `rule ${a.rule}${a.lossless ? ", lossless" : ", lossy"}`,
    warp,
    `seed ${a.seed}`,
    a.target,
    [a.device, a.dtype].filter(Boolean).join(", "),
  ];
  parts.about.replaceChildren(...bits.map((bit) => html("span", {}, bit)));
  const { prompt } = state.view;
  parts.prompt.replaceChildren(
    html("summary", {}, html("span", { class: "sv-h" }, `Prompt, ${prompt.tokens} tokens`), html("span", { class: "sv-line" }, prompt.text)),
    html("p", {}, prompt.text),
  );
}

function token(text, kind, round, key, end) {
  const cls = ["sv-tok", kind, text.includes("\n") ? "nl" : "", text === "" ? "part" : "", end ? "end" : ""].join(" ");
  const label = `${text === "" ? "part of a character" : text}, ${round < 0 ? "first token" : `round ${round + 1}`}, ${word(kind)}${end ? ", end of text" : ""}`;
  return html("span", { class: cls, role: "option", tabindex: -1, "aria-label": label, "data-key": `${round}:${key}` }, text);
}
const drawn = new Map(); // round -> what its group was made from, so that a stream redraws only what is new
function drawStrip() {
  const want = [];
  const { first } = state.view;
  if (first) want.push([-1, first, () => [token(first.text, "plain", -1, "first", false)]]);
  for (let i = 0; i < state.rounds.length; i++) {
    const round = state.rounds[i];
    want.push([i, round || "hole", () => (round ? round.strip.map(([text, kind, node, end]) => token(text, kind, i, node < 0 ? "bonus" : node, end)) : ["…"])]);
  }
  const groups = parts.strip.children;
  while (groups.length > want.length) groups[groups.length - 1].remove();
  want.forEach(([index, source, make], place) => {
    let group = groups[place];
    if (!group || drawn.get(group) !== source) {
      const made = html(
        "span",
        {
          role: "group",
          "aria-label": index < 0 ? "before the rounds" : `round ${index + 1}`,
          class: `sv-group${index % 2 ? " odd" : ""}`,
          "data-round": index,
        },
        ...make(),
      );
      if (group) {
        drawn.delete(group);
        group.replaceWith(made);
      } else parts.strip.append(made);
      drawn.set(made, source);
      group = made;
    }
    group.classList.toggle("cur", index === state.cur);
    group.classList.toggle("later", index > state.cur);
  });
  keepInView(parts.strip.querySelector(".sv-group.cur"));
}
// Scrolls by whole lines: the current round begins in the second line
function keepInView(group) {
  const box = parts.strip,
    rects = group ? group.getClientRects() : [];
  if (!rects.length || box.scrollHeight <= box.clientHeight) return;
  const first = rects[0],
    last = rects[rects.length - 1],
    frame = box.getBoundingClientRect(),
    line = parseFloat(getComputedStyle(box).lineHeight) || first.height;
  if (first.top < frame.top || last.bottom > frame.bottom) box.scrollTop += first.top - frame.top - (line - first.height) / 2 - line;
}

const tokens = () => Array.from(parts.strip.querySelectorAll(".sv-tok"));
function keyOf(node) {
  const found = node && node.closest && node.closest("[data-key]");
  if (!found) return null;
  const [round, key] = found.dataset.key.split(":");
  return { round: Number(round), key: /^[0-9]+$/.test(key) ? Number(key) : key };
}
function walkStrip(step) {
  const all = tokens(),
    at = all.indexOf(document.activeElement);
  const next = all[clamp(at + step, 0, all.length - 1)];
  if (!next) return;
  const { round, key } = keyOf(next);
  if (round >= 0 && round !== state.cur) go(round);
  state.picked = { round, key };
  mark();
  (parts.strip.querySelector(`[data-key="${round}:${key}"]`) || next).focus();
}
