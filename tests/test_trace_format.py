"""docs/trace-format.md describes every field, verdict and reason code that a trace can hold."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

import pytest
from recorded import run_tiny

from specviz.acceptance.base import VERDICTS
from specviz.events import KINDS, REASONS, SCHEMA
from specviz.record import _TEST_COLUMNS
from specviz.target import Target
from specviz.trace import HEADER, MAX_BYTES

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "trace-format.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    """Returns the part of the page below `## name`."""
    return TEXT.split(f"\n## {name}\n")[1].split("\n## ")[0]


def reason_codes() -> set[str]:
    """Returns every reason that a rule can give: the third argument of Test(...), and of follow_choice(...)."""
    found: set[str] = set()
    for path in (ROOT / "specviz" / "acceptance").glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("Test", "follow_choice") and len(call.args) > 2:
                found |= {part.value for part in ast.walk(call.args[2]) if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_an_event_is_described_in_its_section(kind: str) -> None:
    missing = [field.name for field in fields(KINDS[kind]) if f"`{field.name}`" not in section(kind)]
    assert not missing


@pytest.mark.parametrize("column", _TEST_COLUMNS)
def test_every_column_of_the_tests_is_described(column: str) -> None:
    assert f"| `{column}` |" in section("verified")


def test_every_verdict_is_described() -> None:
    assert [name for name in VERDICTS if f"| `{name}` |" not in section("verified")] == []


def test_every_reason_code_of_the_rules_is_described() -> None:
    codes = reason_codes()
    assert {"argmax", "not_drawn", "above_limit", "longer_path_won"} <= codes
    assert [code for code in sorted(codes) if f"| `{code}` |" not in section("verified")] == []


def test_reasons_to_finish_version_and_limits_are_those_of_the_code() -> None:
    assert all(f"`{reason}`" in section("finished") for reason in REASONS)
    assert f"format version {SCHEMA}." in TEXT
    assert f'{{"{HEADER}": {SCHEMA},' in TEXT
    assert f"{MAX_BYTES // 2**20} MiB" in TEXT


def test_every_key_of_the_meta_record_is_described(tiny_target: Target) -> None:
    meta = run_tiny(tiny_target, new=2).started().meta
    assert [key for key in meta if f"| `{key}` |" not in section("started")] == []
