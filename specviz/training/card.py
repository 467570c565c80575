"""The model card of a head: its report as README.md. Every number is read or measured, none is typed in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specviz.analysis.head_report import NAME, Greedy, HeadReport, LearningPoint, load_report
from specviz.analysis.words import percents
from specviz.checks import is_number
from specviz.drafters.head_file import CONFIG, WEIGHTS
from specviz.errors import BadFile
from specviz.training.replay import Replayed

CARD = "README.md"
NOT_MEASURED = "Not measured.\n"
DEFINITIONS = (
    "τ is tokens per target forward: the bonus token is counted, the prefill and its token are not. Acceptance at a depth is the share of rounds that "
    "accepted a candidate there, of those that accepted down to its parent and had a candidate below. `nodes` counts the root.\n"
)


@dataclass(frozen=True)
class HeldOut:
    """The head in a folder, measured with one spec on the greedy answers that its fit held out."""

    head: Path
    spec: str
    found: Replayed


def write_card(head: Path, out: Path | None = None, *, held_out: HeldOut | None = None, measured: Sequence[str] = ()) -> Path:
    """Writes README.md for the head in folder `head` into `out` (default: beside the head), from its config and the report in `out`.

    `measured` are lines about runs made elsewhere, for example of `bench`.
    """
    out = out or head
    config = json.loads((head / CONFIG).read_text(encoding="utf-8"))
    report = load_report(out) if (out / NAME).exists() else None
    parts = [_head(config, head, report.target.name if report else head.parent.name), _data(config)]
    parts += [] if held_out is None else [_held_out(held_out)]
    parts += [_measured(report)] if report else []
    parts += [f"{line}\n" for line in measured]
    parts += [_training(config, report)]
    (out / CARD).write_text("\n".join(parts), encoding="utf-8")
    return out / CARD


def save_report(report: HeadReport, out: Path) -> Path:
    """Writes report.json, whole or not at all."""
    out.mkdir(parents=True, exist_ok=True)
    scratch = out / f"{NAME}.part"
    scratch.write_text(json.dumps(report.to_json(), indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    return scratch.replace(out / NAME)


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def shares(found: Sequence[float | None]) -> str:
    """Returns acceptance per depth in whole percent: 65, 57, 58 %."""
    return f"{percents(found, ', ')} %" if found else "-"


def _head(config: Mapping[str, Any], head: Path, target: str) -> str:
    return f"""# {config["method"]} head for {target}

A draft head, not a language model: it needs its target, whose LM-head rows it shares. {(head / WEIGHTS).stat().st_size / 1e6:.1f} MB in fp16, draft vocabulary
of {config["sizes"]["draft_vocab"]} tokens. Target fingerprint: `{config["target"]["weights"]}`.
"""


def _data(config: Mapping[str, Any]) -> str:
    training = config["training"]
    tokens = f", {training['answer_tokens'] / 1e6:.2f} M answer tokens" if training.get("answer_tokens") else ""
    return f"""## Data
