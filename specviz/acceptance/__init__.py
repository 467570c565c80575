"""Acceptance rules, one a file, each one pure function: (tree, evidence) -> Verdict."""
