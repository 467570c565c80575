// Keyboard and mouse. Tree: the W3C tree pattern with a roving tab stop. Elsewhere in the player the arrows step through the rounds.
function focusNode(key) {
  const found = parts.tree.querySelector(`[data-key="${state.cur}:${key}"]`) || parts.tree.querySelector("[data-key]");
  if (found) {
    found.focus({ preventScroll: true });
    found.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
}
function moveTo(item) {
  if (item) {
    state.picked = { round: state.cur, key: item.key };
    state.peeked = null;
    mark();
    focusNode(item.key);
  }
}

function treeKey(code) {
  const order = parts.order,
    at = order.findIndex((item) => item.key === (keyOf(document.activeElement) || {}).key),
    item = order[at];
  if (!item) return false;
  if (code === "ArrowDown") moveTo(order[at + 1]);
  else if (code === "ArrowUp") moveTo(order[at - 1]);
  else if (code === "Home") moveTo(order[0]);
  else if (code === "End") moveTo(order[order.length - 1]);
  else if (code === "ArrowRight") {
    if (folded(item)) setFold(item, false);
    else moveTo(item.kids[0]);
  } else if (code === "ArrowLeft") {
    if (folds(item) && !folded(item)) setFold(item, true);
    else moveTo(parts.items[item.parent]);
  } else if (code === "Enter" || code === "NumpadEnter") pin(state.cur, item.key);
  else return false;
  return true;
}

function roundKey(code) {
  const last = state.rounds.length - 1;
  if (code === "ArrowRight" || code === "PageDown") go(state.cur + 1);
  else if (code === "ArrowLeft" || code === "PageUp") go(state.cur - 1);
  else if (code === "Home") go(0);
  else if (code === "End") go(last);
  else if (code === "Space") play();
  else if (code === "Escape") unpin();
  else return false;
  return true;
}

function stripKey(code) {
  if (code === "ArrowRight") walkStrip(1);
  else if (code === "ArrowLeft") walkStrip(-1);
  else if (code === "Enter") {
    const at = keyOf(document.activeElement);
    if (at) pin(at.round, at.key);
  } else return false;
  return true;
}

function onKey(event) {
  if (!state.view || event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented || !parts.root.offsetParent) return;
  const inside = element.contains(event.target);
  if (!inside && (event.target !== document.body || props.compact)) return; // typing in the page's own fields is left alone
  if (event.target.closest("input, select, textarea, [contenteditable]")) return;
  const { code } = event;
  if (event.target.closest("button, summary") && ["Space", "Enter", "NumpadEnter"].includes(code)) return;
  if (!inside && !["ArrowLeft", "ArrowRight", "Space", "Escape"].includes(code)) return; // Home and End scroll the page
  let done = false;
  if (parts.tree.contains(event.target) && event.target.closest("[data-key]")) done = treeKey(code);
  else if (parts.strip.contains(event.target)) done = stripKey(code);
  if (done || roundKey(code)) event.preventDefault();
}

function listen() {
  document.addEventListener("keydown", (event) => {
    if (element.isConnected) onKey(event);
  });
  document.addEventListener("specviz-round", (event) => {
    if (element.isConnected && event.detail.by !== element && event.detail.group === props.group) go(event.detail.round, { quiet: true });
  });
  parts.root.addEventListener("click", (event) => {
    const fold = event.target.closest("[data-fold]");
    if (fold) {
      const item = parts.items.find((one) => String(one.key) === fold.dataset.fold);
      setFold(item, !folded(item));
      return;
    }
    const hit = keyOf(event.target);
    if (!hit || event.target.closest(".sv-ribbon, button")) return;
    pin(hit.round, hit.key);
    if (parts.tree.contains(event.target)) focusNode(hit.key);
  });
  let over = null;
  parts.root.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch" || dragging) return;
    const hit = event.target.closest(".sv-table") ? null : keyOf(event.target),
      name = hit ? `${hit.round}:${hit.key}` : null;
    if (name === over) return;
    over = name;
    peek(hit);
  });
  parts.root.addEventListener("pointerleave", () => {
    over = null;
    if (state.peeked) peek(null);
  });
}

main();
