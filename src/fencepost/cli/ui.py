"""`fencepost ui`: the page, for any cluster."""

import secrets
import socket
from typing import Annotated

import typer

from fencepost.cli.connection import BootstrapOrProfile, CommandConfig, Profile, open_view
from fencepost.cli.output import CommandFailed, run_async, say

# Imports inside functions: a command loads only what it needs, so that each starts quickly.

EPILOG = """\
\b
Examples:
  fencepost ui --bootstrap-server kafka:9092            then open http://127.0.0.1:8090/
  fencepost ui --listen 0.0.0.0:8090                    from elsewhere, with the token that is printed
  fencepost ui --profile production --allow-actions     transactions may be aborted from the page
  fencepost serve --data ./data --ui 127.0.0.1:8090     a broker with its page
"""
# A page that waits long for a broker that is away looks dead; it comes again soon anyway.
PATIENCE = {"retry.timeout.ms": "4000", "request.timeout.ms": "10000", "connect.timeout.ms": "4000"}


def ui(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the page is served.")] = "127.0.0.1:8090",
    allow_actions: Annotated[
        bool, typer.Option("--allow-actions", help="Transactions may be aborted from the page.")
    ] = False,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="FENCEPOST_UI_TOKEN",
            metavar="TOKEN",
            help="What the page asks for. Off loopback one is made up if none is given.",
        ),
    ] = None,
    stuck_after: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="A transaction may hold readers for so long before it is shown."),
    ] = 10.0,
    allow_host: Annotated[
        list[str], typer.Option(metavar="NAME", help="A name the page is reached by, besides its address.")
    ] = [],  # noqa: B006
    listen_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
    parent_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
    bootstrap_server: BootstrapOrProfile = None,
    command_config: CommandConfig = None,
    profile: Profile = None,
) -> None:
    """Serve a live page about transactions, partitions, groups and producers of any cluster."""
    from fencepost.cli.serve import InvalidOption, check_address, check_page_installed
    from fencepost.shell.running_broker import CannotStart, parse_listeners, reserve

    if token is not None and not token.strip():
        raise CommandFailed("an empty token protects nothing", "leave --token out, or give one")
    try:
        check_page_installed()
        check_address(listen, "--listen")
        listener = parse_listeners([listen])[0]
        bound = reserve(listener) if listen_fd is None else socket.socket(fileno=listen_fd)
    except (InvalidOption, CannotStart) as error:
        raise CommandFailed(str(error)) from None

    async def work() -> None:
        from fencepost.dashboard.guard import is_loopback
        from fencepost.dashboard.page import Page
        from fencepost.dashboard.server import ServerOptions, serve_page

        needed = token or (None if is_loopback(listener.host) else secrets.token_urlsafe(24))
        view = open_view(bootstrap_server, command_config, profile, {**PATIENCE, "client.id": "fencepost-ui"})
        page = Page(
            view,
            are_actions_allowed=allow_actions,
            stuck_after_ms=round(stuck_after * 1000),
            say=lambda text: say(text, is_error=True),
        )
        await serve_page(page, bound, ServerOptions(listener.host, needed, allow_host, parent_fd))

    try:
        run_async(work())
    finally:
        bound.close()
