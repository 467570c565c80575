"""Head checkpoints of other programs: one foreign format a file, found by its name; `doctor` says what is wrong with one."""
