"""Other ways to decode the same model, one a file: what `bench --peers` measures specviz against."""
