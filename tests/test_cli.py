"""The command line, run in this process on a saved tiny model: what it prints, what it writes, how it fails."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_fixture import Cli, run_fixture  # noqa: F401

from specviz import acceptance, cli, drafters, plots, shapes, sources
from specviz.commands.base import dump, take_knobs
from specviz.commands.decode import stop_on_interrupt
from specviz.commands.show import flowing
from specviz.errors import BadInput
from specviz.registry import discover
from specviz.target import Target
from specviz.trace import Trace

PROMPT = "to be or not to be, that is the question of the day. to be or not to"


def decoded(run: Cli, *words: str | Path) -> dict[str, Any]:
    done = run("decode", "--prompt", PROMPT, "--max-new-tokens", "16", "--json", *words)
    assert (done.status, done.err) == (0, "") or "loading" in done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_decode_prints_one_json_object_and_nothing_else(run: Cli, tiny_target: Target) -> None:
    told = decoded(run)
    promised = (
        "text token_ids prompt_tokens new_tokens rounds target_forwards mean_acceptance_length acceptance_histogram acceptance_by_depth "
        "seconds tokens_per_second target drafter rule sampling seed device dtype versions"
    )
    assert [key for key in promised.split() if key not in told] == []
    assert len(told["token_ids"]) == told["new_tokens"] <= 16
    assert told["text"] == tiny_target.decode(told["token_ids"])
    assert told["mean_acceptance_length"] == pytest.approx((told["new_tokens"] - 1) / told["rounds"])
    assert told["rule"] == {"name": "rejection", "knobs": {}, "lossless": True}


def test_whatever_a_library_prints_stays_out_of_the_json(run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    encode = Target.encode
    monkeypatch.setattr(Target, "encode", lambda self, prompt, chat=True: sys.stdout.write("a library says hello\n") and encode(self, prompt, chat))
    done = run("decode", "--prompt", PROMPT, "--max-new-tokens", "2", "--json")
    assert json.loads(done.out)["new_tokens"] == 2
    assert "hello" in done.err


def test_a_seed_reproduces_and_another_one_does_not(run: Cli) -> None:
    one, same, other = (decoded(run, "--temperature", "1.5", "--seed", seed)["token_ids"] for seed in ("3", "3", "4"))
    assert one == same != other


def test_knobs_reach_drafter_and_rule_in_either_form(run: Cli) -> None:
    by_flag = decoded(run, "--drafter", "prompt_lookup", "--drafter.ngram", "2", "--drafter.length=5", "--rule", "typical", "--rule.epsilon", "0.2")
    by_spec = decoded(run, "--drafter", "prompt_lookup:ngram=2,length=5")
    assert by_flag["drafter"]["knobs"] == by_spec["drafter"]["knobs"] == {"ngram": 2, "length": 5, "pause": 8}
    assert by_flag["rule"]["knobs"]["epsilon"] == 0.2
    assert by_flag["rule"]["lossless"] is False


def test_sampling_options_device_and_dtype_are_those_given(run: Cli) -> None:
    told = decoded(run, "--temperature", "0.7", "--top-p", "0.9", "--top-k", "11", "--seed", "5", "--dtype", "bfloat16", "--device", "cpu")
    assert told["sampling"] == {"temperature": 0.7, "top_p": 0.9, "top_k": 11, "seed": 5}
    assert (told["dtype"], told["device"]["type"]) == ("bfloat16", "cpu")


def test_decode_streams_the_text_and_prints_its_numbers(run: Cli) -> None:
    done, told = run("decode", "--prompt", PROMPT, "--max-new-tokens", "16"), decoded(run)
    text = flowing(told["text"].encode("utf-8", "replace").decode().split("�")[0])
    assert done.out.startswith(text[:20])
    assert f"{told['mean_acceptance_length']:.2f} tokens per target forward" in done.out
    assert "Acceptance by depth" in done.out


def test_raw_leaves_the_chat_template_out(run: Cli, tiny_target: Target) -> None:
    assert decoded(run, "--raw")["prompt_tokens"] == len(tiny_target.tokenizer(PROMPT).input_ids)
    assert decoded(run)["prompt_tokens"] == len(tiny_target.encode(PROMPT))


def test_prompts_come_from_a_file_or_standard_input(run: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p.txt").write_text(PROMPT)
    monkeypatch.setattr(sys, "stdin", io.StringIO(PROMPT))
    ids = [json.loads(run("decode", "--prompt-file", name, "--max-new-tokens", "8", "--json").out)["token_ids"] for name in (tmp_path / "p.txt", "-")]
    assert ids[0] == ids[1] == decoded(run)["token_ids"][:8]


def test_a_trace_is_saved_and_read_back_with_the_same_numbers(run: Cli, tmp_path: Path) -> None:
    told = decoded(run, "--trace", tmp_path / "out.jsonl.gz", "--baseline")
    read = json.loads(run("trace", tmp_path / "out.jsonl.gz", "--json").out)
    assert read == {key: value for key, value in told.items() if key in read}
    assert told["equal_to_baseline"] is True
    assert told["difference"] is None
    assert told["speedup"] == pytest.approx(told["tokens_per_second"] / told["baseline"]["tokens_per_second"])
    finished = Trace.load(tmp_path / "out.jsonl.gz").finished()
    assert finished is not None
    assert finished.baseline is not None
    assert finished.baseline["token_ids"] == told["token_ids"]


def test_the_environment_gives_the_defaults(run: Cli, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SPECVIZ_TARGET", str(tiny_folder))
    monkeypatch.setenv("SPECVIZ_DTYPE", "bfloat16")
    assert cli.main(["decode", "--prompt", "a", "--max-new-tokens", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--drafter", "wizard"], r"No drafter 'wizard'.*prompt_lookup"),
        (["--rule", "magic"], r"No 'magic' in acceptance.*greedy, rejection, typical"),
        (["--drafter.speed", "3"], r"'prompt_lookup' has no knob 'speed'. Its knobs: ngram, length"),
        (["--drafter", "prompt_lookup:speed=3"], r"no knob 'speed'. Its knobs: ngram, length"),
        (["--drafter.ngram", "99"], r"ngram='99' is out of range. Expected a whole number from 1 to 8"),
        (["--drafter.ngram", "two"], r"ngram='two' is not a whole number"),
        (["--drafter.ngram"], r"--drafter.ngram needs a value"),
        (["--colour.x", "3"], r"--colour.x is not an option. Expected --shape.NAME, --rule.NAME, --drafter.NAME"),
        (["--shape", "dynamic"], r"'prompt_lookup' has no tree shape to choose"),
        (["--shape", "spiral"], r"spiral"),
        (["--temperature", "-1"], r"temperature=-1.0 is out of range"),
        (["--top-p", "0"], r"top_p=0.0 is out of range"),
        (["--temperature", "0.5", "--rule", "greedy"], r"works at temperature 0 only, got 0.5. Use rule 'rejection'"),
        (["--trace", "/nowhere/at/all/x.jsonl"], r"There is no folder /nowhere/at/all"),
        (["--trace", "/tmp"], r"/tmp is a folder"),
        (["--dtype", "int3"], r"dtype='int3' is not known"),
        (["--target", "no-such-model"], r"No model 'no-such-model'"),
    ],
)
def test_a_wrong_value_is_one_clear_line_and_status_2(run: Cli, words: list[str], told: str) -> None:
    done = run("decode", "--prompt", "hello", "--max-new-tokens", "2", *words)
    lines = [line for line in done.err.splitlines() if line.strip() and not line.startswith("loading")]
    assert (done.status, done.out, len(lines)) == (2, "", 1)
    import re

    assert re.search(told, lines[0])
    assert lines[0].startswith("specviz: ")


def test_files_that_cannot_be_read_are_named(run: Cli, tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    assert "Could not read" in run("decode", "--prompt-file", tmp_path / "none").err
    assert "not text in UTF-8" in run("decode", "--prompt-file", tmp_path / "bytes").err
    assert "not a specviz trace" in run("trace", _written(tmp_path / "x", '{"a": 1}\n')).err
    assert "The prompt is empty" in run("decode", "--raw", "--prompt", "").err


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_ctrl_c_is_one_line_and_status_130(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sources, "fetch_default", interrupted)
    assert cli.main(["fetch"]) == 130
    assert capsys.readouterr().err.strip().endswith("specviz: stopped.")


def test_the_first_ctrl_c_asks_the_run_to_stop_and_the_second_insists() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), stop_on_interrupt() as stopped:
        assert not stopped()
        os.kill(os.getpid(), signal.SIGINT)
        assert stopped()
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the second Ctrl-C did not end the block")
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupted_run_keeps_its_numbers(run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = Target.forward

    def interrupting(self: Target, *args: Any, **options: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return forward(self, *args, **options)

    monkeypatch.setattr(Target, "self_check", lambda self: None)
    monkeypatch.setattr(Target, "forward", interrupting)
    told = json.loads(run("decode", "--prompt", PROMPT, "--json", "--baseline").out)
    assert (told["finish_reason"], told["rounds"]) == ("stopped", 1)
    assert "baseline" not in told


def test_list_holds_everything_that_the_registries_find(run: Cli) -> None:
    told = json.loads(run("list", "--json").out)
    for kind, package in {"drafters": drafters, "rules": acceptance, "shapes": shapes, "plots": plots}.items():
        assert [entry["name"] for entry in told[kind]] == list(discover(package))
        assert all(entry["summary"] for entry in told[kind])
    assert {entry["name"]: entry["lossless"] for entry in told["rules"]} == {"greedy": True, "rejection": True, "typical": False}
    knobs = {entry["name"]: [knob["name"] for knob in entry["knobs"]] for entry in told["shapes"]}
    assert knobs["dynamic"][:3] == ["nodes", "depth", "top_k"]


def test_list_prints_tables(run: Cli) -> None:
    out = run("list").out
    assert all(name in out for name in ("Drafters", "prompt_lookup", "ngram=3", "(lossless)", "medusa_63", "race"))


def test_knobs_are_split_off_wherever_they_stand() -> None:
    plain, knobs = take_knobs(["decode", "--shape.top-k", "4", "--prompt", "x", "--rule.epsilon=0.1", "--drafter.note=a=b"])
    assert plain == ["decode", "--prompt", "x"]
    assert knobs == {"shape": {"top_k": "4"}, "rule": {"epsilon": "0.1"}, "drafter": {"note": "a=b"}}
    with pytest.raises(BadInput, match="needs a value"):
        take_knobs(["--shape.depth", "--json"])


def test_a_verb_without_knobs_refuses_them(run: Cli) -> None:
    assert "--shape.depth is not an option of 'list'" in run("list", "--shape.depth", "3").err


def test_json_lists_of_plain_values_take_one_line_and_keep_their_content() -> None:
    record = {"a": [1, 2.5, None], "b": [[1], {"c": ["x\ny", "[z", "w ]"]}], "d": []}
    assert json.loads(dump(record)) == record
    assert '"a": [1, 2.5, null]' in dump(record)


def test_fetch_prints_the_folder(run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(progress: Callable[[float, str], None], force: bool) -> Path:
        progress(0.5, "half [way]")
        return Path(f"/models/here-{force}")

    monkeypatch.setattr(sources, "fetch_default", fetch)
    assert run("fetch", "--force").out == "/models/here-True\n"


def test_every_verb_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert {"bench", "decode", "distil", "features", "fetch", "list", "report", "trace", "train"} <= set(cli.find_verbs())
    for verb in cli.find_verbs():
        with pytest.raises(SystemExit) as ended:
            cli.main([verb, "--help"])
        assert ended.value.code == 0
        assert len(capsys.readouterr().out) > 100


def test_train_binds_plan_and_knobs(run: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from specviz.training import features, fit

    calls: list[tuple] = []

    def fitted(method: str, folder: Path, **options: Any) -> Any:
        calls.append((method, folder, options["plan"].epochs, options["plan"].rate, options["knobs"], options["run"]))
        return SimpleNamespace(folder=Path("/out"), chain_tau=1.8, acceptance=(0.6, 0.5))

    monkeypatch.setattr(fit, "fit", fitted)
    monkeypatch.setattr(features, "capture", lambda data, out, **options: SimpleNamespace(folder=Path("captured")))
    words = ["--plan", "epochs=2", "--plan", "rate=0.01", "--knob", "unroll=3", "--knob", "decay=0.5", "--run", tmp_path]
    assert "chain tau 1.800" in run("train", "eagle", "--features", tmp_path, *words).out
    assert run("train", "eagle", "--data", "x.jsonl").status == 0
    assert calls[0] == ("eagle", [tmp_path], 2, 0.01, {"unroll": 3, "decay": 0.5}, tmp_path)
    assert calls[1][1] == [Path("captured")]
    assert run("train", "eagle", "--features", tmp_path, "--plan", "data_share=0.25").status == 0
    assert calls[2][-1] == Path("runs/fit/eagle-share0.25")
    assert "Give --features FOLDER, or --data" in run("train", "eagle").err
    assert "The plan has no 'epoch'. It has: epochs" in run("train", "eagle", "--features", tmp_path, "--plan", "epoch=2").err
    assert "is not NAME=VALUE" in run("train", "eagle", "--features", tmp_path, "--knob", "unroll").err
