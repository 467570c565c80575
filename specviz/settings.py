"""Settings: every environment variable of the app, in one place, with its default and what it does.

README and Spacefile list the same variables; a test compares them with `VARIABLES`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from specviz.errors import BadInput
from specviz.sources import DEFAULT_TARGET, user_path


@dataclass(frozen=True)
class Variable:
    """One environment variable: the setting it fills, its default, what it does, and for a number its smallest value."""

    name: str
    field: str
    default: str
    description: str
    least: int | None = None
    most: int | None = None
    fallback: str = ""  # a variable that hosts set already; read when `name` is not set

    def read(self, environ: Mapping[str, str]) -> str | int:
        """Returns the setting's value. Raises BadInput naming the variable, the value and what was expected."""
        text = (environ.get(self.name) or environ.get(self.fallback) or self.default).strip()
        if self.least is None:
            return text
        high = "" if self.most is None else f" to {self.most}"
        if not text.isdigit() or int(text) < self.least or (self.most is not None and int(text) > self.most):
            raise BadInput(f"{self.name}={text!r} cannot be used. Expected a whole number from {self.least}{high}, for example {self.default}.")
        return int(text)


VARIABLES = (
    Variable("SPECVIZ_HOST", "host", "127.0.0.1", "Address the app listens on; 0.0.0.0 lets other machines in.", fallback="GRADIO_SERVER_NAME"),
    Variable("SPECVIZ_PORT", "port", "7860", "Port the app listens on; 0 takes any free one.", 0, 65535, fallback="GRADIO_SERVER_PORT"),
    Variable("SPECVIZ_TARGET", "target", DEFAULT_TARGET, "Target model: a name under models/, a folder, or a hub id."),
    Variable("SPECVIZ_DEVICE", "device", "auto", "Where the model runs: auto, cpu, cuda or cuda:1."),
    Variable("SPECVIZ_DTYPE", "dtype", "auto", "auto (float32 up to one billion parameters), float32, bfloat16 or float16."),
    Variable("SPECVIZ_MODELS", "models", "", "Folder with targets and, below each, its drafters; empty means models/ in the project."),
    Variable("SPECVIZ_CACHE", "cache", "", "Folder for what this machine measured of its own speed; empty means specviz in the user's cache folder."),
    Variable("SPECVIZ_MAX_PROMPT_TOKENS", "max_prompt_tokens", "2048", "Longest prompt that the app accepts, in tokens.", 1),
    Variable("SPECVIZ_MAX_NEW_TOKENS", "max_new_tokens", "256", "Most tokens that one run may write.", 1),
    Variable("SPECVIZ_QUEUE", "queue", "16", "Runs that may wait; further ones are refused with a message.", 1),
    Variable("SPECVIZ_UPLOAD_MB", "upload_mb", "16", "Largest trace file that may be opened in the app, in MiB.", 1),
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """What the app was told by its environment; fields as described in VARIABLES."""

    host: str = "127.0.0.1"
    port: int = 7860
    target: str = DEFAULT_TARGET
    device: str = "auto"
    dtype: str = "auto"
    models: str = ""
    cache: str = ""
    max_prompt_tokens: int = 2048
    max_new_tokens: int = 256
    queue: int = 16
    upload_mb: int = 16

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Reads every variable of VARIABLES. Raises BadInput for a value that cannot be used."""
        given = os.environ if environ is None else environ
        return cls(**{variable.field: variable.read(given) for variable in VARIABLES})  # type: ignore[arg-type]


def cache_dir() -> Path:
    """The folder for what can be measured again at any time (`SPECVIZ_CACHE` moves it); made by whoever writes there."""
    given = os.environ.get("SPECVIZ_CACHE", "").strip()
    if given:
        return user_path(given)
    user = os.environ.get("XDG_CACHE_HOME", "").strip()
    return (Path(user) if user else Path.home() / ".cache") / "specviz"
