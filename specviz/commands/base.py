"""What several verbs share: knobs with a prefix, loading a target, output files, one JSON object on stdout."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from specviz.errors import BadInput
from specviz.say import Say

if TYPE_CHECKING:
    from rich.console import Console

    from specviz.sampling import Sampling
    from specviz.target import Target

Knobs = dict[str, dict[str, str]]  # prefix -> {knob: value}
PREFIXES = ("shape", "rule", "drafter")
FILE_COLUMNS = 120
_KNOB = re.compile(r"--([A-Za-z]+)\.([A-Za-z_][A-Za-z0-9_-]*)(?:=(.*))?", re.DOTALL)
_C1 = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}  # controls that JSON may hold as they are, and a terminal obeys
_FLAT_LIST = re.compile(r"\[\n\s+([^\[\]{}]*?)\n\s+\]")


def take_knobs(argv: Sequence[str]) -> tuple[list[str], Knobs]:
    """Splits `--shape.depth 4` and `--rule.epsilon=0.1` off the other arguments. Raises BadInput for another prefix or a missing value."""
    plain: list[str] = []
    knobs: Knobs = {prefix: {} for prefix in PREFIXES}
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        match = _KNOB.fullmatch(word)
        if match is None:
            plain.append(word)
            continue
        prefix, name, value = match.groups()
        if prefix not in PREFIXES:
            raise BadInput(f"{word.split('=')[0]} is not an option. Expected {', '.join(f'--{p}.NAME' for p in PREFIXES)}; `list` shows the names.")
        if value is None:
            if not rest or rest[0].startswith("--"):
                raise BadInput(f"{word} needs a value, for example {word} 4.")
            value = rest.pop(0)
        if (key := name.replace("-", "_")) in knobs[prefix]:
            raise BadInput(f"--{prefix}.{name} is given twice. Give it once.")
        knobs[prefix][key] = value
    return plain, knobs


def add_target_options(parser: argparse.ArgumentParser) -> None:
    """Adds --target, --device, --dtype and --threads; the app's environment variables are their defaults."""
    group = parser.add_argument_group("target")
    group.add_argument("--target", metavar="NAME", help="a name under models/, a folder, or a hub id (default: SPECVIZ_TARGET or smollm2-135m-instruct)")
    group.add_argument("--device", help="auto, cpu, cuda or cuda:1 (default: SPECVIZ_DEVICE or auto)")
    group.add_argument("--dtype", help="auto, float32, bfloat16 or float16 (default: SPECVIZ_DTYPE or auto)")
    group.add_argument("--threads", type=positive, metavar="N", help="CPU threads (default: torch's own choice)")


def add_sampling_options(parser: argparse.ArgumentParser, max_new_tokens: int) -> None:
    """Adds the options of Sampling, --max-new-tokens and --raw."""
    group = parser.add_argument_group("decoding")
    group.add_argument("--max-new-tokens", type=positive, default=max_new_tokens, metavar="N", help="default: %(default)s")
    group.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0 is greedy (default)")
    group.add_argument("--top-p", type=float, default=1.0, metavar="P", help="1 is off (default)")
    group.add_argument("--top-k", type=int, default=0, metavar="K", help="0 is off (default)")
    group.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    group.add_argument("--raw", action="store_true", help="continue the prompt as plain text, without the model's chat template")


def positive(text: str) -> int:
    """Returns a whole number from 1 (an argparse type)."""
    return _whole(text, 1)


