"""Turns what happened in a round into events. The loop decides nothing about their content."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any, TypeVar

import torch

from specviz import __version__
from specviz.acceptance.base import Verdict, is_lossless, verdict_column
from specviz.drafters.base import Drafter
from specviz.events import Drafted, Prefilled, Started, Verified, named_ids
from specviz.evidence import Columns, Evidence
from specviz.processor import processor_name
from specviz.registry import Bound
from specviz.sampling import Sampling
from specviz.strings import Strings
from specviz.target import Target
from specviz.tree import TokenTree

TOP = 5  # tokens kept of each distribution
_TEST_COLUMNS = ("node", "verdict", "reason", "p", "q", "residual_p", "residual_q", "limit", "uniform")
Named = TypeVar("Named", Started, Prefilled, Drafted, Verified)
_NO_COLUMNS = Columns((), (), (), (), (), {})


def describe_run(target: Target, drafter: Drafter, rule: Bound, sampling: Sampling) -> dict[str, Any]:
    """Returns the meta record of a run: who drafted and verified, with which knobs, on what machine and versions."""
    return {
        "drafter": {"name": drafter.name, **drafter.spec, **drafter.describe()},
        "rule": {**rule.to_json(), "lossless": is_lossless(rule)},
        "sampling": sampling.to_json(),
        "seed": sampling.seed,
        **describe_setting(target),
    }


def describe_setting(target: Target) -> dict[str, Any]:
    """Returns what decides the cost of a forward: target, device, dtype and versions."""
    import transformers

    device = {"type": target.device.type, "name": device_name(target.device), "threads": torch.get_num_threads(), "processor": processor_name()}
    device["graphs"] = target.graphs.mode
    return {
        "target": {
            "name": target.name,
            "fingerprint": target.fingerprint.to_json(),
            "layers": target.layers,
            "vocab_size": target.vocab_size,
            "notes": list(target.notes),
        },
        "device": device,
        "dtype": str(target.dtype).removeprefix("torch."),
        "versions": {"specviz": __version__, "torch": str(torch.__version__), "transformers": transformers.__version__, "python": platform.python_version()},
    }


def device_name(device: torch.device) -> str:
    """Returns a name that a person recognises: the GPU's, or the number of CPU threads."""
    threads = torch.get_num_threads()
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {threads} thread{'' if threads == 1 else 's'}"


class Recorder:
    """Builds the events of one run. With `detail` False only paths, tokens and seconds are kept (for baselines and timing)."""

    def __init__(self, target: Target, detail: bool = True) -> None:
        self.strings, self.detail = Strings(target.tokenizer), detail

    def started(self, row: int, prompt: str, ids: tuple[int, ...], max_new_tokens: int, meta: Mapping[str, Any]) -> Started:
        return self._with_texts(Started(row, prompt, ids, max_new_tokens, meta))

    def prefilled(self, row: int, token: int, evidence: Evidence) -> Prefilled:
        top = evidence.columns(also=[0], top=TOP).tops[0] if self.detail else ()
        return self._with_texts(Prefilled(row, token, top, {}))

    def drafted(self, row: int, number: int, tree: TokenTree, source: str, seconds: Mapping[str, float]) -> Drafted:
        size = len(tree)
        q: list[float | None] = [None] * size
        for group in tree.draws:
            for child in group.children:
                q[child] = float(group.q[tree.tokens[child]])
        tops = {str(top.node): tuple(zip(top.tokens, (round(v, 6) for v in top.q), strict=True)) for top in tree.tops}
        event = Drafted(
            row, number, tree.tokens, tree.parents, tree.depths, tree.ranks, tree.scores or (None,) * size, tuple(q),
            tree.source or (source,) * size, tree.candidate or (True,) * size,
            tuple({"parent": d.parent, "children": d.children, "replace": d.replace} for d in tree.draws),
            tops, tuple((p.token, p.parent, round(p.score, 8)) for p in tree.pruned), dict(tree.note), seconds,
        )  # fmt: skip
        return self._with_texts(event)

    def verified(self, row: int, number: int, tree: TokenTree, evidence: Evidence, verdict: Verdict, emitted: list[int], committed: int) -> Verified:
        """Returns the event without its seconds, which are known only once it is built (recording is charged too)."""
        whole = len(emitted) == len(verdict.path) + 1
        path = verdict.path[: len(emitted)]
        columns, tests = _NO_COLUMNS, dict[str, tuple[Any, ...]]()
        verdicts: tuple[str, ...] = ()
        if self.detail:
            columns = evidence.columns(also=[verdict.path[-1] if verdict.path else 0], top=TOP)
            tests = {name: tuple(getattr(test, name) for test in verdict.tests) for name in _TEST_COLUMNS}
            verdicts = verdict_column(tree, verdict)
        event = Verified(
            row, number, path, verdict.next_token if whole else None, verdict.next_source, tuple(emitted), committed, verdicts, tests,
            columns.p, columns.p_warped, columns.target_rank, columns.entropy, columns.wanted,
            {str(node): top for node, top in columns.tops.items()}, {},
        )  # fmt: skip
        return self._with_texts(event)

    def _with_texts(self, event: Named) -> Named:
        """Fills the event's own table, which nobody has seen yet: a copy of a record of twenty fields is not free in a round of 25 ms."""
        strings: dict[str, str] = vars(event)["strings"]
        strings.update(self.strings.new(named_ids(event)))
        return event
