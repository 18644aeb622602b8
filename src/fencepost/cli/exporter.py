"""`fencepost exporter`: Prometheus metrics about the transactions and groups of any cluster."""

import asyncio
from typing import Annotated

import typer

from fencepost.cli.connection import BootstrapOrProfile, CommandConfig, Profile, open_view
from fencepost.cli.output import CommandFailed, run_async, say

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

EPILOG = """\
\b
Examples:
  fencepost exporter --bootstrap-server kafka:9092 --listen 0.0.0.0:9405
  curl -s 127.0.0.1:9405/metrics | grep kafka_group_lag

A Grafana dashboard and alert rules are in the directory monitoring/ of the repository.
"""


def exporter(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address on which to serve /metrics.")
    ] = "127.0.0.1:9405",
    interval: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Time between two collections.")] = 15.0,
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
) -> None:
    """Serve Prometheus metrics about consumer lag, held-up partitions, and open and hanging transactions."""

    async def work() -> None:
        from prometheus_client import CollectorRegistry

        from fencepost.cli.serve import InvalidOption, check_address
        from fencepost.insight.exporter import ClusterCollector
        from fencepost.shell.metrics_endpoint import serve_registry
        from fencepost.shell.running_broker import CannotStart, parse_listeners, reserve

        try:
            check_address(listen, "--listen")
            bound = reserve(parse_listeners([listen])[0])
        except InvalidOption as error:
            raise CommandFailed(str(error)) from None
        except CannotStart as error:
            raise CommandFailed(str(error)) from None
        async with open_view(bootstrap_server, command_config, profile) as view:
            collector = ClusterCollector()
            registry = CollectorRegistry()
            registry.register(collector)
            await serve_registry(registry, bound)
            host, port = bound.getsockname()[:2]
            say(f"serving http://{host}:{port}/metrics", is_error=True)
            await collector.keep_looking(view, interval)

    try:
        run_async(work())
    except asyncio.CancelledError:
        raise typer.Exit from None
