"""Why: the reason for every verdict in words, with the numbers that the rule compared. One source for app, CLI and lessons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specviz.analysis.case import VERDICTS, Case, Why
from specviz.analysis.words import apart, choice, is_worth, ordinal, probability
from specviz.events import Drafted, Prefilled, Verified


def why(drafted: Drafted, verified: Verified, strings: Mapping[int, str], node: int, *, sampling: Mapping[str, Any], rule: Mapping[str, Any]) -> Why:
    """Returns why a node of the tree got its verdict. Raises IndexError when the round was recorded without detail or has no such node."""
    return explain(Case(drafted, verified, strings, sampling, rule), node)


def explain(case: Case, node: int) -> Why:
    """The same for a case that serves many nodes."""
    verdict = case.verdict(node)
    if verdict in _BY_VERDICT:
        return _BY_VERDICT[verdict](case, node)
    reason = case.tests.get(node, {}).get("reason", "")
    return _BY_REASON.get(reason, _other_rule)(case, node)


def _root(case: Case, node: int) -> Why:
    more = "Every candidate hangs below it. The target reads it and all of them in one forward pass."
    if len(case.drafted.tokens) == 1:
        more = "No candidate was drafted this round, so this forward pass gives one token, as in plain decoding."
    return Why("root", "The last token of the text so far: written, but not yet read by the target.", (more,))


def _cut(case: Case, node: int) -> Why:
    return Why("cut", "Accepted by the rule, but not written: the text ended before it.", ("An end token or the token limit came first on the accepted path.",))


def _untested(case: Case, node: int) -> Why:
    winner = next((n for n in case.children(case.drafted.parents[node]) if case.verified.verdicts[n] == "accepted"), None)
    if winner is None:
        return Why("untested", f"Never tested: rule {case.rule_name} stopped before it.")
    more = "Siblings are tested in draft order, and only one of them can follow the same token."
    return Why("untested", f"Never tested: its sibling {case.node(winner)} was accepted first.", (more,))


def _unreached(case: Case, node: int) -> Why:
    top = case.drafted.parents[node]
    while top > 0 and case.verdict(top) == "unreached":
        top = case.drafted.parents[top]
    fate = {"rejected": "was rejected", "untested": "was never tested", "passed_not_chosen": "was not chosen", "cut": "came after the end of the text"}
    fell = fate.get(case.verdict(top), "was not accepted")
    more = ["The target computed its probability all the same, in the same forward pass."]
    parent = case.drafted.parents[node]
    if case.follows_choice and case.verified.wanted[parent] == case.drafted.tokens[node]:
        more.append("Had the text come this far, it would have been accepted: it is the token that the target wanted here.")
    if case.verdict(top) in ("root", "accepted"):
        return Why("unreached", f"Never reached: rule {case.rule_name} did not come to it.", tuple(more))
    return Why("unreached", f"Never reached: {case.node(top)} above it {fell}, so nothing below that can be used.", tuple(more))


def _passenger(case: Case, node: int) -> Why:
    return Why("passenger", "Passenger: computed in the same forward pass, but not a candidate.", ("The drafter uses its result for later rounds.",))


def _argmax(case: Case, node: int) -> Why:
    more = ["At temperature 0 the target always writes its most likely token, so this is what plain decoding would have written."]
    if case.drafted.ranks[node]:
        more.append(f"The draft had it only as candidate {case.drafted.ranks[node] + 1}: a tree can be right where a single guess is wrong.")
    return Why("accepted", f"Accepted: it is the target's most likely token after {_parent(case, node)} ({is_worth('p', case.verified.p[node])}).", tuple(more))


def _not_argmax(case: Case, node: int) -> Why:
    wanted = case.wanted(case.drafted.parents[node])
    more = "At temperature 0 only the most likely token may be written, however close the next one is."
    return Why("rejected", f"Rejected: the target wanted {wanted}; this token had {_own(case, node, case.verified.p[node])}.", (more,))


def _drawn(case: Case, node: int) -> Why:
    test = case.tests[node]
    u = "" if test["uniform"] is None else f" (u = {probability(test['uniform'])})"
    more = ["The draw uses the target's own distribution, so the text is the one that plain sampling with this seed would give."]
    if test["residual_p"] is not None and probability(test["residual_p"]) != probability(test["p"]):
        more.append(f"Seen one by one: with its rejected siblings ruled out, its chance was {probability(test['residual_p'])}.")
    return Why("accepted", f"Accepted: the target drew exactly this token{u}; it had {is_worth('p', test['p'])}.", tuple(more))


def _not_drawn(case: Case, node: int) -> Why:
    test, parent = case.tests[node], case.drafted.parents[node]
    more = []
    if case.verified.target_rank[node] == 0:
        more.append("It is the most likely token, but above temperature 0 the most likely token is not always drawn.")
    more.append("The token was drawn from the target's distribution; a candidate is accepted only if it is that token.")
    return Why("rejected", f"Rejected: the target drew {case.wanted(parent)}; this token had {_own(case, node, test['p'])}.", tuple(more))


def _ratio(test: Mapping[str, Any]) -> str:
    """ "min(1, p/q) = 0.55/0.60 = 0.92", with the residuals that stood at that moment."""
    p, q = test["residual_p"], 1.0 if test["residual_q"] is None else test["residual_q"]
    return f"min(1, p/q) = min(1, {probability(p)}/{probability(q)})"


def _residuals(case: Case, node: int) -> list[str]:
    test, more = case.tests[node], []
    if test["q"] is None:
        more.append("The draft proposed it with certainty, so q = 1 and its chance is p itself.")
    before = [n for n in case.children(case.drafted.parents[node])[: case.drafted.ranks[node]] if n in case.tests]
    pairs = [(name, probability(test[name]), probability(test[f"residual_{name}"])) for name in ("p", "q") if test[name] is not None]
    changes = [f"{name} from {full} to {left}" for name, full, left in pairs if full != left]
    if before and changes:
        more.append(f"{len(before)} sibling{'s' * (len(before) > 1)} rejected before it changed what is left: {', '.join(changes)}.")
    return more


def _below_limit(case: Case, node: int) -> Why:
    test = case.tests[node]
    u, limit = apart(test["uniform"], test["limit"])
    more = _residuals(case, node)
    if test["limit"] >= 1.0:
        more.insert(0, "The target gives it at least as much as the draft did, so it could not be rejected.")
    return Why("accepted", f"Accepted: the draw u = {u} fell below {_ratio(test)} = {limit}.", tuple(more))


def _above_limit(case: Case, node: int) -> Why:
    test = case.tests[node]
    u, limit = apart(test["uniform"], test["limit"])
    after = "What p has over q is renormalised and serves for the next sibling, or for the token that the target adds."
    more = [*_residuals(case, node), after if test["q"] is not None else "Its probability is taken out of p, and the rest renormalised for what comes next."]
    return Why("rejected", f"Rejected: the draw u = {u} was not below {_ratio(test)} = {limit}.", tuple(more))


def _typical(case: Case, node: int) -> Why:
    p, limit = apart(case.tests[node]["p"], case.tests[node]["limit"])
    more = "The limit is min(epsilon, delta · exp(−H)): the less sure the target is, the lower. Nothing is drawn, so this rule changes the distribution of the text."
    return Why("accepted", f"Accepted: its p = {p} is above the limit {limit}, and no other path is better.", (more,))


def _below_typical_limit(case: Case, node: int) -> Why:
    p, limit = apart(case.tests[node]["p"], case.tests[node]["limit"])
    more = "The limit is min(epsilon, delta · exp(−H)): the surer the target is, the more it asks for."
    return Why("rejected", f"Rejected: its p = {p} is not above the limit {limit}.", (more,))


def _longer_path_won(case: Case, node: int) -> Why:
    p, limit = apart(case.tests[node]["p"], case.tests[node]["limit"])
    more = "Only one path can be written: the longest one, and among equals the one with the largest summed log p."
    return Why("passed_not_chosen", f"Passed, but not chosen: its p = {p} is above the limit {limit}, yet another path is longer or likelier.", (more,))


def _other_rule(case: Case, node: int) -> Why:
    test, verdict = case.tests.get(node, {}), case.verdict(node)
    numbers = [is_worth(name, test[key]) for key, name in (("p", "p"), ("q", "q"), ("limit", "limit"), ("uniform", "u")) if test.get(key) is not None]
    reason = str(test.get("reason") or "no reason recorded").replace("_", " ")
    return Why(verdict, f"{VERDICTS.get(verdict, verdict)} by rule {case.rule_name}: {reason}.", (f"It read {', '.join(numbers)}.",) if numbers else ())


def _parent(case: Case, node: int) -> str:
    return case.node(case.drafted.parents[node])


def _own(case: Case, node: int, p: float | None) -> str:
    rank = case.verified.target_rank[node]
    only = "only " if rank else ""
    return is_worth("p", p) + (f" and is {only}the target's {choice(rank)}" if rank is not None else "")


_BY_VERDICT = {"root": _root, "cut": _cut, "untested": _untested, "unreached": _unreached, "passenger": _passenger}
_BY_REASON = {
    "argmax": _argmax, "not_argmax": _not_argmax, "drawn": _drawn, "not_drawn": _not_drawn, "below_limit": _below_limit, "above_limit": _above_limit,
    "typical": _typical, "below_typical_limit": _below_typical_limit, "longer_path_won": _longer_path_won,
}  # fmt: skip


def why_bonus(case: Case) -> Why:
    """Returns why the round's last token is what it is, and whether the draft had thought of it."""
    token, end, accepted = case.verified.bonus, case.end, len(case.verified.path)
    after = case.node(end)
    raw = case.raw(end, token)
    p = f" (p{' before temperature' if case.warps and not case.greedy else ''} = {probability(raw)})" if raw is not None else ""
    if case.verified.bonus_source == "residual":
        headline = f"Bonus: drawn from what the rejected candidates left of the target's distribution after {after}{p}."
        more = ["That is max(0, p − q), renormalised. It keeps the text distributed as without drafting."]
    else:
        argmax = case.greedy or case.rule.get("knobs", {}).get("bonus") == "argmax"
        how = "the target's most likely token" if argmax else "the target's own draw"
        headline = f"Bonus: {how} after {after}{p}."
        more = ["It costs no extra pass: the forward that checked the candidates gives it."]
    if len(case.drafted.tokens) == 1:
        return Why("plain", headline.replace("Bonus", "Plain"), ("No candidate was drafted this round: one forward pass, one token, as in plain decoding.",))
    if not accepted:
        more.append("No candidate was accepted, so the round gains this token alone.")
    return Why("bonus", headline, (*more, *_thought_of(case, end, token)))


