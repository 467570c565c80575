"""The two manifests of the app say what the code says: the Spacefile, and the front matter that hosted Spaces read."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from specviz.settings import VARIABLES
from specviz.sources import DEFAULT_TARGET, GGUF_NAME

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
COLOURS = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
HARDWARE = {"cpu-basic", "cpu-upgrade", "t4-small", "t4-medium", "l4x1", "l4x4", "a10g-small", "a10g-large", "a100-large", "zero-a10g"}
SPACE_TORCH = ("2.8.0", "2.9.1", "2.10.0", "2.11.0")  # what hosted GPU Spaces offer

TEXT, FLAG = {"type": "string"}, {"type": "boolean"}
ENV = {
    "type": "object",
    "required": ["name", "description", "default"],
    "properties": {"name": {"type": "string", "pattern": "^[A-Z][A-Z0-9_]*$"}, "description": TEXT, "default": TEXT},
    "additionalProperties": False,
}
PRESETS = {"type": "object", "properties": {"env": {"type": "array", "items": ENV}, "api_keys": FLAG}, "additionalProperties": False}
ENGINES = ["static", "react", "svelte", "vue", "next", "nuxt", "svelte-kit", "python3.9", "python3.8", "nodejs16", "custom"]
MICRO = {
    "type": "object",
    "required": ["name", "src", "engine"],
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]*$"},
        "src": TEXT, "engine": {"enum": ENGINES}, "primary": FLAG, "path": TEXT, "serve": TEXT, "run": TEXT, "dev": TEXT,
        "commands": {"type": "array", "items": TEXT}, "include": {"type": "array", "items": TEXT}, "presets": PRESETS,
        "public_routes": {"type": "array", "items": TEXT}, "public": FLAG, "provide_actions": FLAG, "actions": {"type": "array"},
    },
    "additionalProperties": False,
}  # fmt: skip
SCHEMA = {  # the published v0 schema of the file name, in the parts that can occur here
    "type": "object",
    "required": ["v", "micros"],
    "properties": {
        "v": {"const": 0},
        "icon": TEXT,
        "app_name": {"type": "string", "maxLength": 12},
        "auto_pwa": FLAG,
        "micros": {"type": "array", "minItems": 1, "maxItems": 5, "items": MICRO},
    },
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def spacefile() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "Spacefile").read_text())


@pytest.fixture(scope="module")
def front() -> dict[str, Any]:
    _, matter, _ = (ROOT / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(matter)


def requirements(file: str = "requirements.txt") -> dict[str, Requirement]:
    lines = [line.split("#")[0].strip() for line in (ROOT / file).read_text().splitlines()]
    parsed = [Requirement(line) for line in lines if line and not line.startswith("-")]
    return {requirement.name.lower(): requirement for requirement in parsed}


def test_the_spacefile_is_valid(spacefile):
    jsonschema.validate(spacefile, SCHEMA)


@pytest.mark.parametrize("damage", [{"v": 1}, {"extra": 1}, {"app_name": "a name that is too long"}, {"micros": []}])
def test_the_schema_refuses_what_is_invalid(spacefile, damage):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(spacefile | damage, SCHEMA)


def test_one_primary_micro_with_the_project_s_name(spacefile, front):
    (micro,) = spacefile["micros"]
    assert micro["primary"] is True
    assert {micro["name"], spacefile["app_name"], front["title"], PROJECT["project"]["name"]} == {"specviz"}


def test_both_start_the_same_file(spacefile, front):
    (micro,) = spacefile["micros"]
    assert micro["run"] == f"python {front['app_file']}"
    entry = (ROOT / front["app_file"]).read_text()
    assert re.search(r"^demo = build\(\)$", entry, re.MULTILINE)
    assert 'if __name__ == "__main__":' in entry


def test_the_commands_of_the_spacefile_name_things_that_exist(spacefile):
    (micro,) = spacefile["micros"]
    words = {word for command in (*micro["commands"], micro["run"]) for word in command.split()}
    assert not [word for word in words if word.endswith((".txt", ".py")) and not (ROOT / word).exists()]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert micro["dev"].split()[0] == "make"
    assert micro["dev"].split()[1] in targets
    assert (ROOT / "specviz" / "commands" / "fetch.py").exists()


def test_the_spacefile_lists_the_variables_of_the_code(spacefile):
    (micro,) = spacefile["micros"]
    assert [(e["name"], e["default"], e["description"]) for e in micro["presets"]["env"]] == [(v.name, v.default, v.description) for v in VARIABLES]


def test_the_front_matter_is_what_spaces_accept(front):
    assert front["sdk"] == "gradio"
    assert {front["colorFrom"], front["colorTo"]} <= COLOURS
    assert front["suggested_hardware"] in HARDWARE
    assert len(front["short_description"]) <= 60
    assert front["license"] == PROJECT["project"]["license"].lower()
    assert isinstance(front["python_version"], str)  # an unquoted 3.10 would be 3.1


def test_the_model_of_the_front_matter_is_the_default_target(front):
    (model,) = front["models"]
    assert model.split("/")[1].lower() == DEFAULT_TARGET
    assert GGUF_NAME.startswith(model.split("/")[1])


def test_a_space_can_install_the_requirements(front):
    needs = requirements()
    assert Version(front["sdk_version"]) in needs["gradio"].specifier
    assert Version(front["python_version"]) in SpecifierSet(PROJECT["project"]["requires-python"])
    assert all(version in needs["torch"].specifier for version in SPACE_TORCH)
    assert not any(spec.operator == "==" for need in needs.values() for spec in need.specifier)
    assert all(spec.operator in (">=", "<") for need in needs.values() for spec in need.specifier)


def test_the_tested_versions_lie_inside_the_ranges(front):
    pins = requirements("constraints.txt")
    for name, need in (requirements() | requirements("requirements-dev.txt")).items():
        assert name in pins, f"{name} is not in constraints.txt"
        (pin,) = pins[name].specifier
        assert pin.operator == "=="
        assert pin.version in need.specifier, f"{name} {pin.version} is tested, but {need} is asked for"
    assert str(next(iter(pins["gradio"].specifier))) == f"=={front['sdk_version']}"


def test_everything_imported_is_asked_for():
    """An import that requirements.txt does not name works by luck, until the package that brought it along drops it."""
    imported: set[str] = set()
    for file in [*(ROOT / "specviz").rglob("*.py"), ROOT / "app.py"]:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            imported |= {name.split(".")[0] for name in names}
    import sys

    foreign = imported - set(sys.stdlib_module_names) - {"specviz"}
    brought = {"tokenizers", "huggingface_hub"}  # by transformers, in the version that it needs
    optional = {"spaces", "llama_cpp", "flashspec"}  # on hosted GPU Spaces only; compared with where they are installed
    assert foreign - brought - optional <= set(requirements())


def test_the_licence_is_the_apache_licence():
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text.splitlines()[0]
    assert "END OF TERMS AND CONDITIONS" in text
    assert text.count("\n") > 190
