"""The release gate: what a new report of a head reaches less of than an old one, on the same prompts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from specviz.analysis.head_report import Greedy, HeadReport
from specviz.errors import BadInput

FEWEST = 30  # rounds that a depth must have been tested in, in both reports, before its share says anything


@dataclass(frozen=True)
class Change:
    """One number in both reports: what it is ("tau of ...", "depth 2", "category coding"), before and after."""

    what: str
    old: float
    new: float

    @property
    def drop(self) -> float:
        """The share of the old number that is lost; negative for a gain."""
        return (self.old - self.new) / self.old if self.old else 0.0


@dataclass(frozen=True)
class Comparison:
    """All numbers that two reports have in common, what only the old one has, and what neither says enough about, in words.

    What is `missing` may have fallen out of sight, so a gate must not pass on it; what is `left_out` was no number before either.
    """

    changes: tuple[Change, ...]
    missing: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def fallen(self, max_drop: float) -> tuple[Change, ...]:
        """Returns what fell by more than the share, worst first."""
        found = [one for one in self.changes if one.drop > max_drop + 1e-9]  # a fall of exactly the share is allowed
        return tuple(sorted(found, key=lambda one: -one.drop))


def compare_reports(old: HeadReport, new: HeadReport) -> Comparison:
    """Compares tau of every shape and temperature, and the main tree's depths and kinds of prompts.

    Raises BadInput when the reports cannot be compared: another method, other prompts, or no spec in common.
    """
    if old.method != new.method:
        raise BadInput(f"The old report is of a {old.method!r} head, the new one of a {new.method!r} head. Compare reports of one method.")
    if (old.text.hash, old.text.max_new_tokens) != (new.text.hash, new.text.max_new_tokens):
        raise BadInput(
            f"The reports speak of different text: {_text(old)}, and {_text(new)}. Make the new one with the same prompts, template and --max-new-tokens."
        )
    pairs = [(one, other) for one in old.greedy for other in new.greedy if one.spec == other.spec]
    if not pairs:
        raise BadInput("The reports have no spec in common, so there is nothing to compare. Make the new one with the same shapes and sizes.")
    changes = [Change(f"tau of {one.spec}", one.tau, other.tau) for one, other in pairs]
    heats = [
        (one, other)
        for one in old.sampled
        for other in new.sampled
        if (one.spec, one.temperature, one.prompts) == (other.spec, other.temperature, other.prompts)
    ]
    changes += [Change(f"tau of {one.spec} at temperature {one.temperature:g}", one.tau, other.tau) for one, other in heats]
    wanted = old.main.spec if old.main else ""
    main = next((pair for pair in pairs if pair[0].spec == wanted), pairs[0])
    lost = [f"{one.spec} is not in the new report" for one in old.greedy if one.spec not in {pair[0].spec for pair in pairs}]
    told = {(one.spec, one.temperature, one.prompts) for one, _ in heats}
    lost += [
        f"{one.spec} at temperature {one.temperature:g} on {one.prompts} prompts is not in the new report"
        for one in old.sampled
        if (one.spec, one.temperature, one.prompts) not in told
    ]
    lost += [f"category {kind} has no round in the new report" for kind in sorted(main[0].categories.keys() - main[1].categories.keys())]
    depths = _tested(*main)
    lost += [f"depth {one.depth} was tested in fewer than {FEWEST} rounds of the new report" for one in depths if one.before and not one.after]
    few = [f"depth {one.depth} was tested in fewer than {FEWEST} rounds" for one in depths if not one.before]
    return Comparison((*changes, *_depths(*main), *_categories(*main)), tuple(lost), tuple(few))


def _text(report: HeadReport) -> str:
    return f"{report.text.prompts} prompts of {report.text.name} with up to {report.text.max_new_tokens} tokens"


@dataclass(frozen=True)
class _Tested:
    """A depth that the old report reached, and whether it was tested often enough there and in the new one."""

    depth: int
    before: bool
    after: bool


def _tested(old: Greedy, new: Greedy) -> list[_Tested]:
    later = (*new.reached, *(0 for _ in old.reached))
    return [_Tested(depth, reached >= FEWEST, later[depth - 1] >= FEWEST) for depth, reached in enumerate(old.reached, 1)]


def _depths(old: Greedy, new: Greedy) -> Iterator[Change]:
    for one in _tested(old, new):
        if one.before and one.after:
            before, after = old.conditional[one.depth - 1], new.conditional[one.depth - 1]
            if before is not None and after is not None:
                yield Change(f"depth {one.depth} of {old.spec}", before, after)


def _categories(old: Greedy, new: Greedy) -> Iterator[Change]:
    for kind, tau in old.categories.items():
        if kind in new.categories:
            yield Change(f"category {kind} of {old.spec}", tau, new.categories[kind])
