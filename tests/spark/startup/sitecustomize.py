"""Spark puts an archive of PySpark and a jar before everything else on the path of its Python processes. Neither has
compiled code, so every process would compile what it imports; the same package lies among the installed ones."""

import sys

sys.path[:] = [entry for entry in sys.path if not entry.endswith(("/python/lib/pyspark.zip", "-src.zip", ".jar"))]
