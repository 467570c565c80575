"""The documentation is true: its tables, commands and examples agree with the code."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
import torch

from specviz import acceptance, drafters, plots, shapes
from specviz.analysis.summary import summarise
from specviz.build import build_drafter, build_rule, check_spec, parse_spec, split_specs
from specviz.cli import build_parser
from specviz.commands.base import take_knobs
from specviz.decode import Request, decode
from specviz.registry import bind, discover, knobs, summary
from specviz.sampling import Sampling
from specviz.settings import VARIABLES, Settings
from specviz.shapes.base import Growth
from specviz.trace import Trace

ROOT = Path(__file__).resolve().parent.parent
README, CONTRIBUTING = (ROOT / "README.md").read_text(), (ROOT / "CONTRIBUTING.md").read_text()
PROMPT = (5, 9, 9, 14, 9, 9, 30)


def commands(text: str) -> list[list[str]]:
    """Every `python -m specviz ...` line of a document that stands in a code block."""
    lines = re.findall(r"^    (?:\.venv/bin/)?python -m specviz (.+)$", text, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.parametrize("words", commands(README), ids=" ".join)
def test_every_command_of_the_readme_exists(words):
    plain, given = take_knobs(words)
    args = build_parser().parse_args(plain)
    assert {prefix for prefix, values in given.items() if values} <= set(args.prefixes)
    for text in split_specs(getattr(args, "drafters", None) or getattr(args, "drafter", None) or ""):
        check_spec(parse_spec(text))
    if getattr(args, "shape", None):
        assert bind(shapes, args.shape, given["shape"])


def test_the_readme_shows_the_four_verbs():
    assert {words[0] for words in commands(README)} >= {"decode", "bench", "list", "trace"}


def test_the_readme_lists_the_variables_of_the_code():
    rows = re.findall(r"^\| `(SPECVIZ_\w+)` \| (?:`([^`]*)`|empty) \| (.+) \|$", README, re.MULTILINE)
    assert rows == [(v.name, v.default, v.description) for v in VARIABLES]


def test_the_variables_have_the_defaults_that_the_settings_have():
    assert Settings.from_env({}) == Settings()


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "docs/how-it-works.md", "CHANGELOG.md", "LOG.md"])
def test_links_and_named_files_exist(document):
    text, folder = (ROOT / document).read_text(), (ROOT / document).parent
    links = [target for target in re.findall(r"\]\(([^)#]+)\)", text) if not target.startswith("http")]
    missing = [target for target in links if not (folder / target).exists()]
    assert not missing
    named = re.findall(r"`((?:specviz|tests|scripts|docs|\.ci)/[\w./-]*)`", text)
    assert not [path for path in named if not (ROOT / path).exists()]


def test_the_source_table_is_the_source_tree():
    table = README.split("## The source")[1].split("\n## ")[0]
    named = {Path(name).name for name in re.findall(r"`([\w./]+)`", table)} - {"specviz", "models", "traces", "tests"}
    here = {path.name for path in (ROOT / "specviz").iterdir()}
    assert named <= here
    assert {path.name for path in (ROOT / "specviz").iterdir() if (path / "__init__.py").exists()} <= named


def test_measured_numbers_are_those_of_the_files():
    spec = importlib.util.spec_from_file_location("measured", ROOT / "scripts" / "measured.py")
    measured = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(measured)
    section = README.split(measured.BEGIN)[1].split(measured.END)[0]
    source = ROOT / "docs" / "measurements.json"
    assert section == measured.render(json.loads(source.read_text()) if source.exists() else [])


# ---- the examples of CONTRIBUTING.md, as files in their packages


def examples() -> dict[str, str]:
    """{path in the project: source} of every Python block that begins with its path."""
    blocks = re.findall(r"```python\n# (\S+)\n(.*?)```", CONTRIBUTING, re.DOTALL)
    return dict(blocks)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """install(path) puts that example beside the files of its package, as far as `discover` can see."""
    added: list[str] = []

    def install(path: str):
        package = importlib.import_module(str(Path(path).parent).replace("/", "."))
        file = tmp_path / path
        file.parent.mkdir(parents=True)
        file.write_text(examples()[path])
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(file.parent)])
        added.append(f"{package.__name__}.{file.stem}")
        discover.cache_clear()
        return discover(package)[file.stem]

    yield install
    for name in added:
        sys.modules.pop(name, None)
        package, _, child = name.rpartition(".")
        vars(sys.modules[package]).pop(child, None)
    discover.cache_clear()


def run(target, drafter: str, rule: str, temperature: float = 0.0) -> Trace:
    trace = Trace()
    events = decode(
        target, build_drafter(target, parse_spec(drafter)), build_rule(rule), [Request(PROMPT)], sampling=Sampling(temperature, seed=3), max_new_tokens=24
    )
    for _ in trace.record(events):
        pass
    return trace


def test_one_example_of_every_kind():
    assert {str(Path(path).parent) for path in examples()} == {"specviz/drafters", "specviz/acceptance", "specviz/shapes", "specviz/plots", "specviz/ui/pages"}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_drafter_example_drafts_and_keeps_the_text(installed, tiny_target, temperature):
    found = installed("specviz/drafters/repeat_last.py")
    assert summary(found) == "Bets that the last token comes again."
    assert [knob.name for knob in knobs(found)] == ["times"]
    mine = run(tiny_target, "repeat_last:times=3", "rejection", temperature)
    assert mine.emitted() == run(tiny_target, "autoregressive", "rejection", temperature).emitted()
    assert max(len(each.drafted.tokens) for each in mine.rounds()) == 4


def test_the_rule_example_is_found_lossy_and_greedy_at_temperature_0(installed, tiny_target):
    installed("specviz/acceptance/at_least.py")
    assert not acceptance.base.is_lossless(discover(acceptance)["at_least"])
    plain = run(tiny_target, "autoregressive", "greedy")
    assert run(tiny_target, "prompt_lookup", "at_least").emitted() == plain.emitted()
    loose = run(tiny_target, "prompt_lookup", "at_least", 1.0)
    tests = [test for each in loose.rounds() for test in zip(*(each.verified.tests[c] for c in ("verdict", "p", "limit")), strict=True)]
    assert tests
    assert all((verdict == "accepted") == (p > 0 and p >= limit) for verdict, p, limit in tests)


def test_the_shape_example_grows_a_broom(installed):
    installed("specviz/shapes/broom.py")
    torch.manual_seed(0)
    rows = torch.randn(64, 40).log_softmax(-1)
    growth = Growth(7, lambda growth, nodes: rows[list(nodes)], depth_limit=9)
    tree = bind(shapes, "broom", {"depth": 2, "width": 5})(growth)
    assert tree.depths == (0, 1, 2, 3, 3, 3, 3, 3)
    assert list(tree.tokens[3:]) == rows[2].topk(5).indices.tolist()


def test_the_plot_example_draws_a_run_and_an_empty_trace(installed, tiny_target):
    plot = installed("specviz/plots/tree_sizes.py")
    assert "tree_sizes" in discover(plots)
    trace = run(tiny_target, "prompt_lookup", "greedy")
    assert list(plot(trace).data[0].y) == [len(each.drafted.tokens) for each in trace.rounds()]
    assert len(plot(Trace(trace.events[:1])).data[0].y) == 0


def test_the_page_example_appears_as_a_tab(installed):
    from specviz.ui.app import App
    from specviz.ui.build import build
    from specviz.ui.engine import Engine

    installed("specviz/ui/pages/library.py")
    app = App(Settings(), Engine(Settings()))
    parts = build(app=app).get_config_file()["components"]
    assert "Library" in [part["props"].get("label") for part in parts if part["type"] == "tabitem"]
    table = next(part for part in parts if part["props"].get("elem_id") == "library")
    assert [row[0] for row in table["props"]["value"]["data"]] == list(app.recorded())
    assert [row[1] for row in table["props"]["value"]["data"]] == [summarise(Trace.load(path)).tau for path in app.recorded().values()]


def test_the_python_example_of_the_readme_runs(tiny_target, tmp_path, monkeypatch, capsys):
    (source,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    monkeypatch.setattr("specviz.target.Target.load", classmethod(lambda cls: tiny_target))
    monkeypatch.chdir(tmp_path)
    exec(compile(source, "README.md", "exec"), {})
    kinds = capsys.readouterr().out.split()
    assert (kinds[0], kinds[1], kinds[-1]) == ("started", "prefilled", "finished")
    assert Trace.load(tmp_path / "run.jsonl.gz").finished().rounds == kinds.count("verified")


def test_drafters_named_in_the_documentation_exist():
    named = set(re.findall(r"^- \*\*(\w+)\*\* (?!=)", (ROOT / "docs/how-it-works.md").read_text().split("## Drafters")[1].split("\n## ")[0], re.MULTILINE))
    assert named <= set(discover(drafters))
    assert {"autoregressive", "prompt_lookup", "medusa", "eagle"} <= named
