"""The running app through gradio_client: the endpoint for programs, its errors, and two clients at once."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from apps import LOOPING, make_app, served
from gradio_client import Client

from specviz.target import Target
from specviz.ui.build import serve


@pytest.fixture(scope="module")
def url(tiny_target: Target) -> Iterator[str]:
    demo = served(make_app(tiny_target))
    _, address, _ = serve(demo)
    yield address
    demo.close()


def connect(url: str) -> Client:
    return Client(url, verbose=False, httpx_kwargs={"timeout": 60})


@pytest.fixture(scope="module")
def client(url: str) -> Client:
    return connect(url)


def decode(client: Client, prompt: Any = LOOPING, **changed: Any) -> dict[str, Any]:
    return client.predict(prompt, **({"max_new_tokens": 8, "api_name": "/decode"} | changed))


def test_only_the_endpoint_for_programs_is_public(client: Client) -> None:
    assert set(client.view_api(return_format="dict", print_info=False)["named_endpoints"]) == {"/decode"}


def test_a_run_returns_text_ids_and_numbers(client: Client) -> None:
    result = decode(client, spec="prompt_lookup:length=4")
    assert len(result["token_ids"]) == result["new_tokens"] == 8
    assert result["rule"]["name"] == "greedy"
    assert result["drafter"]["knobs"]["length"] == 4
    assert decode(client, spec="autoregressive")["token_ids"] == result["token_ids"]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"prompt": ""}, "The prompt is empty"),
        ({"prompt": "x" * 100_000}, "100,000 characters"),
        ({"spec": "nobody"}, "No drafter 'nobody'"),
        ({"spec": "prompt_lookup:length=nan"}, "length"),
        ({"spec": "prompt_lookup:length"}, "not knob=value"),
        ({"rule": "magic"}, "No 'magic'"),
        ({"rule": "greedy", "temperature": 0.5}, "temperature 0 only"),
        ({"temperature": "hot"}, "temperature='hot'"),
        ({"top_p": 0}, "top_p"),
        ({"seed": 1.5}, "seed=1.5"),
        ({"max_new_tokens": 10_000}, "SPECVIZ_MAX_NEW_TOKENS"),
        ({"max_new_tokens": None}, "max_new_tokens=None"),
    ],
)
def test_bad_input_is_answered_in_words(client: Client, changed: dict[str, Any], expected: str) -> None:
    with pytest.raises(Exception, match=expected.replace("(", r"\(")):
        decode(client, **changed)


def test_not_a_number_over_raw_http_is_refused(url: str) -> None:
    import httpx

    body = '{"data": ["hello", "prompt_lookup", "", NaN, 1, 0, 0, 8]}'
    assert math.isnan(float("nan"))
    started = httpx.post(f"{url}gradio_api/call/decode", content=body, headers={"content-type": "application/json"}, timeout=60)
    if started.status_code == 200:
        answer = httpx.get(f"{url}gradio_api/call/decode/{started.json()['event_id']}", timeout=60).text
        assert "event: error" in answer
    else:
        assert started.status_code in (400, 422, 500)


def test_two_clients_at_once_get_their_own_runs(url: str) -> None:
    def go(seed: int) -> list[int]:
        return decode(connect(url), temperature=0.9, seed=seed)["token_ids"]

    alone = [go(seed) for seed in (1, 2)]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(go, (1, 2)))
    assert together == alone
    assert alone[0] != alone[1]


def test_importing_the_app_loads_no_model_and_no_model_library() -> None:
    code = "import app, sys; print(app.demo.specviz.engine.state.kind, 'transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False, cwd=Path(__file__).resolve().parents[2])
    assert done.stdout.split() == ["idle", "False"], done.stderr
