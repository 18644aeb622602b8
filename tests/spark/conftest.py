"""Spark's JVMs live for seconds here: the first compiler tier and one collector thread save a quarter of their work."""

import os

from tests.peers.java import QUICK

# By environment, so that drivers which commands and other processes start are quick, too. Long runs, as of
# `make chaos-spark` and `make bench`, keep Java's own choice.
for name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(name, " ".join(QUICK))
