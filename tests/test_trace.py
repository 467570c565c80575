"""Recording, saving, loading and replaying; and that no file, however damaged, gives anything but a trace or BadFile."""

from __future__ import annotations

import gzip
import json
import os
import stat
from pathlib import Path
from random import Random

import pytest
from recorded import run_knowing, run_tiny

from specviz.errors import BadFile, BadInput
from specviz.events import Drafted, Finished, Verified, to_json
from specviz.sampling import Sampling
from specviz.trace import HEADER, Trace

HOSTILE = [
    '<img src=x onerror="alert(1)">',
    "{{constructor}}",
    "${alert(1)}",
    "</script><script>alert(1)</script>",
    "\u202e\u0000\x1b[31m",
    "🙂\n\t'\"`",
    "__import__('os').system('x')",
]


@pytest.fixture(scope="module")
def trace(tiny_target) -> Trace:
    return run_knowing(tiny_target, sampling=Sampling(0.8, seed=3))[0]


@pytest.fixture(scope="module")
def lines(trace) -> list[str]:
    return trace.dumps().splitlines()


def joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def records(trace: Trace) -> list[dict]:
    return [to_json(event) for event in trace.events]


# -- round trips


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_a_saved_trace_comes_back_the_same(trace, tmp_path, name):
    path = trace.save(tmp_path / name)
    assert path == tmp_path / name
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")
    back = Trace.load(path)
    assert records(back) == records(trace)
    assert records(Trace(list(back.replay()))) == records(trace)
    assert (back.strings, back.rows, back.emitted()) == (trace.strings, trace.rows, trace.emitted())
    assert sorted(tmp_path.iterdir()) == [path], "a partial file was left"
    assert Trace.load(str(path)).dumps().splitlines()[1:] == trace.dumps().splitlines()[1:]


