"""Tree shapes, one a file: each grows the candidate tree of one round from a drafter's step."""
