"""Our own components."""
