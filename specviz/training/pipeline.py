"""From a checkpoint to heads with reports: distil, features, train, report; every step runs only what is missing."""

from __future__ import annotations

import hashlib
import json
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specviz.analysis.head_report import HeadReport, load_report
from specviz.build import Spec
from specviz.drafters.head_file import CONFIG, WEIGHTS, hash_weights, load_head
from specviz.errors import BadFile, BadInput, Missing
from specviz.prompts import read_prompts
from specviz.say import Say
from specviz.sources import hash_folder, locate, models_dir
from specviz.training import methods as package
from specviz.training.card import save_report, write_card
from specviz.training.curves import MARK
from specviz.training.data import held_out, read_records
from specviz.training.distil import Writing, distil
from specviz.training.features import Capture, capture, default_taps, open_captures
from specviz.training.fit import Plan, fit, fit_settings
from specviz.training.fixed_text import OTHER, FixedText, Question, fixed_text, read_questions
from specviz.training.method_knobs import check_knobs
from specviz.training.probe import forward_speed, in_words, writing_seconds
from specviz.training.report import Measures, head_report
from specviz.training.state import check_settings, read_progress

if TYPE_CHECKING:
    from specviz.target import Target

SHARDS = 16  # of the features
OWN_PROMPTS = 80  # held-out prompts to report on when no others are given


@dataclass(frozen=True)
class Order:
    """What heads are wanted and from what; the target's own files lie in `folder`, `name` is what it is called.

    `data` are records that were distilled before and take the place of `prompts` and `own`. `out` holds a folder per method.
    """

    name: str
    folder: Path
    prompts: tuple[Path, ...] = ()
    own: int = 0
    data: tuple[Path, ...] = ()
    methods: tuple[str, ...] = ()
    plan: Plan = field(default_factory=Plan)
    knobs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # {method: {knob: value}}
    writing: Writing = field(default_factory=Writing)
    shares: tuple[float, ...] = ()  # of the data, for a learning curve: a fit of its own each
    report_prompts: Path | None = None
    max_new_tokens: int = 128
    measures: Measures = field(default_factory=Measures)
    evaluation: Mapping[str, float] | None = None
    out: Path | None = None
    work: Path = Path("runs/all")

    @property
    def heads(self) -> Path:
        return self.out or models_dir() / self.name


def find_methods() -> tuple[str, ...]:
    """Returns the names of all methods that can be trained: the files of specviz/training/methods."""
    names = (info.name for info in pkgutil.iter_modules(package.__path__))
    return tuple(sorted(name for name in names if name != "base" and not name.startswith("_")))


def check_methods(names: Sequence[str]) -> None:
    """Raises BadInput for a method that cannot be trained, naming those that can."""
    known = find_methods()
    if unknown := [name for name in names if name not in known]:
        raise BadInput(f"No training for {unknown[0]!r}. There are: {', '.join(known)}.")


def train_all(order: Order, load: Callable[[], Target], say: Say = print) -> list[HeadReport]:
    """Runs every step that is missing and returns one report a method; `load` loads the target when a step needs it.

    Raises BadInput for wrong methods or too few prompts, Missing or BadFile for files that cannot be used.
    """
    check_methods((*order.methods, *order.knobs))
    for method, knobs in order.knobs.items():
        check_knobs(method, knobs)
    if order.own < 0:
        raise BadInput(f"own={order.own} prompts cannot be written. Expected a whole number from 0.")
    if order.report_prompts is not None:
        read_prompts(order.report_prompts)  # a file that is not there is said before the training, not after it
    weights = hash_folder(order.folder)
    if weights is None:
        raise Missing(f"{order.folder} holds no safetensors files, so heads could not be tied to it. Save the model with save_pretrained.")
    place = order.work / f"{order.name}-{weights}"
    records = _distilled(order, place, load, say)
    features = _captured(order, place, records, load, say)
    heads = [_trained(order, method, features, place, say) for method in order.methods or find_methods()]
    return _reported(order, heads, features, place, load, say)