def test_the_extension_does_not_decide_what_a_file_is(trace, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(gzip.compress(trace.dumps().encode()))
    assert records(Trace.load(tmp_path / "a.jsonl")) == records(trace)


def test_saving_where_nothing_can_be_written_says_so(trace, tmp_path):
    with pytest.raises(BadInput, match=r"Could not write .*run\.jsonl"):
        trace.save(tmp_path / "missing" / "run.jsonl")


def test_recording_passes_every_event_on(trace):
    copy = Trace()
    assert list(copy.record(iter(trace.events))) == trace.events == copy.events


def test_what_follows_from_the_events(trace, tiny_target):
    assert trace.rows == (0,)
    assert trace.started().prompt == "to be or not"
    assert trace.prefilled().token == trace.emitted()[0]
    assert list(trace.finished().tokens) == trace.emitted()
    assert len(trace.rounds()) == trace.finished().rounds
    assert all(r.drafted.round == r.verified.round == i for i, r in enumerate(trace.rounds()))
    used = {token for e in trace.events if isinstance(e, Drafted) for token in e.tokens}
    assert used <= trace.strings.keys()
    assert trace.started(0).meta["sampling"]["seed"] == 3


def test_a_row_that_is_not_there(trace):
    with pytest.raises(BadFile, match="no start of row 4"):
        trace.started(4)
    assert (trace.prefilled(4), trace.finished(4), trace.rounds(4), trace.emitted(4)) == (None, None, [], [])


def test_a_baseline_is_added_to_its_row_only(trace):
    more = trace.with_baseline({"tokens": 3, "seconds": {"total": 1.0}})
    assert more.finished().baseline == {"tokens": 3, "seconds": {"total": 1.0}}
    assert trace.finished().baseline is None
    assert Trace.loads(more.dumps()).finished().baseline["tokens"] == 3


def test_a_run_that_is_still_going_can_be_saved(trace):
    half = Trace(trace.events[:6])
    assert Trace.loads(half.dumps()).finished() is None


def test_a_run_without_detail_comes_back_too(tiny_target):
    lean = run_tiny(tiny_target, detail=False)
    back = Trace.loads(lean.dumps())
    assert records(back) == records(lean)
    assert back.rounds() == []
    assert back.emitted() == lean.emitted()


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_carried_as_text(trace, text):
    changed = records(trace)
    changed[0]["prompt"] = text
    changed[0]["meta"] = {**changed[0]["meta"], "drafter": {"name": text, text: [text]}}
    changed[0]["strings"] = dict.fromkeys(changed[0]["strings"], text)
    changed[-1]["text"] = text
    back = Trace.loads(joined([json.dumps({HEADER: 1}), *map(json.dumps, changed), json.dumps({"end": len(changed)})]))
    assert (back.started().prompt, back.finished().text) == (text, text)
    assert Trace.loads(back.dumps()).started().meta == changed[0]["meta"]


def test_loading_runs_nothing(trace, tmp_path, monkeypatch):
    """No pickle, no eval, no import hides in the loader."""
    import builtins
    import pickle

    path = trace.save(tmp_path / "run.jsonl.gz")
    for module, name in ((builtins, "eval"), (builtins, "exec"), (pickle, "loads"), (pickle, "load")):
        monkeypatch.setattr(module, name, lambda *a, **k: pytest.fail("something was executed"))
    Trace.load(path)


# -- damage


def test_a_missing_file_and_a_folder(tmp_path):
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(BadFile, match="Could not read"):
            Trace.load(path)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda lines: [], "is empty"),
        (lambda lines: ["hello"], "line 1 is not valid JSON"),
        (lambda lines: ["[]", *lines[1:]], "not a specviz trace"),
        (lambda lines: ["{}"], "not a specviz trace"),
        (lambda lines: ['{"specviz_trace": "1"}', *lines[1:]], "not a specviz trace"),
        (lambda lines: ['{"specviz_trace": true}', *lines[1:]], "not a specviz trace"),
        (lambda lines: ['{"specviz_trace": 0}', *lines[1:]], "not a specviz trace"),
        (lambda lines: ['{"specviz_trace": 99}', *lines[1:]], r"newer specviz \(format 99; this one reads up to 1\)"),
        (lambda lines: lines[:-1], "cut short"),
        (lambda lines: lines[:5] + lines[6:], "cut short"),
        (lambda lines: lines[:1], "cut short"),
        (lambda lines: [lines[0], '{"end": 0}'], "holds no run"),
        (lambda lines: [*lines[:5], lines[5][:40], *lines[6:]], "line 6 is not valid JSON"),
        (lambda lines: [*lines[:5], '{"event": "party"}', *lines[6:]], "line 6: Expected an event"),
        (lambda lines: [lines[0], *lines[2:-1], f'{{"end": {len(lines) - 3}}}'], "holds no run"),
        (lambda lines: [*lines[:1], lines[1].replace('"row":0', '"row":1'), *lines[2:]], "row 0, which never started"),
        (lambda lines: [lines[0], lines[1], *lines[1:-1], f'{{"end": {len(lines) - 1}}}'], "twice"),
        (lambda lines: [lines[0], *lines[1:3], *reversed(lines[3:5]), *lines[5:]], "do not match the drafted tree"),
        (lambda lines: [*lines[:3], lines[3].replace('"tokens":[', '"tokens":[NaN,', 1), *lines[4:]], "NaN is not JSON"),
        (lambda lines: [*lines[:3], lines[3].replace('"draft":', '"draft":1e999,"x":', 1), *lines[4:]], "'seconds'"),
        (lambda lines: [lines[0], lines[1].replace('"prompt":"', '"prompt":"\\ud800', 1), *lines[2:]], "half a character"),
        (lambda lines: [lines[0], "[" * 100_000, *lines[2:]], "line 2 is not valid JSON"),
        (lambda lines: [lines[0], lines[1].replace('"meta":{', '"meta":{"deep":' + "[" * 400 + "]" * 400 + ",", 1), *lines[2:]], "'meta'"),
        (lambda lines: [lines[0], "[" * 900 + "]" * 900, *lines[2:]], "Expected an event"),
        (lambda lines: [lines[0], '{"event":"started","row":' + "9" * 5000 + "}", *lines[2:]], "line 2 is not valid JSON"),
    ],
)
def test_a_damaged_file_says_what_is_wrong(lines, change, expected):
    with pytest.raises(BadFile, match=expected):
        Trace.loads(joined(change(list(lines))))


@pytest.mark.parametrize("kind", ["prompt_ids", "token", "tokens", "emitted", "top", "tops", "pruned", "wanted"])
def test_every_id_has_a_text(trace, kind):
    """Whoever shows a trace may look every id up."""
    changed, unknown = records(trace), 999_999
    for record in changed:
        if kind in record:
            value = record[kind]
            if kind == "token":
                record[kind] = unknown
            elif kind == "top":
                value[0][0] = unknown
            elif kind == "tops":
                value["0"] = [[unknown, 0.5]]
            elif kind == "pruned":
                value.append([unknown, 0, 0.5])
            else:
                value[0] = unknown
            break
    with pytest.raises(BadFile, match="no text for token ids"):
        Trace.loads(joined([json.dumps({HEADER: 1}), *map(json.dumps, changed), json.dumps({"end": len(changed)})]))


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda raw: raw[: len(raw) // 2], "damaged gzip"),
        (lambda raw: raw[:20], "damaged gzip"),
        (lambda raw: raw[:-4], "damaged gzip"),
        (lambda raw: raw[:200] + bytes([raw[200] ^ 255]) + raw[201:], "damaged gzip|not text|not valid JSON"),
        (lambda raw: b"\x1f\x8b" + b"\x00" * 30, "damaged gzip"),
        (lambda raw: b"\xff\xfe" + raw, "not text"),
        (lambda raw: b"PK\x03\x04" + raw, "not text|not valid JSON"),
        (lambda raw: b"", "is empty"),
    ],
)
def test_damaged_bytes(trace, tmp_path, damage, expected):
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(damage(gzip.compress(trace.dumps().encode())))
    with pytest.raises(BadFile, match=expected):
        Trace.load(path)


