"""Bench: what it measures, how it compares, and that a wrong rule cannot hide."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from cli_fixture import Cli, run_fixture  # noqa: F401
from recorded import Knowing

from specviz.acceptance.base import Verdict
from specviz.analysis.summary import Summary
from specviz.analysis.versus import Pair, Run, equal_share, result
from specviz.bench import Bench, Overhead, Plan, measure_gap, trace_overhead
from specviz.build import build_rule, parse_spec
from specviz.commands import base
from specviz.drafters.base import Drafter, Feedback, RowFlow, per_row
from specviz.errors import BadFile, BadInput
from specviz.evidence import Evidence
from specviz.prompts import BUILT_IN, Prompt, read_prompts
from specviz.registry import Bound
from specviz.sampling import Sampling, Uniform
from specviz.target import Target
from specviz.tree import Draw, TokenTree

PROMPTS = [Prompt("to be or not", "p/1", "verse"), Prompt("one two three", "p/2", "count"), Prompt("the cat sat", "p/3", "verse")]


def bench_of(target: Target, rule: Bound | None = None, sampling: Sampling | None = None, new: int = 12, specs: str = "prompt_lookup") -> Bench:
    return Bench(target, [parse_spec(specs)], Plan(rule or build_rule("rejection"), sampling or Sampling(), new))


def knowing(bench: Bench, prompt: Prompt, miss: int = 4) -> Drafter:
    plain = bench.run(bench.baseline, prompt, bench.plan.max_new_tokens)
    return Knowing(bench.target, [*bench.ids(prompt), *plain.tokens], miss)


def accept_all(tree: TokenTree, evidence: Evidence) -> Verdict:
    """A planted fault: takes the first child whatever the target says."""
    path, node = [], 0
    while tree.children[node]:
        node = tree.children[node][0]
        path.append(node)
    return Verdict(tuple(path), evidence.choice(node), ())


class Sampled(Drafter):
    """Draws one child from a flat q, as a draft model at T > 0 does."""

    @per_row
    def draft(self, seen: Feedback) -> RowFlow:
        q = torch.full((self.target.vocab_size,), 1.0 / self.target.vocab_size, dtype=torch.float64)
        while True:
            token = seen.uniform.draw(q, len(seen.tokens), "draft")
            seen = yield TokenTree((seen.next_token, token), (-1, 0), (1.0, float(q[token])), draws=(Draw(0, (1,), q),))


def test_every_drafter_meets_the_baseline_on_every_prompt(tiny_target: Target) -> None:
    bench = bench_of(tiny_target)
    found = list(bench.pairs(PROMPTS))
    assert [(name, pair.run.prompt) for name, pair in found] == [("prompt_lookup", prompt) for prompt in PROMPTS]
    for _, pair in found:
        assert pair.run.tokens == pair.baseline.tokens
        assert pair.difference is None
        assert pair.baseline.summary.tau == 1.0


def test_who_goes_first_moves_on_with_every_prompt(tiny_target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, order = bench_of(tiny_target, new=2), []
    decode = Bench.run

    def noting(self: Bench, drafter: Drafter, *args: object) -> Run:
        order.append(drafter.name)
        return decode(self, drafter, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Bench, "run", noting)
    list(bench.pairs(PROMPTS))
    assert order == ["autoregressive", "prompt_lookup", "prompt_lookup", "autoregressive", "autoregressive", "prompt_lookup"]


def test_autoregressive_may_itself_be_measured(tiny_target: Target) -> None:
    ((name, pair),) = bench_of(tiny_target, specs="autoregressive", new=4).pairs(PROMPTS[:1])
    assert name == "autoregressive"
    assert pair.run is not pair.baseline


def test_a_rule_that_accepts_anything_is_found_out_with_the_gap_of_the_logits(tiny_target: Target) -> None:
    bench = bench_of(tiny_target, Bound("accept_all", accept_all))
    drafter = knowing(bench, PROMPTS[0])
    pair = bench._pair(bench.run(drafter, PROMPTS[0], 12), bench.run(bench.baseline, PROMPTS[0], 12))
    found = pair.difference
    assert found is not None
    ids = [*bench.ids(PROMPTS[0]), *pair.baseline.tokens[: found.position]]
    with torch.inference_mode():
        logits = tiny_target.model(input_ids=torch.tensor([ids])).logits[0, -1]
    assert pair.baseline.tokens[found.position] == found.baseline == int(logits.argmax())
    assert found.gap == pytest.approx(float(logits[found.baseline] - logits[found.other]), abs=1e-4)
    assert found.resolution == pytest.approx(2.0**-23 * float(logits.abs().max()))
    assert found.gap > 100 * (found.resolution or 0)  # no near-tie: a fault


def test_with_the_true_rule_the_same_drafter_is_exact_and_gains(tiny_target: Target) -> None:
    for sampling in (Sampling(), Sampling(1.2, seed=3)):
        bench = bench_of(tiny_target, sampling=sampling)
        pair = bench._pair(bench.run(knowing(bench, PROMPTS[0]), PROMPTS[0], 12), bench.run(bench.baseline, PROMPTS[0], 12))
        assert (pair.difference, pair.incomparable) == (None, None)
        assert (pair.run.summary.tau or 0) > 1.5


def test_above_temperature_0_the_gap_is_the_distance_of_the_draw_from_the_edge(tiny_target: Target) -> None:
    from specviz.analysis.compare import Difference
    from specviz.sampling import draw, warp

    sampling, ids = Sampling(1.0, seed=9), list(range(10, 20))
    with torch.inference_mode():
        p = warp(tiny_target.model(input_ids=torch.tensor([ids])).logits[0, -1:], sampling)[0]
    u = Uniform(9)(len(ids), "token")
    token = draw(p, u)
    found = measure_gap(tiny_target, ids, Difference(0, token, token + 1), sampling)
    low, high = float(p[:token].sum()), float(p[: token + 1].sum())
    assert low <= u < high
    assert found.gap == pytest.approx(min(u - low, high - u), abs=1e-5)
    assert found.unit == "probability"


def test_sampled_children_need_not_give_the_same_text_and_the_reason_is_told(tiny_target: Target) -> None:
    bench = bench_of(tiny_target, sampling=Sampling(1.0, seed=1))
    bench.drafters["sampled"] = Sampled(tiny_target)
    pairs = [pair for name, pair in bench.pairs(PROMPTS[:2]) if name == "sampled"]
    told = result("sampled", pairs)
    assert told["equal_to_baseline"] is None
    assert "in distribution" in told["why_not_comparable"]
    assert told["differences"] == []
    assert [one["equal_to_baseline"] for one in told["per_prompt"]] == [None, None]


def pair_of(prompt: Prompt, mine: float, plain: float, equal: bool = True) -> Pair:
    """A pair by hand: 10 tokens in 5 rounds in `mine` seconds against 10 in 10 rounds in `plain` seconds."""
    from specviz.analysis.compare import Difference

    runs = [Summary(rounds=rounds, decoded_tokens=10, new_tokens=11, seconds={"verify": seconds}) for rounds, seconds in ((5, mine), (10, plain))]
    return Pair(Run(prompt, runs[0], ()), Run(prompt, runs[1], ()), None if equal else Difference(3, 1, 2))


def test_the_result_is_worked_out_from_totals_with_medians_and_tasks_beside_it() -> None:
    told = result("eagle", [pair_of(PROMPTS[0], 1.0, 3.0), pair_of(PROMPTS[1], 2.0, 2.0, equal=False), pair_of(PROMPTS[2], 1.0, 2.0)])
    assert (told["tau"], told["tokens_per_second"], told["baseline_tokens_per_second"]) == (2.0, 30 / 4.0, 30 / 7.0)
    assert (told["speedup"], told["speedup_median"]) == (pytest.approx(7 / 4), 2.0)
    assert told["equal_to_baseline"] == pytest.approx(2 / 3)
    assert [entry["prompt"] for entry in told["differences"]] == ["p/2"]
    assert {task: (entry["prompts"], entry["speedup"]) for task, entry in told["tasks"].items()} == {"count": (1, 1.0), "verse": (2, 2.5)}
    assert told["cost"]["round_in_plain_steps"] == pytest.approx(told["tau"] / told["speedup"])
    assert equal_share([]) is None


def test_overhead_is_the_median_ratio_of_runs_side_by_side(tiny_target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Overhead((2.0, 3.0, 10.0), (1.0, 2.0, 2.0)).ratio == 2.0
    order: list[bool] = []
    monkeypatch.setattr("specviz.bench.drain", lambda bench, drafter, prompt, detail: order.append(detail) or (1.5 if detail else 1.0))
    found = trace_overhead(bench_of(tiny_target), "prompt_lookup", PROMPTS[:2], 2)
    assert (found.ratio, len(found.plain), len(found.recorded)) == (1.5, 4, 4)
    assert order == [False, True, True, False, True, False, False, True]


def test_prompts_are_read_in_all_three_forms(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": "x/1", "task": "qa", "prompt": "one"}\n\n{"turns": ["two", "then"]}\n')
    (tmp_path / "b.txt").write_text("first line\n\nsecond line\n")
    assert read_prompts(tmp_path / "a.jsonl") == [Prompt("one", "x/1", "qa"), Prompt("two", "line 3")]
    assert read_prompts(tmp_path / "b.txt", 1) == [Prompt("first line", "b/1")]


@pytest.mark.parametrize(
    ("text", "told"),
    [('{"prompt": ""}', "line 1 has no prompt"), ('{"prompt": "a"}\n{"turns": []}', "line 2 has no prompt"), ("{broken", "line 1 is not valid JSON")],
)
def test_a_damaged_prompt_is_named_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "p").write_text(text)
    with pytest.raises(BadFile, match=told):
        read_prompts(tmp_path / "p")


def test_a_file_without_prompts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("\n")
    for name in ("p", "none"):
        with pytest.raises(BadInput):
            read_prompts(tmp_path / name)


SHORT = ("--max-new-tokens", "6", "--limit", "3")


def test_bench_prints_one_json_object_or_writes_it_to_a_file(run: Cli, tmp_path: Path) -> None:
    done = run("bench", *SHORT, "--drafters", "prompt_lookup,prompt_lookup:ngram=1,length=4", "--json")
    told = json.loads(done.out)
    assert [entry["name"] for entry in told["drafters"]] == ["prompt_lookup", "prompt_lookup:ngram=1,length=4"]
    for entry in told["drafters"]:
        assert entry["equal_to_baseline"] == 1.0
        assert entry["speedup"] == pytest.approx(entry["tokens_per_second"] / entry["baseline_tokens_per_second"])
        assert {"name", "tau", "tokens_per_second", "speedup", "equal_to_baseline", "seconds", "acceptance_by_depth", "acceptance_histogram", "tasks"} <= set(
            entry
        )
    assert told["meta"]["prompts"] == {"file": None, "sha256": None, "count": 3, "limit": 3}
    assert told["baseline"]["mean_acceptance_length"] == 1.0
    done = run("bench", *SHORT, "--json", tmp_path / "out.json")
    assert "tau" in done.out
    assert json.loads((tmp_path / "out.json").read_text())["drafters"][0]["prompts"] == 3


def test_bench_writes_what_it_knows_after_every_prompt(run: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, seen = Bench.pairs, []

    def broken_off(self: Bench, prompts: list[Prompt]) -> Iterator[tuple[str, Pair]]:
        for count, found in enumerate(real(self, prompts)):
            if count == 5:  # in the middle of the third prompt
                raise BadInput("stopped here")
            seen.append((tmp_path / "out.json").exists())
            yield found

    monkeypatch.setattr(Bench, "pairs", broken_off)
    assert run("bench", *SHORT, "--drafters", "prompt_lookup,autoregressive", "--explain", "--json", tmp_path / "out.json").status == 2
    assert seen == [False, False, True, True, True]
    kept = json.loads((tmp_path / "out.json").read_text())
    assert [(entry["name"], entry["prompts"]) for entry in kept["drafters"]] == [("prompt_lookup", 2), ("autoregressive", 2)]
    assert kept["meta"]["prompts"] == {"file": None, "sha256": None, "count": 2, "limit": 3}


def test_bench_takes_prompts_of_a_file_and_names_it_without_its_folder(run: Cli, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "one two", "task": "count"}\n')
    meta = json.loads(run("bench", "--max-new-tokens", "4", "--prompts", tmp_path / "p.jsonl", "--json").out)["meta"]
    assert (meta["prompts"]["file"], meta["prompts"]["count"]) == ("p.jsonl", 1)
    assert len(meta["prompts"]["sha256"]) == 64
    assert str(tmp_path) not in json.dumps(meta["prompts"])


def test_bench_prints_tables_with_tasks_and_definitions(run: Cli) -> None:
    out = run("bench", *SHORT).out
    assert all(word in out for word in ("prompt_lookup", "speed-up", "100%", "By task", BUILT_IN[1].task, "tau: tokens per target forward"))


def test_bench_measures_what_recording_costs(run: Cli) -> None:
    told = json.loads(run("bench", "--trace-overhead", "--max-new-tokens", "4", "--limit", "1", "--repeats", "2", "--json").out)
    (entry,) = told["trace_overhead"]
    assert len(entry["plain_seconds"]) == len(entry["recorded_seconds"]) == 2
    assert entry["ratio"] > 0.1
    assert "median ratio" in run("bench", "--trace-overhead", "--max-new-tokens", "4", "--limit", "1", "--repeats", "1").out


@pytest.mark.parametrize(
    "words", [("--drafters", ""), ("--drafters", "prompt_lookup,prompt_lookup"), ("--drafters", "wizard"), ("--prompts", "/nowhere"), ("--shape.depth", "3")]
)
def test_bench_refuses_what_it_cannot_measure(run: Cli, words: tuple[str, ...]) -> None:
    done = run("bench", *words)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("specviz: ")


def test_differences_are_told_in_the_table_with_how_close_they_were() -> None:
    from specviz.commands.show_bench import bench_remarks

    near = {"prompt": "p/1", "position": 4, "baseline": 7, "other": 8, "gap": 1e-7, "resolution": 2e-6, "unit": "logit", "dtype": "float32"}
    entries = [{"name": "eagle", "why_not_comparable": None, "differences": [near, {**near, "gap": 0.5}]}]
    lines = list(bench_remarks({"drafters": entries}))
    assert "differs at new token 5: id 8 instead of 7; logit gap 1e-07, within what float32 tells apart there (2e-06)" in lines[1]
    assert "beyond what float32" in lines[2]


def test_a_record_that_breaks_off_while_it_is_written_leaves_the_last_one_whole(tmp_path, monkeypatch):
    place, write = tmp_path / "bench.json", Path.write_text
    base.write_record(place, {"prompts": 1})

    def broken(self, text, **how):
        write(self, text[:5], **how)
        raise OSError("full")

    monkeypatch.setattr(Path, "write_text", broken)
    with pytest.raises(OSError, match="full"):
        base.write_record(place, {"prompts": 2})
    monkeypatch.undo()
    assert json.loads(place.read_text()) == {"prompts": 1}
    assert [one.name for one in tmp_path.iterdir()] == ["bench.json"]
    link = tmp_path / "link.json"
    link.symlink_to(place)
    base.write_record(link, {"prompts": 3})
    assert json.loads(place.read_text()) == {"prompts": 3}
    assert link.is_symlink()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["bench.json", "link.json"]
