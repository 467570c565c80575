"""Measuring this machine: forwards by size, drafters' rounds by phase, and what the hardware can do at best."""