def _thought_of(case: Case, end: int, token: int | None) -> list[str]:
    top = [t for t, _ in case.drafted.tops.get(str(end), ())]
    if any(t == token and parent == end for t, parent, _ in case.drafted.pruned):
        return ["It was drafted, but cut before verification: the tree had no room for it."]
    if token in top:
        return [f"The draft had it as its {ordinal(top.index(token) + 1)} choice here, but the tree held no node for it."]
    return [f"It is not among the draft's {len(top)} first choices here."] if top else []


def why_pruned(case: Case, place: int) -> Why:
    """Returns why a drafted candidate never reached the target; `place` indexes `Drafted.pruned`."""
    token, parent, _ = case.drafted.pruned[place]
    headline = "Cut before verification: its path score was not among the best that the tree had room for."
    if parent < 0 or not case.follows_choice or case.verified.wanted[parent] != token:
        return Why("pruned", headline, ("The target never saw it.",))
    gain = ", so a larger tree would have gained it" if parent == case.end else ", but that place was never reached"
    return Why("pruned", headline, (f"It is what the target wanted there{gain}.",))


def why_first(first: Prefilled, strings: Mapping[int, str]) -> Why:
    """Returns why the first token belongs to no round."""
    p = next((p for token, p in first.top if token == first.token), None)
    headline = "Plain: the first token comes from reading the prompt" + (f" (p = {probability(p)})." if p is not None else ".")
    return Why("plain", headline, ("It belongs to no round and is not counted in tau.",))


def summary_of(case: Case) -> str:
    """Returns the round in one line, for screen readers and titles."""
    texts = [case.text(token) for token in case.verified.emitted]
    drafted, accepted = sum(map(bool, case.drafted.candidate[1:])), len(case.verified.path)
    return f"Round {case.verified.round + 1}: {drafted} drafted, {accepted} accepted, {len(texts)} gained: {' '.join(texts)}."
