"""Experiments with the engine: what is claimed elsewhere, shown here by computing it."""
