"""Entry point of the command `fencepost`: dispatch, exit statuses, errors as one line on standard error.

`serve` is dispatched before typer is imported, so that a broker listens as soon as possible.
"""

import errno
import os
import sys
from collections.abc import Sequence
from typing import Any

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

FAILED = 1
MISUSED = 2
INTERRUPTED = 130
OUTPUT_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["serve"]:
        return _serve(arguments[1:])
    try:
        status = _run_app(arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader has closed our output.
        _drop_output()
        return 0
    except OSError as error:
        # Files that are opened name themselves in the error; what is left is the output.
        if error.filename is not None or error.errno not in OUTPUT_IS_FULL:
            raise
        _drop_output()
        print(f"error: cannot write the output: {error.strerror}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _serve(arguments: Sequence[str]) -> int:
    try:
        from fencepost.cli.serve import run_serve

        status = run_serve(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED  # before there was a broker to stop
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()
    return status


def _drop_output() -> None:
    """What Python still buffers must not fail at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run_app(arguments: Sequence[str]) -> int:
    import typer

    from fencepost.cli.app import app
    from fencepost.cli.output import CommandFailed, report
    from fencepost.client.errors import ClientError

    # Depending on its version, typer uses the installed click or its own copy: take the class from typer.
    usage_error: type[Any] = typer.BadParameter.__mro__[1]
    try:
        status = app(list(arguments), prog_name="fencepost", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except usage_error as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message(), file=sys.stderr)
        else:
            path = error.ctx.command_path if error.ctx is not None else "fencepost"
            report(error.format_message().rstrip("."), f"see `{path} --help`")
        return MISUSED
    except typer.Abort:
        return INTERRUPTED
    except ClientError as error:
        report(str(error), error.advice)
        return FAILED
    except CommandFailed as error:
        report(error.message, error.advice)
        return FAILED
    except UnicodeEncodeError as error:
        # Python keeps bytes of an argument that are no text as lone surrogates. A path may have them, a name may not.
        if not any(error.object in argument for argument in arguments):
            raise
        report(f"{error.object!r} is not UTF-8 text", "names and values in Kafka are")
        return MISUSED


if __name__ == "__main__":
    main()
