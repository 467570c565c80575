"""Drafters, one method a file: each proposes a candidate tree per round."""
