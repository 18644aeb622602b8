"""The checks, a module per family. Each takes the evidence and adds findings."""
