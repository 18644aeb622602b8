"""Runs Java classes of the peers: Apache Kafka's own tools and the programs in peers/java."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.peers.build import BUILD, PEERS, require_java
from tests.peers.process import JsonLinesProcess
from tests.support.patience import patient

TOOL_TIMEOUT_SECONDS = patient(90)

# Where a JVM lives for seconds the first compiler tier and one collector thread are fastest.
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
KAFKA_ARCHIVE, SPARK_ARCHIVE = BUILD / "kafka.jsa", BUILD / "spark.jsa"


def archived(archive: Path) -> tuple[str, ...]:
    """Options for classes from an archive, if there is one (class_data.py). Java would say on standard output why it
    ignores one that does not fit."""
    return ("-Xlog:disable", "-Xlog:all=error:stderr", f"-XX:SharedArchiveFile={archive}") if archive.exists() else ()


SHORT_LIVED = (*QUICK, *archived(KAFKA_ARCHIVE), "-Xmx256m")


class JavaFailed(AssertionError):
    """A Java program ended with an error."""


def command(main_class: str, arguments: Sequence[str], options: Sequence[str] = SHORT_LIVED) -> list[str]:
    java = require_java()
    classes = (BUILD / "classes.stamp").read_text().strip()
    class_path = f"{BUILD}/lib/*:{BUILD}/classes-{classes}"  # an archive knows jars only, which therefore come first
    logging = f"-Dlog4j2.configurationFile={PEERS / 'log4j2.properties'}"
    return [java, *options, logging, "-cp", class_path, main_class, *arguments]


def run(main_class: str, *arguments: str, timeout: float = TOOL_TIMEOUT_SECONDS, check: bool = True) -> str:
    """Runs a class to its end and returns what it printed, standard error after standard output."""
    done = subprocess.run(
        command(main_class, arguments), capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
    )
    output = done.stdout + done.stderr
    if check and done.returncode != 0:
        raise JavaFailed(f"{main_class} {' '.join(arguments)} ended with {done.returncode}\n{output}")
    return output


def run_json_lines(main_class: str, *arguments: str, timeout: float = TOOL_TIMEOUT_SECONDS) -> list[dict[str, Any]]:
    """Runs one of our own classes and returns its lines of JSON in order."""
    done = subprocess.run(
        command(main_class, arguments), capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        raise JavaFailed(f"{main_class} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def start(main_class: str, *arguments: str) -> JsonLinesProcess:
    """Starts one of our own classes, to be waited for event by event."""
    return JsonLinesProcess(main_class, command(main_class, arguments))


def dump_log(file: Path, *arguments: str) -> str:
    """Apache Kafka's dump tool on one file."""
    return run("org.apache.kafka.tools.DumpLogSegments", "--files", str(file), *arguments)
