"""Divides the file descriptors of the process, so that connections can never use up those of the storage.

The limit is raised as far as the system allows. Some descriptors are reserved for everything else than log files and
client connections: listeners, the metrics endpoint, checkpoints, certificates, connections about to be refused.
"""

import resource
from dataclasses import dataclass

RESERVED_DESCRIPTORS = 96
"""The number reserved, unless the limit is too small; then a quarter of it."""
RAISED_LIMIT_MAX = 1_048_576
UNLIMITED_IS = 65_536


class TooFewDescriptors(Exception):
    """The limit leaves no room for connections; the text says what to do."""


@dataclass(frozen=True, slots=True)
class DescriptorShares:
    limit: int
    files: int
    """Maximum number of open log files."""
    connections: int
    """Maximum number of open connections."""


def raise_limit() -> int:
    """Raises the soft limit to the hard limit. Returns the number of descriptors the process may have."""
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
    """`open_files_max` 0: everything that connections do not need, at most three quarters. Raises TooFewDescriptors."""
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
