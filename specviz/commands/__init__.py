"""The verbs of the command line, one a file: `configure(parser)` adds its options, `run(args)` does it."""
