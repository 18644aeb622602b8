"""`fencepost demo`, in two acts, which `command.py` runs.

Act one consists of `foreign_clients.py` and `fenced_zombie.py`. Act two is `crashes.py`; separate modules hold the
processes it kills, the choice of the moment, the display and the audit. `at_least_once.py` is the pipeline to compare
with.
"""
