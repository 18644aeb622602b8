"""Spark's JVMs live for seconds here: the first compiler tier, one collector thread and classes from an archive save
half of their work."""

import os

from tests.peers.java import QUICK, SPARK_ARCHIVE, archived

# By environment, so that drivers which commands and other processes start are quick, too. Long runs, as of
# `make chaos-spark` and `make bench`, keep Java's own choice.
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join((*QUICK, *archived(SPARK_ARCHIVE))))
for name in ("SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(name, " ".join(QUICK))
