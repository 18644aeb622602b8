"""What has to be there before anything starts: Java, a version of PySpark, slots. Each refusal says what to do.

Looks at the environment and at Spark's configuration only; nothing here talks to a broker.
"""

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fencepost.spark.errors import NotSupported, RequirementNotMet
from fencepost.spark.transaction_timeouts import (
    NETWORK_TIMEOUT,
    NETWORK_TIMEOUT_INTERVAL,
    SPARK_DEFAULTS,
    TransactionTimeout,
    Trigger,
    derived,
    given,
)

JAVA_VERSION_MIN = 17
PYSPARK_FOR_SINK = (3, 5)
PYSPARK_FOR_SOURCE = (4, 2)
_JAVA_TIMEOUT_SECONDS = 60
INSTALL_EXTRA = "install the extra `spark`: pip install 'fencepost[spark]', or in a checkout pip install '.[spark]'"


def require_java() -> None:
    """Spark's launcher fails without a usable message where Java is missing or too old."""
    java = _java()
    if java is None:
        raise RequirementNotMet("Spark needs Java, and none was found", _install_java())
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_JAVA_TIMEOUT_SECONDS)
    except OSError as error:
        raise RequirementNotMet(f"{java} cannot be run: {error}", _install_java()) from None
    found = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    if shown.returncode or found is None:
        raise RequirementNotMet(f"{java} -version does not work", _install_java())
    if int(found[1]) < JAVA_VERSION_MIN:
        raise RequirementNotMet(f"{java} is Java {found[1]}; {JAVA_VERSION_MIN} is needed", _install_java())


def _java() -> str | None:
    """Where Spark's launcher looks: JAVA_HOME first, then the path."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return str(Path(home) / "bin" / "java") if (Path(home) / "bin" / "java").exists() else None
    return shutil.which("java")


def _install_java() -> str:
    return (
        f"install Java {JAVA_VERSION_MIN} or newer (Debian, Ubuntu: `apt install openjdk-17-jre-headless`; "
        "macOS: `brew install openjdk@17`) and let JAVA_HOME point to it if `java` is not on the path"
    )


def require_pyspark(minimum: tuple[int, int] = PYSPARK_FOR_SINK, purpose: str = "the sink") -> tuple[int, int]:
    """The version that is installed."""
    wanted = ".".join(map(str, minimum))
    try:
        from pyspark import __version__  # here, because it may be missing
    except ImportError:
        raise RequirementNotMet("PySpark is not installed", INSTALL_EXTRA) from None
    found = tuple(int(part) for part in re.findall(r"\d+", __version__)[:2])
    version = (found[0], found[1])
    if version < minimum:
        raise RequirementNotMet(
            f"{purpose} needs PySpark {wanted}; {__version__} is installed", f"pip install 'pyspark>={wanted}'"
        )
    return version


@functools.cache
def require_arrow() -> None:
    """Looks only: numba takes a second to load, and only tasks need it."""
    for name in ("numba", "pyarrow"):
        if importlib.util.find_spec(name) is None:
            raise RequirementNotMet(f"{name} is not installed", f"{INSTALL_EXTRA}; on the executors too")


def setting(spark: Any, name: str, default: str = "") -> str:
    """A setting of the application or the session; works under Connect as well."""
    # Spark checks a default of ours against the setting's type, so it is not given one.
    value = spark.conf.get(name, None)
    return default if value is None else str(value)


def value_in_force(spark: Any, name: str) -> str | None:
    """With Spark's own default where nothing is set; None if this Spark does not know the setting."""
    try:
        return str(spark.conf.get(name))
    except Exception:
        return None


def transaction_timeout(spark: Any, trigger: Trigger, given_ms: int | None) -> TransactionTimeout:
    """What the user says, or what follows from the trigger and this Spark's settings."""
    if given_ms is not None:
        return given(given_ms)
    texts = {name: setting(spark, name, default) for name, default in SPARK_DEFAULTS.items()}
    return derived(trigger, texts[NETWORK_TIMEOUT], texts[NETWORK_TIMEOUT_INTERVAL])


def is_connect(spark: Any) -> bool:
    return not hasattr(spark, "_jsparkSession")


def refuse_dynamic_allocation(spark: Any) -> None:
    if setting(spark, "spark.dynamicAllocation.enabled", "false").lower() == "true":
        raise NotSupported(
            "dynamic allocation is on, and Spark runs no barrier stage under it",
            "set spark.dynamicAllocation.enabled=false and give the job a fixed number of executors",
        )


def refuse_trigger(trigger: Mapping[str, Any]) -> None:
    """Of what `DataStreamWriter.trigger` takes."""
    if trigger.get("continuous") is not None:
        raise NotSupported(
            "the continuous trigger has no micro-batches, so there is nothing that could be one transaction",
            "use processingTime='1 second', or availableNow=True",
        )
    if trigger.get("realTime") is not None:
        raise NotSupported(
            "in real-time mode rows are written before Spark has noted what was read, so they could not be one "
            "transaction with it, and Spark runs no Python sink in it",
            "use processingTime='1 second', or availableNow=True",
        )


def refuse_asynchronous_progress(options: Mapping[str, Any]) -> None:
    """Of what `DataStreamWriter.option` takes."""
    for name, value in options.items():
        if name.lower() == "asyncprogresstrackingenabled" and str(value).lower() == "true":
            raise NotSupported(
                "asynchronous progress tracking is on, so Spark may replay batches with other rows",
                "remove the option asyncProgressTrackingEnabled",
            )


def slots(spark: Any) -> int | None:
    """How many tasks can run at once now; None where that cannot be known."""
    if not is_connect(spark):
        context = spark.sparkContext._jsc.sc()
        return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))
    return _configured_slots(spark)


def _configured_slots(spark: Any) -> int | None:
    """Under Connect the scheduler cannot be asked: the configuration has to say."""
    per_task = int(setting(spark, "spark.task.cpus", "1"))
    master = setting(spark, "spark.master")
    if found := re.fullmatch(r"local(?:\[(\d+|\*)(?:\s*,\s*\d+)?\])?", master):
        cores = os.cpu_count() or 1 if found[1] == "*" else int(found[1] or 1)
        return cores // per_task
    if found := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*", master):
        return int(found[1]) * (int(found[2]) // per_task)
    executors, cores_each = setting(spark, "spark.executor.instances"), setting(spark, "spark.executor.cores")
    if executors and cores_each:
        return int(executors) * (int(cores_each) // per_task)
    total = setting(spark, "spark.cores.max")
    return int(total) // per_task if total else None
