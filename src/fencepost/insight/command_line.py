"""Commands to paste: they carry how the cluster was reached, so that they act on this cluster and on no other."""

import dataclasses

from fencepost.terminal_text import shell_word


@dataclasses.dataclass(frozen=True, slots=True)
class CommandLine:
    options: tuple[str, ...] = ("--bootstrap-server", "HOST:PORT")
    """As `--bootstrap-server`, `--command-config` and `--profile` were given; without them the reader fills in."""

    def __call__(self, *words: str, argument: str | None = None) -> str:
        """`argument` is a name that somebody chose, and may look like an option."""
        written = ["fencepost", *words]
        if argument is not None and not argument.startswith("-"):
            written.append(argument)
        written += self.options
        if argument is not None and argument.startswith("-"):
            written += ["--", argument]
        return " ".join(map(shell_word, written))
