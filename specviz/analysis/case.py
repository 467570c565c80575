"""One judged round with everything that explains it, and what an explanation is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from specviz.analysis.words import probability, quoted
from specviz.errors import BadFile
from specviz.events import Drafted, Verified

VERDICTS = {
    "root": "Last token", "accepted": "Accepted", "rejected": "Rejected", "untested": "Never tested", "unreached": "Never reached",
    "passed_not_chosen": "Passed, not chosen", "passenger": "Passenger", "cut": "Accepted, not written", "bonus": "Bonus", "plain": "Plain",
    "pruned": "Cut before verification",
}  # fmt: skip


@dataclass(frozen=True)
class Why:
    """What happened to a token: the verdict (a key of VERDICTS), the reason in one sentence, and what else is worth saying."""

    verdict: str
    headline: str
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """A round, the string table, and `sampling` and `rule` of the run's meta record."""

    drafted: Drafted
    verified: Verified
    strings: Mapping[int, str]
    sampling: Mapping[str, Any]
    rule: Mapping[str, Any]

    @property
    def greedy(self) -> bool:
        return not self.sampling.get("temperature")

    @property
    def rule_name(self) -> str:
        return str(self.rule.get("name", "?"))

    @property
    def warps(self) -> bool:
        """True when the distribution that the rule reads is not the model's own."""
        return self.sampling.get("temperature") != 1.0 or self.sampling.get("top_p", 1.0) != 1.0 or bool(self.sampling.get("top_k"))

    @property
    def follows_choice(self) -> bool:
        """True when a candidate is accepted exactly if it is the target's own token (see acceptance.base.follow_choice)."""
        return bool(self.verified.wanted) and (self.greedy or any(reason in ("drawn", "not_drawn") for reason in self.verified.tests.get("reason", ())))

    @cached_property
    def tests(self) -> dict[int, dict[str, Any]]:
        """What the rule recorded, by node."""
        columns = self.verified.tests
        return {node: {name: column[place] for name, column in columns.items()} for place, node in enumerate(columns.get("node", ()))}

    @property
    def end(self) -> int:
        """The node that the next token follows."""
        return self.verified.path[-1] if self.verified.path else 0

    def text(self, token: int | None) -> str:
        return "a token that was not recorded" if token is None else quoted(self.strings.get(token, f"⟨{token}⟩"))

    def node(self, node: int) -> str:
        return self.text(self.drafted.tokens[node])

    def children(self, parent: int) -> list[int]:
        return [node for node, above in enumerate(self.drafted.parents) if above == parent and node and self.drafted.candidate[node]]

    def verdict(self, node: int) -> str:
        """The recorded verdict; "cut" for a node that the rule accepted, but that the end of the text left out."""
        verdict = self.verified.verdicts[node]
        if verdict not in VERDICTS:
            raise BadFile(f"Round {self.verified.round}: the verdict {verdict!r} of node {node} is unknown. Expected one of: {', '.join(VERDICTS)}.")
        return "cut" if verdict == "accepted" and node not in self.verified.path else verdict

    def raw(self, parent: int, token: int | None) -> float | None:
        """The target's own probability of a token after `parent`, None when it is not among those recorded."""
        return next((p for other, p in self.verified.tops.get(str(parent), ()) if other == token), None)

    def wanted(self, parent: int) -> str:
        """The target's own token after `parent`, with its probability where that is recorded."""
        token = self.verified.wanted[parent]
        raw = self.raw(parent, token)
        for child in self.children(parent):
            warped = self.verified.p_warped[child]
            if self.drafted.tokens[child] == token and not self.greedy and warped is not None:
                return f"{self.text(token)} (p = {probability(warped)})"
        name = "p" if self.greedy or not self.warps else "p before temperature"
        return self.text(token) + (f" ({name} = {probability(raw)})" if raw is not None else "")
