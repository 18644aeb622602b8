"""What is fuzzed: modules here with `run` and `first_inputs`."""

TARGETS = ("requests", "files", "records", "costs")
