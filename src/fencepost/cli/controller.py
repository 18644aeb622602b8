"""`fencepost controller`: the controller of a cluster, alone in its quorum."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fencepost.cli.output import CommandFailed

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

DEFAULT_LISTEN = "127.0.0.1:9093"
EPILOG = """\
\b
Examples:
  fencepost controller --data ./controller
  fencepost controller --data ./controller --listen 127.0.0.1:9093 --set default.replication.factor=3
  fencepost controller --data ./controller --feature share.version=0 --feature streams.version=0

A beginning: brokers of Apache Kafka 4.3 can be members of its cluster, those of Fencepost cannot yet. It is alone in
its quorum, asks nobody who they are, and keeps its whole log. Let it listen on loopback only. Brokers need it in their
controller.quorum.voters, as ID@HOST:PORT, and are formatted with the cluster id that it prints.
"""


def controller(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Directory of its log; made if absent.")],
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Address that brokers reach it at.")
    ] = DEFAULT_LISTEN,
    node_id: Annotated[int, typer.Option("--node-id", min=0, help="Its id, which no broker may have.")] = 1,
    cluster_id: Annotated[
        str | None, typer.Option("--cluster-id", metavar="ID", help="Of a new cluster; otherwise one is made up.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of Kafka's; may be given several times."),
    ] = None,
    features: Annotated[
        list[str] | None,
        typer.Option("--feature", metavar="NAME=LEVEL", help="Level of a feature in a new cluster, if not the newest."),
    ] = None,
) -> None:
    """Start the controller of a cluster (a beginning: see below)."""
    from fencepost.cli.serve import InvalidOption, check_address, check_settings, gather_settings
    from fencepost.settings import InvalidSetting
    from fencepost.shell.controller_process import ControllerOptions, parse_levels, run_controller
    from fencepost.shell.running_broker import CannotStart

    try:
        check_address(listen, "--listen")
        given = gather_settings(None, settings or [])
        check_settings(given)
        host, _, port = listen.rpartition("://")[2].rpartition(":")
        run_controller(
            ControllerOptions(
                data, host.strip("[]"), int(port), node_id, cluster_id, given, parse_levels(features or [])
            )
        )
    except (InvalidOption, InvalidSetting, CannotStart) as error:
        raise CommandFailed(str(error)) from None
