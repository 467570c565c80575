"""Real speculative decoding, traced and shown: Medusa, EAGLE and their kin on a small language model."""

__version__ = "0.1.0"