def count(text: str) -> int:
    """Returns a whole number from 0 (an argparse type)."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) >= least):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from {least}")
    return int(text)


def load_target(args: argparse.Namespace, log: Console) -> Target:
    """Loads the target that the options name, with a spinner; what a person should know about the choice goes to `log`."""
    from specviz.settings import Settings

    settings = Settings.from_env()
    name = args.target or settings.target
    with log.status(f"loading {name}"):
        from transformers.utils import logging

        from specviz.target import Target

        logging.disable_progress_bar()
        use_threads(args.threads)
        dtype = args.dtype or settings.dtype
        target = Target.load(name, args.device or settings.device, None if dtype in ("auto", "") else dtype)
    for note in target.notes:
        log.print(note, markup=False, style="yellow")
    return target


def asked(args: argparse.Namespace, count: int) -> dict[str, Any]:
    """Returns what a bench was asked for: `count` prompts of which file, how many tokens, and when."""
    file = Path(args.prompts) if args.prompts else None
    source = {"file": file.name, "sha256": sha256(file.read_bytes()).hexdigest()} if file else {"file": None, "sha256": None}
    return {
        "prompts": {**source, "count": count, "limit": args.limit},
        "max_new_tokens": args.max_new_tokens,
        "raw": args.raw,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def teller(log: Console) -> Say:
    """Returns how a step tells a person at the terminal what it decided or does; on stderr, a sentence a line."""
    return lambda text: log.print(text, markup=False, soft_wrap=True)


def use_threads(count: int | None) -> None:
    """Sets how many CPU threads torch uses; None leaves its own choice."""
    if count:
        import torch

        torch.set_num_threads(count)


def sampling_of(args: argparse.Namespace) -> Sampling:
    """Returns the Sampling of the options; raises BadInput for values out of range."""
    from specviz.sampling import Sampling

    return Sampling(args.temperature, args.top_p, args.top_k, args.seed)


def encode(target: Target, prompt: str, raw: bool) -> tuple[int, ...]:
    """Returns the prompt's ids: one user turn of the chat template, or with `raw` the text as it is."""
    return tuple(target.encode(prompt, chat=not raw))


def read_text(path: str) -> str:
    """Returns a text file, or standard input for "-". Raises BadInput naming what is wrong."""
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as problem:
        raise BadInput(f"Could not read {path}: {problem.strerror or problem}.") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not text in UTF-8.") from None


def output_file(path: str) -> Path:
    """Returns where a result will be written; raises BadInput before the work is done when it cannot be."""
    place = Path(path)
    if place.is_dir():
        raise BadInput(f"{path} is a folder. Expected the name of a file to write.")
    if not place.parent.is_dir():
        raise BadInput(f"There is no folder {place.parent} to write {place.name} into.")
    if not place.exists() or place.is_file():
        _try_writing(place.parent, path)
    return place


def write_record(place: Path, record: Mapping[str, Any]) -> None:
    """Writes a record as JSON; a file that is there keeps what it held until the new one is whole, whatever breaks off in between."""
    text, place = dump(record), place.resolve()  # a link keeps pointing at its file
    if place.exists() and not place.is_file():  # /dev/stdout and its like have nothing to keep
        place.write_text(text, encoding="utf-8")
        return
    part = place.with_name(f".{place.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)


def output_folder(path: Path) -> Path:
    """Returns a folder that results will be written into, there or not; raises BadInput before the work is done when it cannot be."""
    above = next(place for place in (path, *path.absolute().parents) if place.exists() or place.is_symlink())
    if not above.is_dir():
        raise BadInput(f"{above} is a file. Expected the name of a folder, there or to be made, to write into.")
    _try_writing(above, str(path))
    return path


def _try_writing(folder: Path, path: str) -> None:
    """Some places say no only when something is written."""
    try:
        with tempfile.TemporaryFile(dir=folder, prefix=".specviz-"):
            pass
    except OSError as problem:
        raise BadInput(f"Cannot write {path}: {problem.strerror or problem}. Choose a folder that may be written to.") from None


@contextlib.contextmanager
def only_json(wanted: bool) -> Iterator[None]:
    """While a verb works for `--json`, whatever a library prints goes to stderr, so that stdout holds one object and nothing else."""
    if not wanted:
        yield
        return
    with contextlib.redirect_stdout(sys.stderr):
        yield


def dump(record: Mapping[str, Any]) -> str:
    """Returns a record as JSON text, lists of plain values in one line; raises ValueError for what JSON cannot hold."""
    text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False)
    flat = _FLAT_LIST.sub(lambda match: "[" + re.sub(r"\n\s+", " ", match.group(1)) + "]", text)
    return flat.translate(_C1) + "\n"


def consoles() -> tuple[Console, Console]:
    """Returns (for results, for progress and remarks): stdout and stderr."""
    from specviz.commands.terminal import Terminal

    return Terminal(highlight=False, width=width_of(sys.stdout)), Terminal(stderr=True, highlight=False, width=width_of(sys.stderr))


def width_of(stream: TextIO) -> int | None:
    """Returns the columns to print where nobody's window decides: a log or a pipe would get 80, which is too narrow for the tables."""
    return None if stream.isatty() or "COLUMNS" in os.environ else FILE_COLUMNS