def _distilled(order: Order, place: Path, load: Callable[[], Target], say: Say) -> list[Path]:
    """Step 1: the target's answers, kept in a folder named by prompts and settings."""
    if order.data:
        say(f"distil: skipped, records are given ({len(order.data)} files)")
        return list(order.data)
    count = sum(len(read_prompts(path)) for path in order.prompts) + order.own
    if not count:
        raise BadInput("There is nothing to train on: give --prompts, a number of --own prompts, or --data with distilled records.")
    settings = [[hashlib.sha256(path.read_bytes()).hexdigest() for path in order.prompts], order.own, asdict(order.writing)]
    folder, needed = place / f"distil-{_key(settings)}", -(-count // order.writing.per_shard)
    here = sorted(folder.glob("*.jsonl"))
    if len(here) == needed:
        say(f"distil: skipped, all {needed} files are in {folder}")
        return here
    target = load()
    left = min(count, (needed - len(here)) * order.writing.per_shard)
    spent = writing_seconds(target, order.writing, left)
    say(f"distil: {needed - len(here)} of {needed} files to write, {left} answers; at most about {in_words(spent)} (estimated from a short probe)")
    return distil(target, list(order.prompts), folder, own=order.own, writing=order.writing, say=say)


def _captured(order: Order, place: Path, shards: Sequence[Path], load: Callable[[], Target], say: Say) -> Capture:
    """Step 2: the hidden states of those answers; the size is said before anything is written."""
    records = read_records(shards)
    if not any(held_out(record, order.plan.held_out) for record in records):
        raise BadInput(
            f"None of the {len(records)} records falls into the held-out {order.plan.held_out:.0%}: too few prompts. Give more, or --plan held_out=0.2."
        )
    count, out = min(SHARDS, len(records)), place / "features"
    done = sorted(out.glob("*/[0-9]*.json"))
    if len(done) < count:
        target, tokens = load(), sum(len(record.ids) for record in records)
        size = tokens * len(default_taps(target.layers)) * target.hidden_size * 2 / 1e9
        spent = tokens / forward_speed(target, [token for record in records[:64] for token in record.ids])
        say(f"features: {size:.2f} GB to write; about {in_words(spent)} (estimated from a forward of a few hundred tokens)")
        del target  # the capture loads the decoder by itself
    found = capture(shards, out, target=str(order.folder), shards=count, say=lambda text: say(f"features: {text}"))
    if len(done) >= count:
        say(f"features: skipped, all {count} shards are in {found.folder}")
    return found


def _trained(order: Order, method: str, features: Capture, place: Path, say: Say) -> Path:
    """Step 3: one head; one that was trained on these features by this plan is kept."""
    head, knobs = order.heads / method, dict(order.knobs.get(method, {}))
    run = _run_folder(order, method, features, place)
    reason = _why_train(head, features, asdict(order.plan) | knobs)
    if reason is None:
        say(f"train {method}: skipped, {head} was trained on these features by this plan")
    else:
        say(f"train {method}: {reason}")
    target = str(order.folder)
    train_shares(method, features.folder, order.shares, target=target, run=run, plan=order.plan, knobs=knobs, say=say)
    if reason is not None:
        fit(method, features.folder, target=target, out=head, run=run, plan=order.plan, knobs=knobs, say=lambda text: say(f"train {method}: {text}"))
    return head


def _run_folder(order: Order, method: str, features: Capture, place: Path) -> Path:
    """Returns where the fit of a method keeps log and state: another one for other features, plan or knobs."""
    return place / "fit" / _key([features.data, asdict(order.plan), dict(order.knobs.get(method, {}))]) / method


def train_shares(
    method: str, features: Path | Sequence[Path], shares: Sequence[float], *, target: str, run: Path, plan: Plan, knobs: Mapping[str, Any],
    start: Path | None = None, say: Say = print,
) -> None:  # fmt: skip
    """Trains on parts of the data, each in a folder beside `run` where a report finds it for the learning curve; finished ones are kept.

    Raises BadInput where such a folder holds a fit with other settings, which would be a point of another curve.
    """
    captures = open_captures(features, Path(locate(target)))
    if start is not None:
        load_head(start, method)  # what is wrong with it is said before the first share is trained
    for share in shares:
        beside = run.with_name(f"{run.name}{MARK}{share:g}")
        part = replace(plan, data_share=share)
        if (beside / "result.json").exists():
            check_settings(beside, read_progress(beside) or {}, fit_settings(method, captures, part, knobs, start))
            say(f"train {method} on {share:g} of the data: skipped, its result is in {beside}")
            continue
        told = lambda text: say(f"train {method}: {text}")
        fit(method, features, target=target, out=beside / "head", run=beside, plan=part, knobs=knobs, start=start, say=told)


def _why_train(head: Path, features: Capture, settings: Mapping[str, Any]) -> str | None:
    """Returns why the head in this folder has to be trained, None when it is what the settings ask for."""
    if not (head / CONFIG).exists() or not (head / WEIGHTS).exists():
        return f"there is no head in {head}"
    try:
        raw = json.loads((head / CONFIG).read_text(encoding="utf-8"))
        theirs, trained = raw["target"]["weights"], raw["training"] | raw["training"].get("asked", {})
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise BadFile(f"{head / CONFIG} is damaged ({problem}). Delete the folder; the head is trained again.") from problem
    if theirs != features.fingerprint.weights:
        return f"the head in {head} is stale: trained against {theirs}, the target is {features.fingerprint.weights}"
    if trained.get("data") != features.data:
        return f"the head in {head} was trained on other data"
    wanted = json.loads(json.dumps(settings))  # as a config holds them: lists for tuples
    other = next((name for name, value in wanted.items() if trained.get(name) != value), None)
    return None if other is None else f"the head in {head} was trained with {other}={trained.get(other)}, now it is {wanted[other]}"


def _reported(order: Order, heads: Sequence[Path], features: Capture, place: Path, load: Callable[[], Target], say: Say) -> list[HeadReport]:
    """Step 4: a report beside every head, on the given prompts or on those that were held out."""
    target = load()
    if order.report_prompts is not None:
        questions, name = read_questions(target, order.report_prompts), order.report_prompts.name
    else:
        questions, name = held_out_questions(features, order.plan.held_out), "held-out prompts"
    text = fixed_text(target, questions, name, max_new_tokens=order.max_new_tokens, out=place / "report", say=say)
    reports = []
    for head in heads:
        found = _current(order, head, text, target)
        if found is None:
            found = _report(order, head, features, place, target, text, say)
        elif found.evaluation == order.evaluation:
            say(f"report {head.name}: skipped, the one in {head} is of this head and text")
        else:
            say(f"report {head.name}: is of this head and text, only the evaluation results are new")
            found = replace(found, evaluation=order.evaluation)
        save_report(found, head)
        write_card(head)
        reports.append(found)
    return reports


def _report(order: Order, head: Path, features: Capture, place: Path, target: Target, text: FixedText, say: Say) -> HeadReport:
    run = _run_folder(order, head.name, features, place)
    spec = Spec(head.name, None, {"checkpoint": str(head)}, {})
    told = lambda line: say(f"report {head.name}: {line}")
    return head_report(target, spec, text, measures=order.measures, fit=run, evaluation=order.evaluation, say=told)


def _current(order: Order, head: Path, text: FixedText, target: Target) -> HeadReport | None:
    """Returns the report beside a head when it speaks of this head, target and text, and holds as much as is asked for."""
    try:
        found = load_report(head)
    except (Missing, BadFile):
        return None
    same = found.checkpoint == hash_weights(head) and found.text.hash == text.hash and found.target.weights == target.fingerprint.weights
    complete = bool(found.checked) == bool(order.measures.checked) and bool(found.sampled) == bool(order.measures.sampled)
    return found if same and complete else None


def held_out_questions(features: Capture, share: float, most: int = OWN_PROMPTS) -> list[Question]:
    """Returns prompts that no head of these features was trained on, each once, in the order of the records."""
    records = (record for shard in features.done() for record in features.records(shard))
    found = {record.ids[: record.answer_start]: record.prompt_source or OTHER for record in records if held_out(record, share)}
    return [Question(ids, kind) for ids, kind in list(found.items())[:most]]


def _key(settings: Any) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
