"""One trainable method a file: `lesson(...)` returns its module, loss and measurement. The fit loop knows none by name."""
