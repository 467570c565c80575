"""Training of drafter heads: distil (write data), features (capture), fit (train), report (measure)."""
