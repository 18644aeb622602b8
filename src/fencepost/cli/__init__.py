"""The command `fencepost`: what people type, and what they read. Each group of commands is a module."""
