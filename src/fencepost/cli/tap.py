"""`fencepost tap`: a proxy that shows every transaction on the wire, and `fencepost tap show` for its recordings."""

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli.connection import CommandConfig, Profile, client_settings
from fencepost.cli.options import Json
from fencepost.cli.output import CommandFailed, print_json, print_table, run_async, say
from fencepost.terminal_text import harmless, json_text

if TYPE_CHECKING:
    from fencepost.tap.calls import Call, Recording
    from fencepost.tap.tls import Encryption

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

EPILOG = """\
\b
Examples:
  fencepost tap --upstream 127.0.0.1:9092 --listen 127.0.0.1:9192      then connect clients to port 9192
  fencepost tap --upstream kafka:9092 --record incident.tap            record every call, including unanswered ones
  fencepost tap --upstream kafka:9093 --command-config client.properties --listen-cert tap.pem    TLS on both sides
  fencepost tap show incident.tap                                      list the transactional ids in it
  fencepost tap show incident.tap --transactional-id shop-1            show one of them, call by call

Further brokers of the cluster get the ports after that of --listen. Passwords, tokens and the values of settings are
never recorded; keys and values of records only with --contents. Clients authenticate through the tap, which does not
authenticate itself: it uses only the TLS settings of --command-config.
"""

app = typer.Typer(invoke_without_command=True, epilog=EPILOG, rich_markup_mode=None, subcommand_metavar="[show FILE]")
HELD_CHECK_SECONDS = 0.25


@app.callback()
def tap(
    context: typer.Context,
    upstream: Annotated[str, typer.Option(metavar="HOST:PORT", help="A broker of the cluster to watch.")] = "",
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address for the clients; port 0 chooses a free one.")
    ] = "127.0.0.1:9192",
    record: Annotated[Path | None, typer.Option(metavar="FILE", help="Write every call to this file.")] = None,
    contents: Annotated[bool, typer.Option("--contents", help="Also record the keys and values of records.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print every call as JSON lines.")] = False,
    command_config: CommandConfig = None,
    profile: Profile = None,
    listen_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Use TLS towards clients, with this certificate chain (PEM).")
    ] = None,
    listen_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Private key of --listen-cert, if it is in another file.")
    ] = None,
) -> None:
    """Watch transactions on the wire, as a proxy between clients and a cluster."""
    if context.invoked_subcommand is not None:
        return
    if not upstream:
        raise typer.BadParameter("give HOST:PORT of a broker of the cluster", param_hint="--upstream")
    if listen_key is not None and listen_cert is None:
        raise typer.BadParameter("also give the certificate with --listen-cert", param_hint="--listen-key")
    addresses = _address(upstream, "--upstream"), _address(listen, "--listen")
    encryption = _encryption(client_settings(command_config, profile)[1], listen_cert, listen_key)
    run_async(_tap(*addresses, encryption, record, contents, as_json))


