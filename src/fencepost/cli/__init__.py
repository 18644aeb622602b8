"""The command `fencepost`: one module for each group of subcommands."""
