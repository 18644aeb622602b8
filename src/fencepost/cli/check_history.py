"""fencepost check-history: checks whether a recorded history is possible."""

from pathlib import Path
from typing import Annotated

import typer

from fencepost.cli.options import Json

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

ANOMALIES_FOUND = 1

EPILOG = """\
\b
Examples:
  fencepost check-history run.jsonl                      check a history and explain its anomalies
  fencepost check-history producer.jsonl reader.jsonl    one file per process, all with the same clock
  fencepost check-history run.jsonl --svg findings.svg   also draw the findings

Exits with status 1 if there is an anomaly. The format is described in docs/histories.md.
"""


def check_history(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Files of JSON lines; several files are merged by time.")
    ],
    as_json: Json = False,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Draw the findings into this file.")] = None,
    shown: Annotated[
        int, typer.Option("--show", min=0, metavar="N", help="How many findings of each anomaly to explain.")
    ] = 3,
) -> None:
    """Look for lost, torn, repeated and misordered writes in a recorded history."""
    import gc

    from fencepost.cli.output import CommandFailed, print_json, say
    from fencepost.history import HistoryError, check, read_files
    from fencepost.history.finding_svg import draw_svg
    from fencepost.history.finding_text import explain

    # All of the millions of objects live to the end; looking for garbage among them would take half of the time.
    gc.disable()
    try:
        report = check(read_files(files))
    except HistoryError as error:
        raise CommandFailed(str(error), "see docs/histories.md") from None
    except OSError as error:
        raise CommandFailed(f"cannot read {error.filename}: {error.strerror}") from None
    finally:
        gc.enable()
    if svg is not None:
        try:
            svg.write_text(draw_svg(report.findings))
        except OSError as error:
            raise CommandFailed(f"cannot write {svg}: {error.strerror}") from None
    if as_json:
        print_json(report.as_json())
    else:
        for line in explain(report, shown):
            say(line)
    raise typer.Exit(0 if report.is_clean else ANOMALIES_FOUND)
