"""`fencepost run --adopt`: shows which offsets would be read again or skipped, and asks for confirmation."""

import os
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

import typer

from fencepost.cli.output import CommandFailed

if TYPE_CHECKING:
    from fencepost.cli.run_view import View
    from fencepost.spark.pipeline_start import StartOptions
    from fencepost.spark.pipelines import Pipeline

_DEFAULT_FILE_SYSTEM = "spark.hadoop.fs.defaultFS"


class Adopting:
    """Asks once: before Spark starts if the checkpoint can be read without Spark, otherwise afterwards."""

    def __init__(
        self, pipeline: "Pipeline", options: "StartOptions", spark_settings: dict[str, str], *, is_agreed: bool
    ) -> None:
        self._pipeline = pipeline
        self._options = options
        self._is_local = _is_surely_local(options.checkpoint, spark_settings)
        self._is_agreed = is_agreed
        self._is_done = options.adopt == "refuse"

    def ask_before_spark(self, shown: "View") -> None:
        if self._is_local:
            self.ask(shown, None)

    def ask(self, shown: "View", spark: Any) -> None:
        """Raises CommandFailed unless the user, or --yes, agrees."""
        # Loads Spark, which may not be installed where only the command's help is asked for.
        from fencepost.spark.pipeline_start import adoption

        if self._is_done:
            return
        self._is_done = True
        found = adoption(self._pipeline, spark, self._options)
        if found is None:
            return
        shown.adopting(found)
        if self._is_agreed:
            return
        if not sys.stdin.isatty():
            raise CommandFailed(
                "--adopt needs confirmation, and there is no terminal to ask on",
                f"add --yes to confirm; otherwise {found.advice}",
            )
        if not typer.confirm("Continue?", default=False, err=True):
            raise CommandFailed("nothing was adopted and nothing was written", found.advice)


def _is_surely_local(checkpoint: str, spark_settings: dict[str, str]) -> bool:
    """A path without a scheme may be one of Hadoop's default file system."""
    scheme = urlparse(checkpoint).scheme
    is_default_local = _DEFAULT_FILE_SYSTEM not in spark_settings and "HADOOP_CONF_DIR" not in os.environ
    return scheme == "file" or (not scheme and is_default_local)
