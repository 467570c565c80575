"""`train --show-batch`: the colours are those of the masks that the loss uses, and a token is never obeyed."""

from __future__ import annotations

import io
import json

import pytest
import torch
from cli_fixture import run_fixture  # noqa: F401
from rich.console import Console

from specviz.analysis.masked_batch import ASKED, FIRST, OUTSIDE, PROMPT
from specviz.commands.show_batch import print_batch
from specviz.errors import BadInput
from specviz.training.data import Record
from specviz.training.dataset import Item
from specviz.training.fit import Plan
from specviz.training.loss_mask import first_batch, look

RECORDS = [Record((3, 4, 5, 6, 7, 8), 2), Record((3, 9, 4), 2)]


def known(*tokens):
    found = torch.zeros(20, dtype=torch.bool)
    found[list(tokens)] = True
    return found


def test_kinds_of_tokens():
    batch = look([Item(record, 0, 0) for record in RECORDS], known(3, 4, 5, 6, 8))
    assert batch.records[0].kinds == (PROMPT, PROMPT, FIRST, ASKED, OUTSIDE, ASKED)
    assert batch.records[1].kinds == (PROMPT, PROMPT, FIRST)
    assert [(one.rows, one.outside) for one in batch.depths] == [(2, 1), (1, 1), (1, 0), (0, 0)]
    assert batch.draft_vocab == 5


def test_the_first_batch_is_that_of_the_fit(tiny_target):
    records = [Record((3 + n, *range(3, 8 + n)), 2) for n in range(12)]
    plan = Plan(tokens=24, draft_vocab=8, held_out=0.2)
    batch = first_batch(records, tiny_target.model.config, plan)
    assert len(batch.records) * max(len(one.tokens) for one in batch.records) <= 24
    assert batch.draft_vocab == 8
    with pytest.raises(BadInput, match="All 12 records are held out"):
        first_batch(records, tiny_target.model.config, Plan(held_out=1.0))


def shown(**options):
    out = Console(file=io.StringIO(), highlight=False, width=200, **options)
    print_batch(out, look([Item(record, 0, 0) for record in RECORDS], known(3, 4, 5, 6, 8)), lambda token: "\x1b[31m" if token == 4 else f"t{token} ")
    return out.file.getvalue()


def test_without_a_terminal_brackets_mark_what_counts():
    lines = shown().splitlines()
    assert lines[0] == "t3·⟨1B⟩[31mt5·[t6·]{t7·}[t8·]"
    assert "[token]  2 tokens. counts in the loss" in "\n".join(lines)
    assert "draft depth 1, the token 2 ahead: 2 rows count, 1 are left out for a draft vocabulary of 5" in lines


def test_in_a_terminal_colour_does_and_tokens_are_not_obeyed():
    text = shown(force_terminal=True, color_system="truecolor")
    assert "[t6·]" not in text
    assert "t6·" in text
    assert "\x1b[31mt5" not in text


def test_the_command(run, tiny_folder, text_ids, tmp_path):
    lines = [{"ids": text_ids(14, seed=n), "answer_start": 4} for n in range(8)]
    (tmp_path / "records.jsonl").write_text("\n".join(map(json.dumps, lines)))
    done = run("train", "medusa", "--show-batch", "--data", tmp_path / "records.jsonl", "--target", tiny_folder, "--plan", "draft_vocab=64")
    assert done.status == 0
    assert "counts in the loss" in done.out
    assert "\x1b" not in done.out
    assert "No training for 'nothing'" in run("train", "nothing", "--show-batch", "--data", tmp_path / "records.jsonl").err
