"""The processes of one fit: accelerate says which device and how many, each trains on its part of every batch, gradients add up."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from specviz.training.dataset import Batch, Dataset, Item


class Workers:
    """This process among those that `accelerate launch` (or torchrun) started; one alone is the usual case.

    A loss is this part's share of the whole batch's mean, so shares and gradients are summed, and any number of processes
    gives the same loss curve up to the order of additions.
    """

    def __init__(self, precision: str) -> None:
        from accelerate import Accelerator

        self._accelerator = Accelerator(mixed_precision=None if precision == "fp32" else precision)
        self.device: torch.device = self._accelerator.device
        self.number, self.count = self._accelerator.process_index, self._accelerator.num_processes

    @property
    def first(self) -> bool:
        """True in the process that logs and saves."""
        return self.number == 0

    def first_alone(self) -> AbstractContextManager[Any]:
        """Lets the first process do the block's work, then the others, who find it done."""
        context: AbstractContextManager[Any] = self._accelerator.main_process_first()
        return context

    def autocast(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self._accelerator.autocast()
        return context

    def wait(self) -> None:
        self._accelerator.wait_for_everyone()

    def cut(self, dataset: Dataset, items: Sequence[Item]) -> Batch:
        """Returns this process's part of the items, still on the host: a thread may do it while the step before is computed."""
        return dataset.batch(items, self.number, self.count)

    def batch(self, dataset: Dataset, items: Sequence[Item]) -> Batch:
        """Returns this process's part of the items."""
        return self.cut(dataset, items).to(self.device)

    def add(self, numbers: Tensor) -> Tensor:
        """Returns the sum over all processes."""
        total: Tensor = numbers if self.count == 1 else self._accelerator.reduce(numbers.to(self.device), "sum")
        return total

    def backward(self, loss: Tensor, module: nn.Module) -> None:
        """Fills the gradients of `module` with those of the whole batch."""
        self._accelerator.backward(loss)
        if self.count == 1:
            return
        weights = list(module.parameters())
        flat = torch.cat([(torch.zeros_like(w) if w.grad is None else w.grad).flatten() for w in weights])
        for weight, grad in zip(weights, self.add(flat).split([w.numel() for w in weights]), strict=True):
            weight.grad = grad.view_as(weight).clone()
