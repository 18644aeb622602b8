"""Spark sessions for tests: small and local, with the connector's jars if wanted. A session of one's own is gone
without a trace afterwards; one is shared by all files of a pytest process that need nothing special, because a JVM and
the first query in it cost as much as ten later queries."""

import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from tests.peers.build import BUILD, missing, require_java, set_up
from tests.peers.java import QUICK, SPARK_ARCHIVE, archived

T = TypeVar("T")
STARTS_MAX = 5
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # A machine under load answers late.
    "spark.network.timeout": "600s",
    "spark.executor.heartbeatInterval": "60s",
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.sql.streaming.stopTimeout": "120s",
}

QUICK_EXECUTORS = {"spark.executor.extraJavaOptions": " ".join((*QUICK, *archived(SPARK_ARCHIVE)))}
"""For executors in JVMs of their own, which live for seconds as the driver's does (conftest.py)."""


def has_source() -> bool:
    """Whether this PySpark is new enough for `format("fencepost")`; the sink works on older ones, too."""
    return importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None


def connector_jars() -> list[str]:
    """Spark's own Kafka connector."""
    set_up()
    directory = BUILD / ("spark-jars" if has_source() else "spark35-jars")
    jars = sorted(str(jar) for jar in directory.glob("*.jar"))
    if not any("spark-sql-kafka" in jar for jar in jars):
        missing(f"Spark's Kafka connector is not in peers/.build/{directory.name} (run peers/setup)")
    return jars


@contextlib.contextmanager
def spark_session(master: str = "local[2]", *, with_connector: bool = False, **settings: str) -> Iterator[Any]:
    shared.stop()  # PySpark has one session in a process
    require_java()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    # Spark starts "python3" otherwise, which need not be the one that has fencepost.
    before = {name: os.environ.get(name) for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")}
    os.environ.update(dict.fromkeys(before, sys.executable))
    directory = tempfile.mkdtemp(prefix="spark-")
    builder = SparkSession.builder.master(master).appName("fencepost tests")
    conf = {**SETTINGS, "spark.local.dir": directory, "spark.sql.warehouse.dir": f"{directory}/warehouse"}
    conf |= {name.replace("__", "."): value for name, value in settings.items()}
    if with_connector or not has_source():
        conf["spark.jars"] = ",".join(connector_jars())
    for name, value in conf.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield spark
        finally:
            spark.stop()
    finally:
        _close_gateway(SparkContext)
        shutil.rmtree(directory, ignore_errors=True)
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


class SharedSession:
    """Started for the first file that asks, and again after one that had a session of its own. Its workers are forked
    with what they need, as those of `fencepost run`; other sessions have Spark's own daemon."""

    def __init__(self) -> None:
        self._stack: contextlib.ExitStack | None = None
        self._session: Any = None

    @contextlib.contextmanager
    def lent(self) -> Iterator[Any]:
        if self._stack is None:
            stack = contextlib.ExitStack()
            forking = {"spark.python.daemon.module": "fencepost.spark.worker_daemon"}
            self._session = stack.enter_context(spark_session(with_connector=True, **forking))
            self._stack = stack
        session = self._session
        yield session
        for query in session.streams.active:
            query.stop()

    def stop(self) -> None:
        stack, self._stack, self._session = self._stack, None, None
        if stack is not None:
            stack.close()


shared = SharedSession()


def run_again_if_spark_was_too_slow(run: Callable[[], T], starts_max: int = STARTS_MAX) -> T:
    """Spark gives the Python process of a streaming source ten seconds to start, whatever is configured, and a machine
    under load may need more. Nothing was read or written then."""
    for _ in range(starts_max - 1):
        try:
            return run()
        except Exception as error:
            if "Python worker failed to connect back" not in str(error):
                raise
    return run()


def finished(start: Callable[[], T]) -> T:
    """The query that `start` has started, when it has ended by itself; raises what ended it."""

    def run() -> T:
        query: Any = start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return cast(T, query)

    return run_again_if_spark_was_too_slow(run)


def _close_gateway(context: Any) -> None:
    """PySpark keeps its JVM and the sockets to it for the life of the process; the next test must not inherit them."""
    gateway, context._gateway, context._jvm = context._gateway, None, None
    if gateway is None:
        return
    with contextlib.suppress(Exception):
        gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        process.kill()
        process.wait()
