"""The tree of commands. Command modules import the client only when a command runs."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fencepost.cli import (
    acls,
    check_history,
    configs,
    connect,
    consume,
    controller,
    dump,
    explain,
    exporter,
    groups,
    kafka_config,
    lag,
    produce,
    repair,
    run,
    simulate,
    tap,
    topics,
    txn,
    ui,
)
from fencepost.cli.options import Json
from fencepost.version import __version__

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

_EPILOG = """\
\b
Examples:
  fencepost serve --data ./data                          start a broker on 127.0.0.1:9092
  fencepost topics create purchases --partitions 3       make a topic
  echo 'alice:one book' | fencepost produce purchases --key-separator :
  fencepost consume purchases --print-key                read it back, then stop
  fencepost consume purchases --follow --json            keep reading, as JSON lines
  fencepost groups describe billing                      members, positions and lag
  fencepost run examples/shop.py --sample 1000           run an exactly-once pipeline on Spark
  fencepost connect examples/file_tail.py                copy the lines of a file to Kafka, exactly once
  fencepost demo                                         watch clients, transactions and crashes

Every command but serve, repair, controller, kafka-config and demo works against Apache Kafka too: --bootstrap-server
HOST:PORT, or the variable FENCEPOST_BOOTSTRAP_SERVER. See `fencepost COMMAND --help`.
"""

ORDER = (
    "serve",
    "topics",
    "produce",
    "consume",
    "groups",
    "configs",
    "acls",
    "explain",
    "txn",
    "lag",
    "dump",
    "repair",
    "kafka-config",
    "tap",
    "exporter",
    "ui",
    "check-history",
    "simulate",
    "run",
    "connect",
    "controller",
    "demo",
    "version",
)


class InOrder(TyperGroup):
    """Lists the commands in the order in which a new user needs them, not by the alphabet."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=ORDER.index)


app = typer.Typer(
    name="fencepost",
    cls=InOrder,
    help="A log broker that speaks Kafka's protocol, and the tools to work with it.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"fencepost {__version__}")
        raise typer.Exit


@app.command(
    "serve",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
)
def serve(context: typer.Context) -> None:
    """Start a broker."""
    # Reached only when options come before the command; the short way is in main.
    from fencepost.cli.serve import run_serve

    raise typer.Exit(run_serve(context.args))


app.add_typer(topics.app, name="topics")
app.command("produce", epilog=produce.EPILOG)(produce.produce)
app.command("consume", epilog=consume.EPILOG)(consume.consume)
app.add_typer(groups.app, name="groups")
app.add_typer(configs.app, name="configs")
app.add_typer(acls.app, name="acls")
app.command("explain", epilog=explain.EPILOG)(explain.explain)
app.command("controller", epilog=controller.EPILOG)(controller.controller)
app.command("lag", epilog=lag.EPILOG)(lag.lag)
app.add_typer(txn.app, name="txn")
app.command("run", epilog=run.EPILOG)(run.run)
app.add_typer(connect.app, name="connect")
app.command("dump", epilog=dump.EPILOG)(dump.dump)
app.command("repair", epilog=repair.EPILOG)(repair.repair)
app.command("kafka-config", epilog=kafka_config.EPILOG)(kafka_config.kafka_config)
app.add_typer(tap.app, name="tap")
app.command("exporter", epilog=exporter.EPILOG)(exporter.exporter)
app.command("ui", epilog=ui.EPILOG)(ui.ui)
app.command("check-history", epilog=check_history.EPILOG)(check_history.check_history)
app.command("simulate", epilog=simulate.EPILOG)(simulate.simulate)


@app.command("demo")
def demo(
    as_json: Json = False,
    purchases: Annotated[int, typer.Option(min=1, metavar="N", help="Number of purchases to process.")] = 1500,
    act: Annotated[int | None, typer.Option(min=1, max=2, metavar="N", help="Run only this act.")] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Repeat the same kills with an at-least-once sink.")
    ] = False,
    connector_jars: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory with the jars of Spark's own Kafka connector, for --compare."),
    ] = None,
) -> None:
    """Watch it work: Kafka clients and transactions, then a Spark pipeline that is killed and loses nothing."""
    from fencepost.cli.demo.command import run_demo

    raise typer.Exit(run_demo(purchases, act=act, compare=compare, connector_jars=connector_jars, as_json=as_json))


@app.command("version")
def version(as_json: Json = False) -> None:
    """Print the version."""
    python = ".".join(map(str, sys.version_info[:3]))
    if as_json:
        from fencepost.cli.output import print_json

        print_json({"fencepost": __version__, "python": python})
    else:
        print(f"fencepost {__version__} (Python {python})")
