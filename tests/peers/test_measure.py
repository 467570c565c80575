"""The contest: everybody on every prompt in turn, and a failure costs nobody but the one who failed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli_fixture import Cli, run_fixture  # noqa: F401
from head_reports import full_report

from specviz import peers
from specviz.commands import show_peers
from specviz.peers import _measure
from specviz.peers._link import Reply
from specviz.peers._measure import PLAIN, REFERENCE, Contest, measure
from specviz.peers._own import Own
from specviz.peers.base import Answer, Job, Peer, PeerFailed
from specviz.peers.llama_cpp import LlamaCpp
from specviz.peers.transformers_generate import TransformersGenerate
from specviz.peers.transformers_prompt_lookup import TransformersPromptLookup
from specviz.registry import discover

JOB = Job("tiny", "/models/tiny", "auto", "auto", 1)
DESCRIBED = {"device": "cpu", "dtype": "float32", "eos": [2]}


class Fake:
    """A link without a process: writes down who was called, and answers by `self.tokens`."""

    calls: list[tuple[str, str]]

    def __init__(self, peer: str, job: Job, calls: list[tuple[str, str]], dies_at: int | None = None) -> None:
        self.name, self.job, self.calls, self.left = job.spec or peer, job, calls, dies_at
        self.ready, self.closed = Reply({"torch": "1"}, 0.0, {"now": 5, "peak": 6}), False

    def call(self, method: str, **arguments: object) -> Reply:
        self.calls.append((self.name, method))
        self.sizes = [*getattr(self, "sizes", []), len(arguments.get("ids", ()))]  # type: ignore[arg-type]
        if method == "describe":
            return Reply(DESCRIBED, 0.0, {})
        if method == "encode":
            return Reply([[5] * len(text) for text in arguments["prompts"]], 0.0, {})  # type: ignore[attr-defined]
        if method == "gap":
            return Reply({"position": arguments["position"], "gap": 1e-7, "resolution": 2e-6, "unit": "logit", "dtype": "float32"}, 0.0, {})
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise PeerFailed("its process ended with status -9: killed")
        tokens = [7, 9] if self.name == "flashspec" else [7, 8]
        return Reply({"tokens": tokens, "forwards": 2}, 0.5, {"now": 5, "peak": 9})

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def contest(monkeypatch):
    """Runs a contest of fakes; `dies` maps a peer to how many calls it answers. Returns record, calls and links."""

    def run(prompts=("one", "three"), dies=(), only=(REFERENCE, "flashspec")):
        calls, links, dies = [], {}, dict(dies)

        def start(peer, job, log, folder):
            if dies.get(peer, 1) is None:
                raise PeerFailed("could not install it: no network")
            links[job.spec or peer] = Fake(peer, job, calls, dies.get(job.spec or peer))
            return links[job.spec or peer]

        monkeypatch.setattr(_measure, "_start", start)
        kept: list[str] = []
        record = measure(Contest(JOB, ["prompt_lookup"], list(prompts), list(prompts), 4, only=only, keep=lambda record: kept.append(json.dumps(record))))
        json.dumps(record)
        return SimpleNamespace(
            record=record, kept=[json.loads(text) for text in kept], calls=calls, links=links, rows={entry["name"]: entry for entry in record["peers"]}
        )

    return run


def test_all_take_turns_and_who_goes_first_moves_on(contest):
    done = contest()
    timed = [name for name, method in done.calls if method == "generate"][4:]  # after one warm-up each
    names = [PLAIN, "prompt_lookup", "flashspec", REFERENCE]
    assert timed == [*names, *names[1:], names[0]]
    assert all(link.closed for link in done.links.values())


def test_the_warm_up_is_the_longest_prompt(contest):
    """A static cache that was compiled for a shorter one is made and compiled anew in the middle of what is timed."""
    done = contest(prompts=("one", "three", "two"))
    assert done.links[REFERENCE].sizes == [5, 3, 5, 3]


def test_the_record_is_kept_after_every_prompt(contest):
    done = contest()
    assert [[entry["prompts"] for entry in record["peers"]] for record in done.kept] == [[1] * 4, [2] * 4]
    assert done.kept[-1]["setting"] == json.loads(json.dumps(done.record["setting"]))
    assert done.kept[-1]["peers"][0]["tokens_per_second"] == done.record["peers"][0]["tokens_per_second"]


def test_the_setting_says_how_our_own_target_verified(contest, monkeypatch):
    monkeypatch.setitem(DESCRIBED, "graphs", "off")
    monkeypatch.setitem(DESCRIBED, "notes", ["CUDA graphs are off: why."])
    setting = contest().record["setting"]
    assert (setting["graphs"], setting["notes"]) == ("off", ["CUDA graphs are off: why."])


def test_everybody_is_told_the_device_dtype_and_end_tokens_that_our_target_has(contest):
    done = contest()
    assert {(link.job.device, link.job.dtype, link.job.eos) for name, link in done.links.items() if name != PLAIN} == {("cpu", "float32", (2,))}
    assert done.record["setting"]["source"] == "tiny"  # never a folder of this machine


def test_a_crash_keeps_what_was_measured_and_everybody_else(contest):
    rows = contest(dies={"flashspec": 2}).rows
    assert (rows["flashspec"]["prompts"], rows["flashspec"]["reason"]) == (1, "its process ended with status -9: killed after 1 prompts")
    assert [rows[name]["prompts"] for name in (PLAIN, "prompt_lookup", REFERENCE)] == [2, 2, 2]


def test_a_peer_that_cannot_be_installed_is_a_row_with_the_reason(contest):
    rows = contest(dies={"flashspec": None}).rows
    assert (rows["flashspec"]["prompts"], rows["flashspec"]["reason"]) == (0, "could not install it: no network")
    assert rows[PLAIN]["speed_ratio"]["median"] == 1.0


def test_without_the_reference_the_others_keep_their_rates(contest):
    rows = contest(dies={REFERENCE: 0}).rows
    assert rows[PLAIN]["tokens_per_second"]["median"] == 4.0
    assert rows[PLAIN]["speed_ratio"] is None


def test_another_text_is_told_with_the_gap_that_our_target_measured(contest):
    done = contest()
    assert done.rows["flashspec"]["equal"] == 0.0
    assert [(one["prompt"], one["position"], one["gap"]) for one in done.rows["flashspec"]["differences"]] == [("one", 1, 1e-7), ("three", 1, 1e-7)]
    assert done.rows["prompt_lookup"]["differences"] == []


def test_every_file_is_a_peer_that_says_what_it_is():
    found = discover(peers)
    assert {REFERENCE, "transformers_static_cache", "transformers_prompt_lookup", "flashspec", "llama_cpp"} <= set(found)
    for name, cls in found.items():
        assert issubclass(cls, Peer), name
        assert cls.label, name
        assert cls.__doc__, name
        assert all("==" in requirement for requirement in cls.requires), name


def test_our_decoding_equals_generate_and_counts_the_same_forwards(tiny_folder: Path) -> None:
    job = Job(str(tiny_folder), str(tiny_folder), "cpu", "float32", 1, (2,), "autoregressive")
    own, stock, copying = Own(), TransformersGenerate(), TransformersPromptLookup()
    for one in (own, stock, copying):
        one.load(job)
    assert own.describe() == {"device": "cpu", "dtype": "float32", "eos": [2], "graphs": "off", "notes": []}
    (ids,) = own.encode(["the cat sat on the mat and the cat sat"], raw=True)
    plain = own.generate(ids, 12)
    assert isinstance(plain, Answer)
    assert stock.generate(ids, 12) == plain
    assert plain.forwards == len(plain.tokens)
    copied = copying.generate(ids, 12)
    assert copied.tokens == plain.tokens
    assert 0 < copied.forwards <= len(copied.tokens)
    assert own.gap(ids, 0, plain.tokens[0], (plain.tokens[0] + 1) % 300)["gap"] > 0


def test_llama_cpp_says_what_it_lacks(tmp_path, monkeypatch):
    job = Job("tiny", str(tmp_path), "cpu", "float32", 1)
    monkeypatch.setattr("specviz.peers.llama_cpp.find_spec", lambda name: None)
    assert "not installed" in LlamaCpp.missing(job)
    monkeypatch.setattr("specviz.peers.llama_cpp.find_spec", lambda name: object())
    assert "no GGUF file" in LlamaCpp.missing(job)
    (tmp_path / "a.gguf").touch()
    assert LlamaCpp.missing(job) is None


def test_peers_are_compared_at_temperature_0_only(run: Cli) -> None:
    done = run("bench", "--peers", "--temperature", "1")
    assert done.status == 2
    assert "temperature 0 only" in done.err


def test_the_command_prints_a_table_or_one_json_object(run: Cli, contest, monkeypatch) -> None:
    record = contest(dies={"flashspec": 2}).record
    monkeypatch.setattr(_measure, "measure", lambda given: record)
    told = json.loads(run("bench", "--peers", "--limit", "2", "--max-new-tokens", "4", "--json").out)
    assert told["meta"]["prompts"] == {"file": None, "sha256": None, "count": 2, "limit": 2}
    out = run("bench", "--peers", "--limit", "2").out
    for shown in (
        "4.0 (4.0 to 4.0)",
        "flashspec, prompt lookup: its process ended",
        "killed after 1 prompts",
        "differs at new token 2, logit gap 1e-07",
        "100%",
    ):
        assert shown in out


def test_only_some_peers_may_be_asked_for_and_what_is_known_is_written_after_every_prompt(run: Cli, contest, monkeypatch, tmp_path) -> None:
    record, asked = contest().record, []
    place = tmp_path / "peers.json"

    def broken_off(given: Contest) -> dict:
        asked.append(given.only)
        given.keep(record)
        assert json.loads(place.read_text())["meta"]["max_new_tokens"] == 4
        raise PeerFailed("stopped here")

    monkeypatch.setattr(_measure, "measure", broken_off)
    words = ("bench", "--peers", "--max-new-tokens", "4", "--limit", "2", "--json", str(place))
    assert run(*words, "--only", f"{REFERENCE}, transformers_prompt_lookup").status == 2
    assert asked == [[REFERENCE, "transformers_prompt_lookup"]]
    assert [entry["prompts"] for entry in json.loads(place.read_text())["peers"]] == [2, 2, 2, 2]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--peers", "--only", "vllm"), "Expected some of: flashspec"),
        (("--peers", "--only", ","), "names nobody"),
        (("--only", REFERENCE), "needs --peers"),
    ],
)
def test_a_choice_of_peers_that_means_nothing_is_refused(run: Cli, words: tuple[str, ...], told: str) -> None:
    done = run("bench", *words)
    assert done.status == 2
    assert told in done.err


def test_the_best_head_is_the_one_whose_report_says_so_or_all_without_reports(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECVIZ_MODELS", str(tmp_path))
    for name in ("eagle", "medusa"):
        (tmp_path / "tiny" / name).mkdir(parents=True)
        (tmp_path / "tiny" / name / "model.safetensors").touch()
    assert show_peers.best_learned("tiny") == ["eagle", "medusa"]
    for name, first in {"eagle": 0.5, "medusa": 0.7}.items():  # acceptance of the first depth
        (tmp_path / "tiny" / name / "report.json").write_text(json.dumps(full_report(name, first).to_json()))
    assert show_peers.best_learned("tiny") == ["medusa"]
