"""The checks, one module per family. Each examines the evidence and adds findings."""
