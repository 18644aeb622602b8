"""Example pipelines and sources; each file is complete. `fencepost run examples/shop.py --sample 1000` runs one."""
