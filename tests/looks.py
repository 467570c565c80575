"""Counts how often tests' code reads a number of a tensor on the host: on a GPU each of these waits for the device."""

from __future__ import annotations

import pytest
import torch


class Looks:
    """`count` goes up by one for every outermost read, from the moment it is made."""

    NAMES = ("tolist", "item", "__float__", "__int__", "__bool__", "__index__", "cpu", "numpy")

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self._inside = 0, False
        for name in self.NAMES:
            monkeypatch.setattr(torch.Tensor, name, self._counted(getattr(torch.Tensor, name)))

    def _counted(self, real):
        def counted(tensor, *args, **kwargs):
            outer, self._inside = self._inside, True
            self.count += not outer
            try:
                return real(tensor, *args, **kwargs)
            finally:
                self._inside = outer

        return counted
