"""`fencepost demo`, in two acts that `command.py` plays.

Act one is `foreign_clients.py` and `fenced_zombie.py`. Act two is `crashes.py`; the processes that it kills, the moment
of each kill, what it shows and the audit have modules of their own. It is compared with `at_least_once.py`.
"""