Answers that the target wrote itself, greedily and sampled (data hash `{training.get("data", "unknown")}`{tokens}).
{training.get("held_out", 0.0):.0%} of the prompts were held out.
"""


def _held_out(one: HeldOut) -> str:
    depths = table(("depth", "acceptance, given that the parent was accepted"), ((d, f"{share:.3f}") for d, share in enumerate(one.found.acceptance, 1)))
    tau = f"**tau {one.found.tau:.3f}** tokens per target forward, over {one.found.rounds} rounds"
    return f"## Measured on held-out answers\nText of the training's own kind, `{one.spec}`, temperature 0: {tau}.\n\n{depths}"


def _measured(report: HeadReport) -> str:
    text = report.text
    where = f"{text.prompts} prompts of `{text.name}`, {text.tokens} new tokens, at most {text.max_new_tokens} per prompt"
    stale = f", target `{report.target.name}` ({report.target.weights})"
    parts = [f"## Measured\n{where}{stale}, {report.made}. The report took {report.seconds:.0f} s.\n\n{DEFINITIONS}", _greedy(report), _categories(report.main)]
    parts += [_checked(report), _sampled(report), _misses(report), _calibration(report), _curves(report)]
    parts += [_evaluation(report)] if report.evaluation is not None else []
    return "\n".join(parts)


def _greedy(report: HeadReport) -> str:
    rows = [(f"`{one.spec}`", one.nodes, f"{one.tau:.3f}", shares(one.conditional)) for one in report.greedy]
    return f"### Temperature 0\nOff line, along the target's recorded greedy text.\n\n{table(('spec', 'nodes', 'τ', 'acceptance per depth'), rows)}"


def _categories(main: Greedy | None) -> str:
    if main is None or not main.categories:
        return f"### Kinds of prompts\n{NOT_MEASURED}"
    return f"### Kinds of prompts\n`{main.spec}`\n\n{table(('kind', 'τ'), ((kind, f'{tau:.3f}') for kind, tau in main.categories.items()))}"


def _checked(report: HeadReport) -> str:
    found = report.checked
    if found is None:
        return f"### Checked by decoding\n{NOT_MEASURED}"
    off = abs(found.off_line - found.decoded) / max(found.decoded, 1e-9)
    return (
        f"### Checked by decoding\n`{found.spec}` on {found.prompts} prompts: τ {found.decoded:.3f} decoded, {found.off_line:.3f} off line ({off:.2%} apart).\n"
    )


def _sampled(report: HeadReport) -> str:
    if not report.sampled:
        return f"### Above temperature 0\n{NOT_MEASURED}"
    rows = [(f"{one.temperature:g}", f"`{one.spec}`", one.prompts, f"{one.tau:.3f}", shares(one.conditional)) for one in report.sampled]
    return f"### Above temperature 0\nReal decoding.\n\n{table(('temperature', 'spec', 'prompts', 'τ', 'acceptance per depth'), rows)}"


def _misses(report: HeadReport) -> str:
    tokens, outside = report.misses.tokens, report.misses.outside
    return f"### Draft vocabulary\n{outside} of {tokens} tokens of the text ({outside / max(1, tokens):.2%}) lie outside the draft vocabulary: there a draft can only miss.\n"


def _calibration(report: HeadReport) -> str:
    if not report.calibration:
        return f"### Confidence\n{NOT_MEASURED}"
    rows = [(f"{one.low:.1f} to {one.high:.1f}", one.count, f"{one.confidence:.3f}", f"{one.accepted:.3f}") for one in report.calibration]
    return f"### Confidence\nCandidates whose parent was accepted.\n\n{table(('draft confidence q', 'candidates', 'mean q', 'accepted'), rows)}"


def _curves(report: HeadReport) -> str:
    rows = [(f"{one.tokens:,}", f"{one.tau:.3f}", _way(one)) for one in _few(report.learning_curve)]
    if not rows:
        return f"### Learning curve\n{NOT_MEASURED}"
    return f"### Learning curve\nChain τ on held-out answers.\n\n{table(('answer tokens', 'τ', 'measured by'), rows)}"


def _way(one: LearningPoint) -> str:
    if one.kind != "data":
        return "on the way"
    return "a fit of its own" + (f", {one.epochs:g} epochs" if one.epochs else "")


def _few(found: Sequence[Any], most: int = 12) -> list[Any]:
    """Returns the fits of their own, and of the points on the way a dozen at most, the last among them; report.json has them all."""
    own, way = [one for one in found if one.kind == "data"], [one for one in found if one.kind != "data"]
    step = -(-len(way) // most) or 1
    return own + way[::-1][::step][::-1]


def _evaluation(report: HeadReport) -> str:
    assert report.evaluation is not None
    main = report.main
    rows: list[tuple[str, object]] = [] if main is None else [(f"τ of `{main.spec}`", f"{main.tau:.3f}")]
    return f"### Evaluation of this target\n{table(('result', 'value'), [*rows, *report.evaluation.items()])}"


def _training(config: Mapping[str, Any], report: HeadReport | None) -> str:
    loss = (
        f"Loss {report.loss[0].value:.3f} at step {report.loss[0].step}, {report.loss[-1].value:.3f} at step {report.loss[-1].step}.\n\n"
        if report and report.loss
        else ""
    )
    return f"## Training\n{loss}{table(('setting', 'value'), config['training'].items())}"


def read_evaluation(path: Path) -> dict[str, float]:
    """Returns evaluation results: a JSON file with one object of names and numbers. Raises BadFile naming what does not fit."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise BadFile(f"The evaluation results in {path} cannot be read ({problem}). Expected a JSON object of names and numbers.") from problem
    if not isinstance(found, dict) or not found:
        raise BadFile(f'{path} is no JSON object of names and numbers, for example {{"mmlu": 0.31}}.')
    odd = next((name for name, value in found.items() if not is_number(value)), None)
    if odd is not None:
        raise BadFile(f"{path}: {odd!r} is {str(found[odd])[:60]!r}, expected a number.")
    return {str(name): float(value) for name, value in found.items()}
