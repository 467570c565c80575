"""Taps: hidden states of a stock model, caught by hooks while a forward runs; bit-equal to what the layers see, in every transformers version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from specviz.errors import BadInput


@contextmanager
def tapped(decoder: Any, taps: Sequence[int], name: str) -> Iterator[dict[int, torch.Tensor]]:
    """Yields a dict that the forwards inside the block fill: tap i < layers is the state ENTERING layer i, tap == layers the final norm's output.

    Raises BadInput for a tap that the model called `name` does not have.
    """
    hidden: dict[int, torch.Tensor] = {}
    with ExitStack() as hooks:
        for tap in taps:
            hooks.callback(_hook(decoder, tap, hidden, name).remove)
        yield hidden


def _hook(decoder: Any, tap: int, hidden: dict[int, torch.Tensor], name: str) -> Any:
    layers = decoder.layers if hasattr(decoder, "layers") else decoder.h
    if not 0 <= tap <= len(layers):
        raise BadInput(f"tap {tap} does not exist: {name} has layers 0 to {len(layers) - 1}, and {len(layers)} for the final norm.")

    def entering(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        hidden[tap] = args[0] if args else kwargs["hidden_states"]

    def leaving(module: Any, args: tuple[Any, ...], output: Any) -> None:
        hidden[tap] = output[0]

    if tap == len(layers):
        return decoder.register_forward_hook(leaving)
    return layers[tap].register_forward_pre_hook(entering, with_kwargs=True)
