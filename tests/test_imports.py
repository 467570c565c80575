"""Who may import whom. Read from the source, and tried in a fresh interpreter with the forbidden packages blocked."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "specviz"

# Each layer imports from the layers above it in this list only. A name stands for a module or for a whole package.
LAYERS = [
    {"errors", "largest", "say", "staging"},
    {"hub"},
    {
        "checks",
        "processor",
        "registry",
        "clock",
        "strings",
        "norms",
        "packed",
        "attention",
        "prompts",
        "sources",
        "sampling",
        "tree",
        "supported",
        "cache",
        "taps",
        "rows",
    },
    {"graphs"},
    {"events", "settings", "shapes", "evidence", "target"},
    {"trace", "acceptance", "drafters"},
    {"record"},
    {"decode"},
    {"analysis"},
    {"profiling"},
    {"build", "ready"},
    {"lab", "checkpoints"},
    {"plots", "bench", "training"},
    {"peers"},
    {"commands", "ui"},
    {"cli"},
    {"__main__"},
]
ONLY_HERE = {"gradio": {"ui"}, "plotly": {"plots"}, "accelerate": {"training"}}
NEVER_IN = {
    "analysis": {"torch", "transformers", "gradio", "plotly"}, "plots": {"torch", "transformers", "gradio"}, "trace": {"torch", "transformers"},
    "events": {"torch", "transformers"}, "checks": {"torch"}, "ui": {"transformers"},
}  # fmt: skip
# the app, the command line's readers and the plots live on events and traces: they never look into the engine's state
NOT_FOR_READERS = {"cache", "evidence", "graphs", "staging", "taps"}


def modules() -> dict[str, ast.Module]:
    """Returns {dotted name below specviz: syntax tree}."""
    return {".".join(path.relative_to(PACKAGE).with_suffix("").parts): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def imported(tree: ast.Module) -> set[str]:
    """Returns the dotted names a module imports, anywhere in it, except for type checking alone."""
    skipped = {id(node) for branch in ast.walk(tree) if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.unparse(branch.test) for node in ast.walk(branch)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


MODULES = {name: imported(tree) for name, tree in modules().items()}


def layer_of(unit: str) -> int:
    found = next((number for number, layer in enumerate(LAYERS) if unit in layer), None)
    assert found is not None, f"specviz.{unit} has no place in LAYERS of tests/test_imports.py"
    return found


def units(name: str) -> set[str]:
    """The modules and packages of ours that a module imports, by their first name."""
    return {dotted.split(".")[1] for dotted in MODULES[name] if dotted.startswith("specviz.")} - {"__version__"}


@pytest.mark.parametrize("name", [name for name in MODULES if name != "__init__"])
def test_imports_point_upward_only(name):
    own = name.split(".")[0]
    for unit in units(name) - {own}:
        assert layer_of(unit) < layer_of(own), f"specviz.{name} imports specviz.{unit}, which is not above it"


@pytest.mark.parametrize("package", ONLY_HERE)
def test_a_package_is_imported_in_one_place_only(package):
    users = {name for name, names in MODULES.items() if any(dotted.split(".")[0] == package for dotted in names)}
    assert {name.split(".")[0] for name in users} <= ONLY_HERE[package], users


@pytest.mark.parametrize("unit", NEVER_IN)
def test_what_a_layer_never_imports(unit):
    for name, names in MODULES.items():
        if name.split(".")[0] == unit:
            assert not {dotted.split(".")[0] for dotted in names} & NEVER_IN[unit], name


@pytest.mark.parametrize("unit", ["ui", "plots", "analysis"])
def test_readers_of_traces_do_not_look_into_the_engine(unit):
    for name in MODULES:
        if name.split(".")[0] == unit:
            assert not units(name) & NOT_FOR_READERS, name


def test_no_file_is_a_drawer_for_odd_things():
    assert not [name for name in MODULES if {"utils", "util", "common", "helpers", "misc"} & set(name.split("."))]


BLOCK = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ImportError(f"{{name}} was imported")
sys.meta_path.insert(0, Blocked())
import importlib, pkgutil
for name in {names!r}:
    module = importlib.import_module(name)
    for info in pkgutil.walk_packages(getattr(module, "__path__", []), name + "."):
        if not info.name.endswith("__main__"):
            importlib.import_module(info.name)
"""


@pytest.mark.parametrize(
    ("names", "blocked"),
    [
        (
            ["specviz.trace", "specviz.analysis", "specviz.settings", "specviz.registry", "specviz.tree", "specviz.cli"],
            {"torch", "transformers", "gradio", "plotly"},
        ),
        (
            ["specviz.decode", "specviz.build", "specviz.drafters", "specviz.acceptance", "specviz.shapes", "specviz.lab", "specviz.bench", "specviz.training"],
            {"gradio", "plotly"},
        ),
        (["specviz.plots"], {"torch", "transformers", "gradio"}),
    ],
    ids=["readers", "engine", "plots"],
)
def test_it_imports_without(names, blocked):
    present = [name for name in names if (PACKAGE / f"{name.split('.')[1]}.py").exists() or (PACKAGE / name.split(".")[1]).is_dir()]
    done = subprocess.run([sys.executable, "-c", BLOCK.format(blocked=blocked, names=present)], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-800:]


HEAVY = ("torch", "transformers", "gradio", "plotly", "numpy", "networkx")
QUICK = """
import sys
{code}
print(*(name for name in {heavy!r} if name in sys.modules))
"""
HELP = """
import contextlib, io, specviz.cli
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    specviz.cli.main(["--help"])
"""


@pytest.mark.parametrize(
    "code", ["import specviz", HELP, "import specviz.peers.base, specviz.analysis.peers, specviz.trace"], ids=["package", "help", "readers"]
)
def test_a_start_loads_nothing_heavy(code):
    done = subprocess.run([sys.executable, "-c", QUICK.format(code=code, heavy=HEAVY)], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == []


def test_importing_the_package_costs_next_to_nothing():
    """A ratio to the standard library, as a busy machine is slow at both: the interpreter's own argparse takes tens of times longer."""
    code = "import time; a = time.process_time(); import specviz; b = time.process_time(); import argparse, logging, http.client; print((b - a) / (time.process_time() - b))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert float(done.stdout) < 1.0
