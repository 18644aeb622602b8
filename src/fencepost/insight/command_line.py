"""Commands to paste. They include the connection options, so that they act on this cluster and on no other."""

import dataclasses

from fencepost.terminal_text import shell_word


@dataclasses.dataclass(frozen=True, slots=True)
class CommandLine:
    options: tuple[str, ...] = ("--bootstrap-server", "HOST:PORT")
    """The given `--bootstrap-server`, `--command-config` and `--profile`; without them, the user must add them."""

    def __call__(self, *words: str, argument: str | None = None) -> str:
        """`argument` is a name chosen by a user, which may look like an option."""
        written = ["fencepost", *words]
        if argument is not None and not argument.startswith("-"):
            written.append(argument)
        written += self.options
        if argument is not None and argument.startswith("-"):
            written += ["--", argument]
        return " ".join(map(shell_word, written))
