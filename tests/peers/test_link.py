"""The process of a peer: what is said of one that cannot start, breaks off, hangs, or prints where it should not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from specviz.peers import _link
from specviz.peers._environment import environment
from specviz.peers._link import Link
from specviz.peers.base import Job, PeerFailed

JOB = Job("tiny", "tiny", "cpu", "float32", 1, (2,))
WORKER = """#!{python} -S
import json, sys, time
job = json.loads(sys.stdin.readline())
print(json.dumps({{"result": job, "seconds": 0.0, "memory": {{"peak": 1}}}}), flush=True)
for line in sys.stdin:
    call = json.loads(line)
    if call["method"] == "die":
        sys.exit("\\nout of memory\\n")
    if call["method"] == "hang":
        time.sleep(60)
    print(json.dumps({{"result": call["arguments"], "seconds": 0.5, "memory": {{"peak": 2}}}}), flush=True)
"""


@pytest.fixture
def link(tmp_path, monkeypatch):
    """Starts a link to a stand-in for the worker: any interpreter that ignores its arguments."""
    import sys

    python = tmp_path / "python"
    python.write_text(WORKER.format(python=sys.executable))
    python.chmod(0o755)
    made = []

    def start(**options):
        made.append(Link("peer", JOB, tmp_path / "log", python, **options))
        return made[-1]

    yield start
    for one in made:
        one.close()


def test_a_call_travels_and_its_time_and_memory_come_back(link):
    one = link()
    assert one.ready.result == {"peer": "peer", "job": json.loads(json.dumps(JOB.to_json()))}
    assert Job.from_json(one.ready.result["job"]) == JOB
    reply = one.call("generate", ids=[1], max_new_tokens=2)
    assert (reply.result, reply.seconds, reply.memory) == ({"ids": [1], "max_new_tokens": 2}, 0.5, {"peak": 2})


def test_a_process_that_ends_is_explained_by_its_last_words(link):
    one = link()
    for _ in range(2):  # and it stays ended
        with pytest.raises(PeerFailed, match="status 1: out of memory"):
            one.call("die")


def test_a_process_that_hangs_is_stopped(link):
    one = link(patience=20.0)
    one.patience = 0.2
    with pytest.raises(PeerFailed, match=r"no answer within 0\.2 seconds"):
        one.call("hang")
    assert one.process.wait(10) != 0


def test_a_process_that_cannot_start_says_so_and_leaves_nothing_behind(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'no module named flash' >&2\nexit 3\n")
    python.chmod(0o755)
    with pytest.raises(PeerFailed, match="status 3: no module named flash"):
        Link("peer", JOB, tmp_path / "log", python)


def test_an_environment_that_cannot_be_filled_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(PeerFailed, match="could not install not-a-package-of-anyone==9"):
        environment(tmp_path / "env", ["not-a-package-of-anyone==9"])


def test_an_environment_sees_the_packages_of_this_one_and_is_made_once(tmp_path, monkeypatch):
    python = environment(tmp_path / "env", [])
    shown = _link.subprocess.run([str(python), "-c", "import pytest; print(pytest.__file__)"], capture_output=True, text=True, check=True)
    assert Path(shown.stdout.strip()) == Path(pytest.__file__)
    before = os.stat(python).st_mtime_ns
    assert environment(tmp_path / "env", []) == python
    assert os.stat(python).st_mtime_ns == before
