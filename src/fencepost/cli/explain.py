"""`fencepost explain`: says what holds up a partition or a transactional id, and what to do."""

from pathlib import Path
from typing import Annotated

import typer

from fencepost.cli.connection import BootstrapOrProfile, CommandConfig, Profile, open_view
from fencepost.cli.dump import FOUND
from fencepost.cli.options import INT64_MAX, Json
from fencepost.cli.output import CommandFailed, print_json, run_async, say

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

EPILOG = """\
\b
Examples:
  fencepost explain purchases                 what holds up the readers of a topic
  fencepost explain purchases:0
  fencepost explain billing --history         the history of a transactional id as a timeline
  fencepost explain --producer-id 4711
  fencepost explain billing --data ./copied-data-directory

Works with Fencepost and with Apache Kafka. Facts that only Fencepost records are marked. Exit status 0: healthy,
3: stuck.
"""

STUCK_AFTER_SECONDS = 10.0


def explain(
    what: Annotated[
        str | None, typer.Argument(metavar="[TOPIC[:PARTITION] | TRANSACTIONAL-ID]", show_default=False)
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option(min=0, max=INT64_MAX, metavar="N", help="Explain the transaction of this producer id.")
    ] = None,
    history: Annotated[bool, typer.Option("--history", help="Show the history of the id as a timeline.")] = False,
    is_id: Annotated[
        bool, typer.Option("--id", help="Treat the argument as a transactional id even if a topic has that name.")
    ] = False,
    stuck_after: Annotated[
        float,
        typer.Option(
            min=0, metavar="SECONDS", help="How long a transaction may hold up readers before it counts as stuck."
        ),
    ] = STUCK_AFTER_SECONDS,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Read a copied data directory instead of asking a broker.")
    ] = None,
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Explain what holds up a partition or a transactional id, why, and what to do."""
    if (what is None) == (producer_id is None):
        raise typer.BadParameter("give a TOPIC[:PARTITION], a TRANSACTIONAL-ID, or --producer-id")
    from fencepost.insight.cluster_facts import ClusterFacts
    from fencepost.insight.data_files import NotInspectable
    from fencepost.insight.directory_facts import DirectoryFacts
    from fencepost.insight.explanation import IdExplanation, NothingKnown, PartitionsExplanation, Question
    from fencepost.insight.explanation import explain as explain_question
    from fencepost.insight.explanation_text import explanation_lines

    question = Question(what, producer_id, is_id, history, round(stuck_after * 1000))

    async def explained() -> PartitionsExplanation | IdExplanation:
        if data is not None:
            return await explain_question(DirectoryFacts(data), question)
        async with open_view(bootstrap_server, command_config, profile) as view:
            return await explain_question(ClusterFacts(view), question)

    try:
        found = run_async(explained())
    except (NothingKnown, NotInspectable) as error:
        raise CommandFailed(str(error)) from None
    except OSError as error:
        raise CommandFailed(f"cannot read {error.filename}: {error.strerror}") from None
    if as_json:
        print_json(found.document())
    else:
        for line in explanation_lines(found):
            say(line)
    raise typer.Exit(FOUND if found.is_stuck else 0)
