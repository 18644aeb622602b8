"""How the process's descriptors are shared out, so that connections can never take those of the storage.

The limit is raised as far as the system allows. Some descriptors are kept back for whatever is neither a log file nor a
client's connection: listeners, the metrics endpoint, checkpoints, certificates, connections about to be refused.
"""

import resource
from dataclasses import dataclass

RESERVED_DESCRIPTORS = 96
"""Kept back, unless the limit is too small for that: then a quarter of it."""
RAISED_LIMIT_MAX = 1_048_576
UNLIMITED_IS = 65_536


class TooFewDescriptors(Exception):
    """The limit leaves no room for connections; the text says what to do."""


@dataclass(frozen=True, slots=True)
class DescriptorShares:
    limit: int
    files: int
    """Log files that may be open at a time."""
    connections: int
    """Connections that may be open at a time."""


def raise_limit() -> int:
    """Raise the soft limit to the hard one; how many descriptors the process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = max(soft, UNLIMITED_IS)
    wanted = min(hard, max(soft, RAISED_LIMIT_MAX))
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            soft = wanted
        except (OSError, ValueError):
            pass
    return soft


def share_out(limit: int, max_connections: int, open_files_max: int = 0) -> DescriptorShares:
    """`open_files_max` 0: whatever connections do not need, at most three quarters. Raises TooFewDescriptors."""
    left = limit - min(RESERVED_DESCRIPTORS, limit // 4)
    if open_files_max:
        if open_files_max >= left:
            raise TooFewDescriptors(
                f"open.files.max={open_files_max} leaves no descriptors for connections: the process may have "
                f"{limit}; lower open.files.max or raise the limit (ulimit -n)"
            )
        return DescriptorShares(limit, open_files_max, min(max_connections, left - open_files_max))
    connections = min(max_connections, left // 2)
    return DescriptorShares(limit, max(8, min(limit * 3 // 4, left - connections)), connections)
