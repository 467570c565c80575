"""Errors for the person who meets them: the value, what was expected, what to do."""


class SpecvizError(Exception):
    """Base of every error that specviz raises on purpose; its message is meant to be shown as it is."""


class BadInput(SpecvizError):
    """A value that a person gave (knob, prompt, spec string) is out of range or does not fit."""


class Missing(SpecvizError):
    """Something needed is not here: weights, a drafter checkpoint, a device, a package."""


class UnsupportedModel(SpecvizError):
    """The model would give silently wrong tree logits, so it is refused by name."""


class NotCaptured(SpecvizError):
    """A forward or a draft step cannot be recorded as a CUDA graph; it runs without one, and the reason is noted."""


class CacheFull(SpecvizError):
    """A forward would not fit the leased cache; raised before the forward runs."""


class BadFile(SpecvizError):
    """A trace or checkpoint is damaged, truncated, oversized or newer than this version."""
