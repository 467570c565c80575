// The words of this screen. Verdict names come from Python (props.words), so that sentences and legend agree.
const TERMS = {
  tau: "τ (tau): new tokens per target forward, over all rounds. The bonus token counts; the prompt's forward and the first token do not. Plain decoding has τ = 1.",
  tokens: "New tokens written so far, the first one (from reading the prompt) included.",
  forwards: "Passes of the target model after the prompt. Each round is one pass, whatever the size of its tree.",
  speedup: "Tokens per second of this run over those of plain decoding of the same prompt, seed and machine. Measured, reading the prompt left out.",
  q: "Draft confidence q: the probability that the draft gave this token after its parent.",
  total: "Path score: the draft's confidences multiplied along the path. Dynamic trees keep the best ones.",
  p: "Target probability p: what the target model gives this token after its parent, before temperature.",
  warped: "p after temperature, top-k and top-p: what the rule reads.",
  place: "Where this token stands among all tokens in the target's distribution.",
  entropy: "How unsure the target is here, in nats. 0 means certain.",
  nodes: "Nodes in the tree that the target read in this round's single pass, the last token included.",
  committed: "Tokens whose keys and values the target keeps, prompt included.",
};
const MEANING = {
  accepted: "drafted, and the rule took it",
  rejected: "tested, and the rule refused it",
  untested: "a sibling was accepted first",
  unreached: "something above it fell",
  passed_not_chosen: "passed the test, but another path is better",
  cut: "accepted, but the text ended before it",
  passenger: "computed along, not a candidate",
  pruned: "drafted, but the tree had no room for it",
  bonus: "the target's own token, one per round at no extra pass",
  plain: "written without a draft",
};
const GLYPHS = {
  accepted: "M2.5 6.5 5 9 9.5 3.5",
  cut: "M2.5 6.5 5 9 9.5 3.5",
  rejected: "M3 3l6 6M9 3l-6 6",
  untested: "M3 6h6",
  passed_not_chosen: "M1.5 6.5 3.5 9 7 4M7.5 9.5h3.5",
  passenger: "M4 3v6M8 3v6",
};
const KEYS =
  "Keys: Left and Right step through the rounds, Home and End go to the first and last, Space plays. " +
  "In the tree the arrows move between nodes, Enter pins, Esc releases, Page Up and Page Down change the round.";
