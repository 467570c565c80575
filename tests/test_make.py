"""`make` does what the README says: the right Python, one installation, no pip on the second start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = ("Makefile", "requirements.txt", "requirements-dev.txt", "constraints.txt")
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture
def project(tmp_path):
    """A folder with the Makefile and its lists; `tools` comes first on the PATH."""
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "tools").mkdir()
    return tmp_path


def make(project: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    foreign = ("SPECVIZ_", "MAKE", "MFLAGS", "PYTEST_ARGS", "PIP_ARGS", "VENV")  # what this very test run may have been started with
    env = {key: value for key, value in os.environ.items() if not key.startswith(foreign) and key != "PYTHON"} | variables
    env["PATH"] = f"{project / 'tools'}{os.pathsep}{env['PATH']}"
    return subprocess.run(["make", *words], cwd=project, env=env, capture_output=True, text=True, timeout=60, check=False)


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def pretend_venv(project: Path) -> Path:
    """A .venv whose python and pip only write down what they were asked to do; returns that record."""
    record = project / "record"
    record.write_text("")
    for name in ("python", "pip"):
        script(project / ".venv" / "bin" / name, f'echo "$@" >>"{record}"')
    return record


def pretend_weights(project: Path) -> None:
    folder = project / "models" / "smollm2-135m-instruct"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").touch()


def test_an_old_python_is_named(project):
    script(project / "tools" / "python3", 'case "$1" in -V) echo "Python 3.9.2";; *) exit 1;; esac')
    done = make(project, "app")
    assert done.returncode != 0
    assert "needs Python 3.11 or newer" in done.stderr
    assert "Python 3.9.2" in done.stderr
    assert not (project / ".venv").exists()


def test_a_missing_python_is_named(project):
    done = make(project, "venv", "PYTHON=python-that-is-not-here")
    assert done.returncode != 0
    assert "there is no 'python-that-is-not-here'" in done.stderr


def test_a_failed_environment_leaves_nothing_behind(project):
    script(project / "tools" / "python3", 'case "$1" in -m) mkdir -p .venv/bin; touch .venv/bin/python; exit 1;; *) exit 0;; esac')
    done = make(project, "app")
    assert done.returncode != 0
    assert "python3-venv" in done.stderr
    assert not (project / ".venv").exists()


def test_app_installs_fetches_and_serves_in_this_order(project):
    record = pretend_venv(project)
    done = make(project, "app")
    assert done.returncode == 0, done.stderr
    assert record.read_text().splitlines() == ["-m pip install -r requirements.txt -c constraints.txt", "-m specviz fetch", "app.py"]


def test_the_second_start_only_serves(project):
    record = pretend_venv(project)
    pretend_weights(project)
    make(project, "app")
    record.write_text("")
    make(project, "app")
    assert record.read_text().splitlines() == ["app.py"]


def test_pip_runs_again_when_a_requirement_changes(project):
    record = pretend_venv(project)
    pretend_weights(project)
    make(project, "app")
    later = (project / ".venv" / ".run-ready").stat().st_mtime + 10
    os.utime(project / "constraints.txt", (later, later))
    record.write_text("")
    make(project, "app")
    assert "pip install" in record.read_text()


def test_another_target_needs_no_default_weights(project):
    record = pretend_venv(project)
    make(project, "app", SPECVIZ_TARGET="/models/mine")
    assert "fetch" not in record.read_text()
    assert record.read_text().splitlines()[-1] == "app.py"


def test_the_models_folder_can_be_moved(project):
    record = pretend_venv(project)
    (project / "elsewhere" / "smollm2-135m-instruct").mkdir(parents=True)
    (project / "elsewhere" / "smollm2-135m-instruct" / "model.safetensors").touch()
    make(project, "app", SPECVIZ_MODELS="elsewhere")
    assert "fetch" not in record.read_text()


def test_the_tests_run_after_lint_types_and_weights(project):
    record = pretend_venv(project)
    done = make(project, "test")
    assert done.returncode == 0, done.stderr
    said = record.read_text().splitlines()
    order = [said.index(next(line for line in said if word in line)) for word in ("requirements-dev.txt", "ruff check", "mypy", "pytest -m not slow")]
    assert order == sorted(order)
    assert said.index("-m specviz fetch") < order[-1]
    assert len([line for line in said if "pip install" in line]) == 1


def test_help_names_both_commands(project):
    said = make(project).stdout
    assert "make app" in said
    assert "make test" in said


def test_ci_reads_no_input_and_calls_make_test():
    ci = ROOT / ".ci" / "run"
    assert os.access(ci, os.X_OK)
    assert subprocess.run(["bash", "-n", str(ci)], check=False).returncode == 0
    lines = [line.strip() for line in ci.read_text().splitlines()]
    assert "set -euo pipefail" in lines
    assert "exec </dev/null" in lines
    assert lines[-1] == "make test"


def test_ci_passes_a_failure_on(project):
    shutil.copytree(ROOT / ".ci", project / ".ci")
    script(project / "tools" / "make", "exit 3")
    script(project / "tools" / "chromium", "exit 0")
    env = os.environ | {"PATH": f"{project / 'tools'}{os.pathsep}{os.environ['PATH']}"}
    assert subprocess.run(["bash", ".ci/run"], cwd=project, env=env, check=False).returncode == 3


def test_the_gpu_check_is_a_script_that_names_its_options():
    assert os.access(ROOT / "scripts" / "gpu_check.sh", os.X_OK)
    env = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "gpu_check.py"), "--help"], env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "dry run" in done.stdout
