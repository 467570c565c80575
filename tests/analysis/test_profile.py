"""Profiles: numbers between the measured ones, and the file that remembers them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_costs import SETTING, costs, profile

from specviz.analysis.profile import Spread, interpolate
from specviz.analysis.profile_file import profile_path, read_profile, remembered_profiles, setting_of, to_json, write_profile
from specviz.errors import BadFile, BadInput


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECVIZ_CACHE", str(tmp_path))
    return tmp_path


def test_between_measured_sizes_costs_are_linear() -> None:
    curve = {1: 10.0, 4: 16.0, 8: 18.0}
    assert [interpolate(curve, at) for at in (0, 1, 2, 4, 6, 8, 10)] == [10.0, 10.0, 12.0, 16.0, 17.0, 18.0, 19.0]
    assert interpolate({1: 10.0, 8: 9.0}, 16) == 9.0  # noise must not promise that larger is cheaper
    assert interpolate({8: 5.0}, 100) == 5.0
    with pytest.raises(BadInput, match="no points"):
        interpolate({}, 1)


def test_a_spread_is_median_and_quartiles() -> None:
    assert Spread.of([4.0, 1.0, 2.0, 3.0, 5.0]) == Spread(3.0, 2.0, 4.0, 5)
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0, 1)


def test_what_is_written_is_read_again(folder: Path) -> None:
    made = profile({1: 10.0, 8: 15.0}, costs({1: 0.5, 8: 6.0}), batch={4: {1: Spread(11.0, 10.0, 12.0, 3)}}, machine={"bandwidth_bytes_per_s": 1e10, "peak_flops_per_s": 1e11})  # fmt: skip
    assert read_profile(SETTING) is None
    path = write_profile(made)
    assert path.is_relative_to(folder)
    assert read_profile(SETTING) == made
    assert remembered_profiles() == [made]
    assert [file.name for file in path.parent.iterdir()] == [path.name]  # nothing half-written stays


def test_the_record_has_the_names_that_were_promised() -> None:
    told = to_json(profile({1: 10.0, 8: 15.0}, costs({8: 6.0})))
    assert told["forward_ms"] == {"1": 10.0, "8": 15.0}
    assert {"machine", "target", "forward_spread", "batch_ms", "drafters", "floor"} <= told.keys()
    assert told["drafters"]["eagle"]["budgets"]["8"]["draft_ms"] == 6.0
    assert told["drafters"]["eagle"]["step_ms"] == 2.0
    json.dumps(told, allow_nan=False)


@pytest.mark.parametrize(("part", "key", "value"), [("device", "threads", 8), ("device", "processor", "another"), ("device", "graphs", "cuda"), ("versions", "torch", "3"), ("target", "fingerprint", {"weights": "bbbb"})])  # fmt: skip
def test_another_machine_has_another_file(part: str, key: str, value: object) -> None:
    other = {**SETTING, part: {**SETTING[part], key: value}}
    assert profile_path(other) != profile_path(SETTING)
    assert profile_path({**SETTING, "dtype": "bfloat16"}) != profile_path(SETTING)
    write_profile(profile({1: 10.0}))
    assert read_profile(other) is None


def test_a_target_s_name_cannot_lead_out_of_the_folder(folder: Path) -> None:
    for name in ("../../etc/passwd", "owner/name", "", "...", "x" * 500, 7):
        assert profile_path({**SETTING, "target": {"name": name}}).parent == folder / "profiles"


@pytest.mark.parametrize("damage", ["", "not json", "[]", "{}", '{"format": "specviz-profile-9"}', "\x00", '{"a":' * 3000])
def test_a_damaged_file_is_named(damage: str) -> None:
    path = write_profile(profile({1: 10.0}))
    path.write_text(damage)
    with pytest.raises(BadFile, match=path.name):
        read_profile(SETTING)
    assert remembered_profiles() == []


@pytest.mark.parametrize(("key", "value"), [("forward_ms", {"1": -3.0}), ("forward_ms", {"1": "fast"}), ("forward_ms", {}), ("setting", {"target": 7}), ("drafters", {"eagle": {}})])  # fmt: skip
def test_numbers_that_cannot_be_measurements_are_refused(key: str, value: object) -> None:
    path = write_profile(profile({1: 10.0}))
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(BadFile, match="damaged"):
        read_profile(SETTING)


def test_a_folder_that_cannot_be_written_says_what_to_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "file").write_text("")
    monkeypatch.setenv("SPECVIZ_CACHE", str(folder / "file"))
    with pytest.raises(BadInput, match="SPECVIZ_CACHE"):
        write_profile(profile({1: 10.0}))


def test_an_odd_meta_has_no_setting() -> None:
    assert setting_of({}) is None
    assert setting_of({**SETTING, "device": [1]}) is None
    assert setting_of({**SETTING, "seed": 3}) == SETTING
