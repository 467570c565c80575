"""How long do starts take? `import specviz`, the command line's help, and `make app` when everything is installed.

first_screen   from the command to an answered request for the page, whose HTML holds all of it
drawn_screen   from the command to a tree that a browser has drawn; the browser was open already
model_ready    from the command to the end of a run of one token, asked for as soon as the page answers
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
from gradio_client import Client

from specviz.analysis.profile import Spread

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("torch", "transformers", "gradio", "plotly")
TIMED = (
    "import sys, time; start = time.perf_counter(); import specviz; print(time.perf_counter() - start, *(name for name in {heavy!r} if name in sys.modules))"
)
PATIENCE = 600.0
LOOK = 0.05  # seconds between two looks


def main() -> None:
    """Measures, and prints or writes one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to FILE instead of printing it")
    args = parser.parse_args()
    imports = [imported() for _ in range(args.repeats)]
    helps = [command([sys.executable, "-m", "specviz", "--help"]) for _ in range(args.repeats)]
    starts = [app_start(ask_for_one_token) for _ in range(args.repeats + 1)][1:]  # the first may install, or read from a cold disk
    told = {
        "import_specviz": spread(imports),
        "command_help": spread(helps),
        "first_screen": spread([start["first_screen"] for start in starts]),
        "model_ready": spread([start["then"] for start in starts]),
        "drawn_screen": spread(drawn_starts(args.repeats)),
    }
    text = json.dumps(told, indent=1) + "\n"
    if args.json:
        args.json.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


def spread(values: list[float]) -> dict[str, Any] | None:
    return vars(Spread.of(values)) if values else None


def imported() -> float:
    """Returns the seconds of `import specviz` in a fresh interpreter. Raises SystemExit when something heavy came with it."""
    done = subprocess.run([sys.executable, "-c", TIMED.format(heavy=HEAVY)], cwd=ROOT, capture_output=True, text=True, check=True)
    seconds, *heavy = done.stdout.split()
    if heavy:
        raise SystemExit(f"import specviz imports {', '.join(heavy)}")
    return float(seconds)


def command(words: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(words, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def app_start(then: Callable[[str], None]) -> dict[str, float]:
    """Starts the app, waits until it answers, does `then` with its address, and stops it; returns the seconds until both were done."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environ = {**os.environ, "SPECVIZ_PORT": str(port), "SPECVIZ_HOST": "127.0.0.1"}
    address, start = f"http://127.0.0.1:{port}", time.perf_counter()
    with subprocess.Popen(["make", "app"], cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, start_new_session=True) as app:
        try:
            first = wait_for_answer(address, start, app)
            then(address)
            return {"first_screen": first, "then": time.perf_counter() - start}
        finally:
            os.killpg(app.pid, signal.SIGTERM)


def wait_for_answer(address: str, start: float, app: subprocess.Popen[bytes]) -> float:
    """Waits for the page; its HTML carries the whole first screen. Raises SystemExit when the app ended or does not answer."""
    while time.perf_counter() - start < PATIENCE:
        if app.poll() is not None:
            raise SystemExit(f"make app ended with status {app.returncode}")
        try:
            if httpx.get(address, timeout=60.0).is_success:
                return time.perf_counter() - start
        except httpx.TransportError:
            time.sleep(LOOK)
    raise SystemExit(f"the app did not answer within {PATIENCE:g} seconds")


def ask_for_one_token(address: str) -> None:
    """Calls the endpoint for programs, which waits for the model."""
    Client(address, verbose=False, httpx_kwargs={"timeout": PATIENCE}).predict("Hello", spec="autoregressive", max_new_tokens=1, api_name="/decode")


def drawn_starts(repeats: int) -> list[float]:
    """Returns the seconds from the command until a browser, open already, has drawn the recorded run's tree; none where there is no browser."""
    found = shutil.which("chromium")
    if found is None or find_spec("playwright") is None:  # tools of developers
        return []
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=found, args=["--no-sandbox"])

        def draw(address: str) -> None:
            page = browser.new_page()
            page.goto(address)
            page.locator("#live-player [role=treeitem]").first.wait_for(timeout=PATIENCE * 1000)
            page.close()

        drawn = [app_start(draw)["then"] for _ in range(repeats)]
        browser.close()
    return drawn


if __name__ == "__main__":
    main()
