"""How commands reach a cluster: by an address, a file of client settings as for Kafka's tools, or a profile.

A profile is such a file with a name: `~/.config/fencepost/profiles/NAME.properties`. It may also set
`bootstrap.servers`, so that `--profile production` is all one has to remember at night.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli.options import DEFAULT_BOOTSTRAP_SERVER
from fencepost.cli.output import CommandFailed, say

if TYPE_CHECKING:
    from fencepost.client.admin import AsyncAdmin
    from fencepost.insight.cluster_view import ClusterView

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

BootstrapOrProfile = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        envvar="FENCEPOST_BOOTSTRAP_SERVER",
        metavar="HOST:PORT[,...]",
        help=f"Address of a broker (Fencepost or Apache Kafka). [default: {DEFAULT_BOOTSTRAP_SERVER}]",
        show_default=False,
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option("--command-config", metavar="FILE", help="File of client settings (TLS, SASL), as for Kafka's tools."),
]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        envvar="FENCEPOST_PROFILE",
        metavar="NAME",
        help="Use the settings in ~/.config/fencepost/profiles/NAME.properties.",
    ),
]


def open_view(
    bootstrap_server: str | None,
    command_config: Path | None,
    profile: str | None,
    defaults: Mapping[str, str] | None = None,
) -> "ClusterView":
    """Use it with `async with`."""
    from fencepost.insight.cluster_view import ClusterView
    from fencepost.insight.command_line import CommandLine

    servers, settings = reach(bootstrap_server, command_config, profile, defaults)
    # Always includes the address: where the command is pasted, the environment may name another cluster.
    options = ["--bootstrap-server", servers]
    if command_config is not None:
        options += ["--command-config", str(command_config.absolute())]
    if profile is not None:
        options += ["--profile", profile]
    return ClusterView(servers, CommandLine(tuple(options)), **settings)


def open_admin(bootstrap_server: str | None, command_config: Path | None, profile: str | None) -> "AsyncAdmin":
    """Use it with `async with`."""
    from fencepost.client.admin import AsyncAdmin

    servers, settings = reach(bootstrap_server, command_config, profile)
    return AsyncAdmin(servers, **settings)


def reach(
    bootstrap_server: str | None,
    command_config: Path | None,
    profile: str | None,
    defaults: Mapping[str, str] | None = None,
) -> tuple[str, dict[str, Any]]:
    """The bootstrap servers and the client's other settings. Options override the file, the file overrides the
    profile."""
    named, settings = client_settings(command_config, profile, defaults)
    return bootstrap_server or named or DEFAULT_BOOTSTRAP_SERVER, settings


def client_settings(
    command_config: Path | None, profile: str | None, defaults: Mapping[str, str] | None = None
) -> tuple[str, dict[str, Any]]:
    """`bootstrap.servers`, empty if no file sets it, and the client's other settings."""
    settings: dict[str, str] = dict(defaults or {})
    for file in (None if profile is None else profile_file(profile), command_config):
        if file is not None:
            settings.update(_read(file))
    return settings.pop("bootstrap.servers", ""), _known(settings)


def profile_file(name: str) -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    directory = Path(base) / "fencepost" / "profiles"
    file = directory / f"{name}.properties"
    if "/" in name or not file.is_file():
        known = sorted(found.stem for found in directory.glob("*.properties")) if directory.is_dir() else []
        raise CommandFailed(
            f"there is no profile {name!r} in {directory}", f"the profiles are: {', '.join(known)}" if known else ""
        )
    return file


def _read(file: Path) -> dict[str, str]:
    from fencepost.cli.serve import InvalidOption, read_properties

    try:
        return read_properties(file)
    except InvalidOption as error:
        raise CommandFailed(str(error)) from None


def _known(settings: dict[str, str]) -> dict[str, Any]:
    """A file may be shared with producers and consumers. Their settings are ignored, with a message."""
    from fencepost.client.options import is_option

    foreign = [name for name in settings if not is_option(name)]
    if foreign:
        say(f"ignored settings that this command does not use: {', '.join(foreign)}", is_error=True)
    return {name: value for name, value in settings.items() if name not in foreign}
