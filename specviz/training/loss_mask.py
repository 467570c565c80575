"""Which tokens of a batch the loss asks for: read from the masks that the lessons use, so that a wrong mask is seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from specviz.analysis.masked_batch import ASKED, FIRST, OUTSIDE, PROMPT, DepthCount, MaskedBatch, MaskedRecord
from specviz.errors import BadInput
from specviz.training.data import Record, held_out
from specviz.training.dataset import Batch, Item, Records, shuffled_batches
from specviz.training.fit import Plan, draft_ids

DEPTHS = 4  # draft depths that are counted
NEAREST = 2  # a head stands on row i, knows token i + 1, and is asked for token i + 2 first


def first_batch(records: Sequence[Record], config: Any, plan: Plan) -> MaskedBatch:
    """Returns the first batch that a fit by this plan takes from these records; `config` is the target's.

    Raises BadInput when the plan holds every record out.
    """
    if not records:
        raise BadInput("There are no records to take a batch from: the features hold no finished shard. Run `features` to its end first.")
    train = [Item(record, 0, 0) for record in records if not held_out(record, plan.held_out)]
    if not train:
        raise BadInput(f"All {len(records)} records are held out by held_out={plan.held_out:g}, so there is no batch to show. Give more data.")
    known = torch.zeros(config.get_text_config(decoder=True).vocab_size, dtype=torch.bool)
    known[draft_ids(records, config, plan.draft_vocab)] = True
    return look(shuffled_batches(train, plan.seed, plan.tokens)[0], known)


def look(items: Sequence[Item], known: torch.Tensor) -> MaskedBatch:
    """Returns what the masks of `Batch` say about these records; `known` `[vocab]` marks the draft vocabulary."""
    batch = _bare(items, known)
    asked, within = batch.ahead(NEAREST).mask, batch.answered(NEAREST)
    records = tuple(_record(item, asked[b], within[b]) for b, item in enumerate(items))
    depths = []
    for depth in range(1, DEPTHS + 1):
        targets = batch.ahead(depth + 1)
        depths.append(DepthCount(depth, int(targets.mask.sum()), int(targets.missed)))
    return MaskedBatch(records, tuple(depths), int(known.sum()))


def _bare(items: Sequence[Item], known: torch.Tensor) -> Batch:
    """The batch without states and teacher: masks depend on ids, starts and lengths alone."""
    own = Records.of([item.record for item in items])
    empty = torch.zeros(*own.ids.shape, 0)
    return Batch(own, {}, empty, empty.long(), known, own, slice(None))


def _record(item: Item, asked: torch.Tensor, within: torch.Tensor) -> MaskedRecord:
    record = item.record
    kinds = [PROMPT if place < record.answer_start else FIRST for place in range(len(record.ids))]
    for row in range(len(record.ids) - NEAREST):
        if within[row]:
            kinds[row + NEAREST] = ASKED if asked[row] else OUTSIDE
    return MaskedRecord(record.ids, tuple(kinds))


def read_target(folder: Path) -> tuple[Any, Any]:
    """Returns (config, tokenizer) of a target, without its weights."""
    from transformers import AutoConfig, AutoTokenizer

    return AutoConfig.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
