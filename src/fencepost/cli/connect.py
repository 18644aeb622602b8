"""`fencepost connect`: sources from a file into Kafka, exactly once; and what may be asked and ordered meanwhile."""

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from fencepost.cli.connection import BootstrapOrProfile, CommandConfig, Profile, reach
from fencepost.cli.output import CommandFailed, print_json, print_table, say
from fencepost.terminal_text import json_text

if TYPE_CHECKING:
    from fencepost.connect.cluster import ClusterAddress
    from fencepost.connect.positions import Held
    from fencepost.connect.sources import Source

# Imports inside functions: a command loads only what it needs, so that each starts quickly.

EPILOG = """\
\b
Try it: each line that is appended to a file becomes one record.
  fencepost serve --data ./data &
  LINES_FILE=/var/log/syslog fencepost connect examples/file_tail.py

\b
A table of PostgreSQL, every change once and in order (docs/sources.md):
  # shop.py
  from fencepost.connect.postgres import PostgresSource
  shop = PostgresSource("shop", "postgresql://capture@db/shop", tables=["public.orders"])

\b
  fencepost connect shop.py --dry-run                    what it would do and change; changes nothing
  fencepost connect shop.py                              run it; Ctrl-C ends behind a complete transaction
  fencepost connect status                               every source: position, since when, who runs it
  fencepost connect pause shop.py                        its tasks stop reading, wherever they run
  fencepost connect resume shop.py
  fencepost connect reset shop.py                        forget the position; drop slot and publication

\b
Start it a second time, on any machine, and it takes over: the first one is fenced and ends with a message that names
the second. There is no lock to wait for and nothing to clean up after a crash.
"""
_HELP = "Sources into Kafka, exactly once: `fencepost connect FILE.py`."


class _RunsFiles(TyperGroup):
    """`fencepost connect FILE.py` is short for `fencepost connect run FILE.py`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            args = ["run", *args]
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_RunsFiles, help=_HELP, epilog=EPILOG, no_args_is_help=True)

SourceFile = Annotated[
    Path, typer.Argument(metavar="FILE", show_default=False, help="Python file that declares sources.")
]
Names = Annotated[
    list[str],
    typer.Option("--source", metavar="NAME", help="Only this source of the file; may be given several times."),
]
OffsetsTopic = Annotated[
    str, typer.Option(metavar="TOPIC", help="The compacted topic of the positions, in Kafka Connect's format.")
]
DEFAULT_OFFSETS_TOPIC = "fencepost-connect-offsets"


@app.command("run", epilog=EPILOG)
def run(
    file: SourceFile,
    names: Names = [],  # noqa: B006
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say where each task would go on and what it would change. Changes nothing."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON document per event and line.")] = False,
    transaction_timeout_ms: Annotated[
        int,
        typer.Option(
            min=1000,
            metavar="MS",
            help="How long a transaction may be open. Grows by itself, up to the brokers' limit, where a source "
            "transaction needs longer.",
        ),
    ] = 60_000,
    heartbeat_seconds: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="How often an idle task writes its position again.")
    ] = 60.0,
    offsets_topic: OffsetsTopic = DEFAULT_OFFSETS_TOPIC,
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
) -> None:
    """Run the sources of a file until Ctrl-C. Takes over from a process that runs them already."""
    from fencepost.cli.connect_view import view
    from fencepost.connect.task import TaskSettings
    from fencepost.connect.worker import Worker

    sources = _load(file, names)
    cluster = _cluster(bootstrap_server, command_config, profile, offsets_topic)
    settings = TaskSettings(transaction_timeout_ms, heartbeat_seconds)
    with _told():
        if dry_run:
            _preview(sources, cluster, as_json)
            return
        shown = view(as_json=as_json)
        worker = Worker(sources, cluster, shown.told, settings)
        shown.starting(cluster.bootstrap_servers, [task.name for task in worker.tasks])
        was_interrupted = False

        def interrupted(*_: object) -> None:
            nonlocal was_interrupted
            if was_interrupted:
                raise KeyboardInterrupt
            was_interrupted = True
            worker.stop()

        before = [(number, signal.signal(number, interrupted)) for number in (signal.SIGINT, signal.SIGTERM)]
        failures: Sequence[Any] = ()
        try:
            failures = worker.run()
        finally:
            for number, handler in before:
                signal.signal(number, handler)
            shown.ended("failed" if failures else "interrupted" if was_interrupted else "ended")
        if failures:
            raise typer.Exit(1)


@app.command("status")
def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    offsets_topic: OffsetsTopic = DEFAULT_OFFSETS_TOPIC,
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
) -> None:
    """Every source that the cluster knows: its position, when it was written, and by which process."""
    from fencepost.client.errors import UnknownTopic
    from fencepost.connect.positions import Positions
    from fencepost.connect.target_states import read_paused

    cluster = _cluster(bootstrap_server, command_config, profile, offsets_topic)
    with _told():
        try:
            found = Positions(cluster).read_all()
        except UnknownTopic:
            raise CommandFailed(
                f"there is no topic {offsets_topic}: no source has run on this cluster",
                "start one with `fencepost connect FILE.py`, or name its topic with --offsets-topic",
            ) from None
        paused = read_paused(cluster)
    documents = [
        _status_document(name, partition.decode(), held, name in paused)
        for (name, partition), held in sorted(found.items())
    ]
    if as_json:
        print_json({"offsets_topic": offsets_topic, "sources": documents})
        return
    rows = [
        (
            each["source"],
            "" if each["partition"] == "{}" else each["partition"],
            "paused" if each["is_paused"] else "started",
            json_text(each["position"]),
            f"{each['seconds_ago']} s ago",
            each["worker"] or "-",
        )
        for each in documents
    ]
    print_table(("source", "partition", "wanted", "position", "written", "by"), rows)


def _status_document(name: str, partition: str, held: "Held", is_paused: bool) -> dict[str, Any]:
    claimant = held.claimant
    return {
        "source": name,
        "partition": partition,
        "is_paused": is_paused,
        "position": held.position,
        "written_ms": held.written_ms,
        "seconds_ago": max(0, round(time.time() - held.written_ms / 1000)),
        "worker": None if claimant is None else claimant.worker,
        "running_since_ms": None if claimant is None else claimant.since_ms,
    }


@app.command("pause")
def pause(
    file: SourceFile,
    names: Names = [],  # noqa: B006
    offsets_topic: OffsetsTopic = DEFAULT_OFFSETS_TOPIC,
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
) -> None:
    """Stop reading, wherever the tasks run. Their processes stay, and go on at `resume`."""
    from fencepost.connect.target_states import PAUSED

    _order(_load(file, names), PAUSED, _cluster(bootstrap_server, command_config, profile, offsets_topic))


@app.command("resume")
def resume(
    file: SourceFile,
    names: Names = [],  # noqa: B006
    offsets_topic: OffsetsTopic = DEFAULT_OFFSETS_TOPIC,
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
) -> None:
    """Go on after `pause`."""
    from fencepost.connect.target_states import STARTED

    _order(_load(file, names), STARTED, _cluster(bootstrap_server, command_config, profile, offsets_topic))


@app.command("reset")
def reset(
    file: SourceFile,
    names: Names = [],  # noqa: B006
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    offsets_topic: OffsetsTopic = DEFAULT_OFFSETS_TOPIC,
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
) -> None:
    """Forget positions, and drop what was made at the source. The next run begins anew, and writes all of it again."""
    from fencepost.connect.positions import Claimant
    from fencepost.connect.task import Task

    sources = _load(file, names)
    cluster = _cluster(bootstrap_server, command_config, profile, offsets_topic)
    if not yes:
        typer.confirm(
            f"Forget the positions of {', '.join(source.name for source in sources)}? What is in Kafka stays there, "
            "and the next run writes it a second time",
            abort=True,
        )
    with _told():
        for source in sources:
            for partition in source.partitions:
                task = Task(source, partition, cluster, Claimant.this_process("reset"), _say_reset, _Nothing())
                task.reset()
                say(f"{task.name}: position forgotten")


class _Nothing:
    """A task that does not run waits for nobody's orders."""

    def is_stopping(self) -> bool:
        return False

    def is_paused(self, name: str) -> bool:
        return False

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


