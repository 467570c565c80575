"""Numbers from traces: plain Python, no torch and no UI. Measured unless a name says modelled."""