def _address(text: str, option: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise typer.BadParameter(f"{text!r} is not HOST:PORT", param_hint=option)
    return host.strip("[]"), int(port)


def _encryption(settings: dict[str, Any], certificate: Path | None, key: Path | None) -> "Encryption":
    from fencepost.client.security import InvalidOption
    from fencepost.tap.tls import Encryption, listening_context, upstream_context

    try:
        upstream = upstream_context(settings)
    except InvalidOption as error:
        raise CommandFailed(str(error), error.advice) from None
    if certificate is None:
        return Encryption(upstream)
    try:
        return Encryption(upstream, listening_context(str(certificate), None if key is None else str(key)))
    except OSError as error:
        raise CommandFailed(
            f"cannot use the certificate in {certificate}: {error.strerror or error}",
            "the file must be PEM; its key is in the same file or in that of --listen-key",
        ) from None


async def _tap(
    upstream: tuple[str, int],
    listen: tuple[str, int],
    encryption: "Encryption",
    record: Path | None,
    contents: bool,
    as_json: bool,
) -> None:
    from fencepost.tap.proxy import Tap, TapFailed
    from fencepost.tap.recording import RecordingFile

    printer = _JsonPrinter() if as_json else _LanePrinter()
    observers: list[Callable[[dict[str, Any]], None]] = [printer.take]
    try:
        file = None if record is None else RecordingFile(record)
    except OSError as error:
        raise CommandFailed(f"cannot write {record}: {error.strerror}") from None
    if file is not None:
        observers.append(file.write)

    def observe(line: dict[str, Any]) -> None:
        for each in observers:
            each(line)

    server = Tap(upstream, listen, observe, with_contents=contents, encryption=encryption)
    try:
        await server.start()
        say("listening on {}:{}".format(*server.address), is_error=True)
        while True:
            await asyncio.sleep(HELD_CHECK_SECONDS)
            printer.look_for_held(time.time())
    except TapFailed as error:
        raise CommandFailed(str(error)) from None
    finally:
        await server.stop()
        if file is not None:
            file.__exit__(None, None, None)


class _JsonPrinter:
    def take(self, line: dict[str, Any]) -> None:
        print(json_text(line), flush=True)

    def look_for_held(self, now: float) -> None:
        pass


class _LanePrinter:
    """Prints a line for each call of a transaction when it is answered or lost, and for calls that wait long."""

    def __init__(self) -> None:
        from fencepost.tap.calls import Recording

        self._recording = Recording()
        self._told_held: set[int] = set()
        self._last_id = ""

    def take(self, line: dict[str, Any]) -> None:
        call = self._recording.add(line)
        if call is None or line["type"] == "request":
            return
        self._recording.calls.pop(call.number, None)
        self._told_held.discard(call.number)
        self._print(call, None)

    def look_for_held(self, now: float) -> None:
        from fencepost.tap.swim_lanes import HELD_SECONDS

        for number, call in self._recording.calls.items():
            if now - call.asked_at > HELD_SECONDS and number not in self._told_held:
                self._told_held.add(number)
                self._print(call, now)

    def _print(self, call: "Call", now: float | None) -> None:
        from fencepost.tap.swim_lanes import heading, line

        for name in call.transactional_ids:
            if name != self._last_id:
                for text in ("", *heading(name, [call])):
                    say(text)
                self._last_id = name
            print(_coloured(line(call, now), call), flush=True)


def _coloured(text: str, call: "Call") -> str:
    text = harmless(text)
    if not sys.stdout.isatty() or not (call.errors or call.lost or call.answered_at is None):
        return text
    return f"\033[33m{text}\033[0m"


@app.command("show")
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    transactional_id: Annotated[
        str | None, typer.Option("--transactional-id", metavar="ID", help="Show the calls of this id.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a recording: its transactional ids, or the calls of one of them."""
    recording = _read(file)
    if transactional_id is None:
        _show_ids(recording, as_json)
        return
    calls = recording.of(transactional_id)
    if not calls:
        known = ", ".join(recording.transactional_ids()[:10]) or "none"
        raise CommandFailed(f"{file} has no call of transactional id {transactional_id!r}", f"it has: {known}")
    from fencepost.tap.swim_lanes import heading, line

    if as_json:
        print_json([_document(call) for call in calls])
        return
    for text in heading(transactional_id, calls):
        say(text)
    for call in calls:
        print(_coloured(line(call), call))


def _read(file: Path) -> "Recording":
    from fencepost.tap.calls import recording_of
    from fencepost.tap.recording import InvalidRecording, read_recording

    try:
        return recording_of(read_recording(file))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"cannot read {file}: {getattr(error, 'strerror', None) or 'it is not text'}") from None
    except InvalidRecording as error:
        raise CommandFailed(str(error), "make one with `fencepost tap --record FILE`") from None


def _show_ids(recording: "Recording", as_json: bool) -> None:
    rows: list[dict[str, str | int | float]] = []
    for name in recording.transactional_ids():
        calls = recording.of(name)
        slowest = max((call.seconds for call in calls if call.seconds is not None), default=0.0)
        rows.append(
            {
                "transactional_id": name,
                "calls": len(calls),
                "errors": sum(bool(call.errors) for call in calls),
                "unanswered": sum(call.answered_at is None for call in calls),
                "slowest_ms": round(slowest * 1000, 1),
                "last_call": calls[-1].api,
            }
        )
    if as_json:
        print_json(rows)
    else:
        print_table(
            ["transactional id", "calls", "errors", "unanswered", "slowest ms", "last call"],
            [[str(cell) if isinstance(cell, float) else cell for cell in row.values()] for row in rows],
        )


def _document(call: "Call") -> dict[str, Any]:
    return {
        "api": call.api, "version": call.version, "client_id": call.client_id, "client": call.client,
        "connection": call.connection, "broker": call.broker, "asked_at": call.asked_at,
        "seconds": call.seconds, "errors": call.errors, "lost": call.lost,
        "request": call.request, "response": call.response,
    }  # fmt: skip