def test_what_is_too_large_is_refused_before_it_is_unpacked(tmp_path):
    bomb, flat = tmp_path / "bomb.jsonl.gz", tmp_path / "flat.jsonl"
    bomb.write_bytes(gzip.compress(b"\n" * 8_000_000))
    assert bomb.stat().st_size < 20_000
    with pytest.raises(BadFile, match="unpacks to more than 1 MiB"):
        Trace.load(bomb, limit=1 << 20)
    flat.write_bytes(b"x" * 3000)
    with pytest.raises(BadFile, match="larger than"):
        Trace.load(flat, limit=2000)


# -- fuzz

JUNK = [None, True, -1, 3, 2**70, 0.5, 1e300, "", "x", [], {}, [[]], [None], {"a": 1}, [[1, 2, 3]], "0", [-1], {"0": [[1, 0.5]]}]


def mutate(rng: Random, value: object, depth: int = 0) -> object:
    """Returns the value with one random change somewhere inside."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        if rng.random() < 0.05:
            return {**value, rng.choice(["²", "99999", "-1", "row", "9" * 30]): value[key]}
        return {**value, key: mutate(rng, value[key], depth + 1)}
    if isinstance(value, list) and value and rng.random() < 0.85:
        place = rng.randrange(len(value))
        if rng.random() < 0.15:
            return value[:place] + value[place + 1 :]
        return [*value[:place], mutate(rng, value[place], depth + 1), *value[place + 1 :]]
    return rng.choice(JUNK)


def use(trace: Trace) -> None:
    """What every reader does with a trace; an accepted file must survive it."""
    for row in trace.rows:
        trace.rounds(row), trace.emitted(row), trace.finished(row), trace.started(row)
    for event in trace.events:
        if isinstance(event, Drafted):
            [trace.strings[token] for token in event.tokens]
        if isinstance(event, Verified):
            [trace.strings[token] for token in event.emitted]
        if isinstance(event, Finished):
            [trace.strings[token] for token in event.tokens]
    json.dumps([to_json(event) for event in trace.events], allow_nan=False).encode()


def test_fuzzed_records_give_a_trace_or_bad_file(trace):
    rng, base, refused = Random(1), json.loads(json.dumps(records(Trace(trace.events[:8])))), 0
    for _ in range(1500):
        changed = list(base)
        for _ in range(rng.choice([1, 1, 2])):
            place = rng.randrange(len(changed))
            changed[place] = mutate(rng, changed[place])
        try:
            use(Trace.loads(joined([json.dumps({HEADER: 1}), *map(json.dumps, changed), json.dumps({"end": len(changed)})])))
        except BadFile:
            refused += 1
    assert 500 < refused < 1500  # unknown keys and other texts are fine, most changes are not


def test_fuzzed_bytes_give_a_trace_or_bad_file(trace, tmp_path):
    rng, path = Random(2), tmp_path / "run.jsonl"
    for raw in (trace.dumps().encode(), gzip.compress(trace.dumps().encode())):
        for _ in range(150):
            data = bytearray(raw)
            for _ in range(rng.randrange(1, 4)):
                place = rng.randrange(len(data))
                match rng.randrange(3):
                    case 0:
                        data[place] = rng.randrange(256)
                    case 1:
                        del data[place : place + rng.randrange(1, 50)]
                    case _:
                        data[place:place] = rng.randbytes(rng.randrange(1, 5))
            path.write_bytes(bytes(data))
            try:
                use(Trace.load(path))
            except BadFile:
                continue


def test_the_recorded_traces_of_this_repository_load():
    folder = Path(__file__).resolve().parent.parent / "traces"
    for path in sorted(folder.glob("*.jsonl*")):
        use(Trace.load(path))


def test_saving_replaces_no_device_and_follows_a_link(tmp_path):
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    with pytest.raises(BadInput, match="not a regular file"):
        Trace().save(pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    real, link = tmp_path / "real.jsonl", tmp_path / "link.jsonl"
    real.write_text("old")
    link.symlink_to(real)
    Trace().save(link)
    assert link.is_symlink()
    assert "specviz_trace" in real.read_text()
