"""The one error for a step that a table of states does not have."""


class IllegalTransition(Exception):
    """A mistake of ours, never a client's: it fails the call that ran into it, and nothing changes."""

    def __init__(self, name: str, current: str, target: str, reason: str = "not in the table") -> None:
        super().__init__(f"{name}: {current} -> {target}: {reason}")
        self.name = name
        self.current = current
        self.target = target