def _say_reset(event: str, task: str, /, **facts: Any) -> None:
    if event == "reset":
        say(f"{task}: {facts['did']}")


def _order(sources: "Sequence[Source]", state: str, cluster: "ClusterAddress") -> None:
    from fencepost.connect.target_states import write_target_state

    for source in sources:
        write_target_state(cluster, source.name, state)
        say(f"{source.name}: {state.lower()}")


def _preview(sources: "Sequence[Source]", cluster: "ClusterAddress", as_json: bool) -> None:
    from fencepost.connect.positions import Claimant, transactional_id
    from fencepost.connect.task import Task

    for source in sources:
        for partition in source.partitions:
            task = Task(source, partition, cluster, Claimant.this_process(), _say_reset, _Nothing())
            held, changes = task.preview()
            facts = {
                "position": held.position,
                "transactional_id": transactional_id(source.name, partition),
                "run_by": None if held.claimant is None else str(held.claimant),
                "changes": list(changes),
            }
            if as_json:
                print(json_text({"event": "preview", "task": task.name, **facts}), flush=True)
                continue
            where = "from the beginning" if held.position is None else f"from position {json_text(held.position)}"
            say(f"{task.name}: would go on {where}, as {facts['transactional_id']}")
            if held.claimant is not None:
                say(f"{task.name}: would take over from {held.claimant}")
            for each in changes:
                say(f"{task.name}: {each}")


def _load(file: Path, names: Sequence[str]) -> "list[Source]":
    from fencepost.cli.user_file import import_file
    from fencepost.connect.errors import ConnectError
    from fencepost.connect.sources import Source

    try:
        module = import_file(file, "sources")
    except CommandFailed as error:
        if isinstance(error.__cause__, ConnectError):
            raise CommandFailed(error.__cause__.fact, error.__cause__.advice) from None
        raise
    found: dict[str, Source] = {}
    for value in vars(module).values():
        if isinstance(value, Source):
            if value.name in found and found[value.name] is not value:
                raise CommandFailed(
                    f"{file} declares two sources {value.name}", "positions are kept by name: rename one"
                )
            found[value.name] = value
    if not found:
        raise CommandFailed(f"{file} declares no source", "put @source(...) over a function; see docs/sources.md")
    for name in names:
        if name not in found:
            raise CommandFailed(f"{file} declares no source {name}", f"it has {', '.join(sorted(found))}")
    return [source for name, source in found.items() if not names or name in names]


def _cluster(
    bootstrap_server: str | None, command_config: Path | None, profile: str | None, offsets_topic: str
) -> "ClusterAddress":
    from fencepost.connect.cluster import ClusterAddress

    servers, settings = reach(bootstrap_server, command_config, profile)
    return ClusterAddress(servers, settings, offsets_topic)


@contextmanager
def _told() -> Iterator[None]:
    from fencepost.connect.errors import ConnectError

    try:
        yield
    except ConnectError as error:
        raise CommandFailed(error.fact, error.advice) from None
