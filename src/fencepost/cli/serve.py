"""`fencepost serve`: parses and checks its options and the config file. `fencepost.shell.serve` runs the broker.

Parsed with argparse, not typer: this command must reach its listener quickly.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Never

from fencepost.cli.scram_users import InvalidUser, first_users

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

DEFAULT_LISTEN = "127.0.0.1:9092"
DEFAULT_PORT_MAX = 65_535

_EPILOG = """\
examples:
  fencepost serve --data ./data
  fencepost serve --data /var/lib/fencepost --listen 0.0.0.0:9092 --advertise broker.example.org:9092
  fencepost serve --data ./data --set flush=os --set num.partitions=3 --metrics 127.0.0.1:9404
  fencepost serve --data ./data --ui 127.0.0.1:8090
  fencepost serve --data ./data --listen INTERNAL://10.0.0.5:9092 --listen EXTERNAL://0.0.0.0:9093 \\
                  --advertise EXTERNAL://broker.example.org:9093
  fencepost serve --data ./data --config secured.properties --listen SASL_SSL://0.0.0.0:9093 --add-scram @users

Setting names are Kafka's where Kafka has one; `fencepost configs describe --broker 1 --all` lists them all.
SIGTERM, SIGINT and SIGHUP shut the broker down cleanly.
"""


class InvalidOption(Exception):
    """An invalid option or line of the config file; the text says why and what to write instead."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Never:
        print(f"error: {message}; see `fencepost serve --help`", file=sys.stderr)
        sys.exit(2)


def parser() -> argparse.ArgumentParser:
    made = _Parser(
        prog="fencepost serve",
        description="Start a broker. It prints one line with `listening on HOST:PORT` once it accepts connections.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("--data", required=True, type=Path, metavar="DIR", help="data directory; created if missing")
    made.add_argument(
        "--listen",
        action="append",
        default=[],
        metavar="[NAME://]HOST:PORT",
        help=f"address to listen on (default {DEFAULT_LISTEN}; port 0 chooses a free one); can be repeated",
    )
    made.add_argument(
        "--advertise",
        action="append",
        default=[],
        metavar="[NAME://]HOST:PORT",
        help="address that clients should use, if it differs; matched to --listen by name, or by order",
    )
    made.add_argument("--config", type=Path, metavar="FILE", help="file of settings, one name=value per line")
    made.add_argument(
        "--set", action="append", default=[], dest="settings", metavar="NAME=VALUE",
        help="a setting; overrides the file; can be repeated",
    )  # fmt: skip
    made.add_argument(
        "--add-scram", action="append", default=[], metavar="MECHANISM=[name=USER,password=PASSWORD]",
        help="an initial user, in the format of kafka-storage.sh; existing users are kept. "
        "@FILE reads one user per line",
    )  # fmt: skip
    made.add_argument("--metrics", metavar="HOST:PORT", help="serve Prometheus metrics here")
    made.add_argument(
        "--ui", metavar="HOST:PORT", help="serve a web page about this broker here, in a separate process"
    )
    made.add_argument("--ui-allow-actions", action="store_true", help="allow aborting transactions from the page")
    made.add_argument(
        "--ui-command-config", type=Path, metavar="FILE",
        help="client settings for the page to connect to the first listener, if it is secured",
    )  # fmt: skip
    return made


def run_serve(arguments: Sequence[str]) -> int:
    open_standard_streams()
    given = parser().parse_args(arguments)
    from fencepost.settings import InvalidSetting

    try:
        settings = gather_settings(given.config, given.settings)
        listen = given.listen or _listed(settings.pop("listeners", "")) or [DEFAULT_LISTEN]
        advertise = given.advertise or _listed(settings.pop("advertised.listeners", ""))
        settings.pop("listeners", None)
        settings.pop("advertised.listeners", None)
        for option, addresses in (("--listen", listen), ("--advertise", advertise)):
            for address in addresses:
                check_address(address, option)
        if given.metrics is not None:
            check_address(given.metrics, "--metrics")
        if given.ui is not None:
            check_address(given.ui, "--ui")
            check_page_installed()
        check_settings(settings)
        users = first_users(given.add_scram)
    except (InvalidOption, InvalidSetting, InvalidUser) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    from fencepost.shell.serve import ServeOptions, serve

    page = None
    if given.ui is not None:
        from fencepost.shell.page_process import PageOptions

        page = PageOptions(given.ui, given.ui_allow_actions, given.ui_command_config)
    return serve(
        ServeOptions(
            data=given.data,
            listen=listen,
            advertise=advertise,
            settings=settings,
            metrics=given.metrics,
            page=page,
            users=users,
        )
    )


def open_standard_streams() -> None:
    """Where a service was started with standard streams closed, the first files that it opens would take their numbers,
    and whatever a library prints would go into them."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def check_page_installed() -> None:
    import importlib.util

    missing = [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise InvalidOption(f"the page needs {' and '.join(missing)}; install them with: pip install 'fencepost[ui]'")


def gather_settings(file: Path | None, assignments: Sequence[str]) -> dict[str, str]:
    settings = {} if file is None else read_properties(file)
    for text in assignments:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise InvalidOption(f"--set {text!r} is not NAME=VALUE")
        settings[name.strip()] = value.strip()
    return settings


def check_settings(settings: dict[str, str]) -> None:
    from fencepost.config import broker_config, broker_settings, check_served

    broker_config(settings)
    check_served(broker_settings(), settings)


def read_properties(file: Path) -> dict[str, str]:
    """Reads a file like Java's Properties: name=value or name: value, # and ! comments, \\ continues a line."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidOption(f"cannot read the config file {file}: {reason}") from None
    settings: dict[str, str] = {}
    pending, begun_at = "", 0
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not pending and (not text or text[0] in "#!"):
            continue
        begun_at = begun_at if pending else number
        pending += text
        if pending.endswith("\\") and not pending.endswith("\\\\"):
            pending = pending[:-1]
            continue
        name, value = _property(pending, file, begun_at)
        settings[name] = value
        pending = ""
    if pending:
        name, value = _property(pending, file, begun_at)
        settings[name] = value
    return settings


def _property(text: str, file: Path, number: int) -> tuple[str, str]:
    at = min((found for found in (text.find("="), text.find(":")) if found >= 0), default=-1)
    name = text[:at].strip()
    if at < 0 or not name:
        raise InvalidOption(f"line {number} of {file} is not name=value: {text}")
    return name, text[at + 1 :].strip()


def check_address(text: str, option: str) -> None:
    """Checks [NAME://]HOST:PORT. A host with colons stands in brackets; an empty one means every interface."""
    _, _, address = text.rpartition("://")
    host, separator, port = address.rpartition(":")
    is_bare_ipv6 = ":" in host and not (host.startswith("[") and host.endswith("]"))
    if not separator or is_bare_ipv6 or not (port.isascii() and port.isdigit()) or int(port) > DEFAULT_PORT_MAX:
        raise InvalidOption(f"{option} {text} is not an address; write HOST:PORT, for example 127.0.0.1:9092")


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
