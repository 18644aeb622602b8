"""The directory of a partition's log, as long as the log exists.

All parts of the log get their paths from here. Once the log is retired (its topic deleted, its partition given up),
there are no paths any more: pending work for it fails instead of acting on a directory that belongs to nobody, or to a
new topic of the same name.
"""

from fencepost.log.file_names import offset_name
from fencepost.ports import Disk
from fencepost.wire.errors import ErrorCode, KafkaError


class LogRetired(KafkaError):
    """The log was deleted."""

    def __init__(self, path: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the log {path} was deleted")


class LogDirectory:
    __slots__ = ("_path", "disk", "is_retired")

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self._path = path
        self.is_retired = False

    @property
    def path(self) -> str:
        if self.is_retired:
            raise LogRetired(self._path)
        return self._path

    def path_of(self, name: str) -> str:
        return f"{self.path}/{name}"

    def path_at(self, offset: int, suffix: str) -> str:
        return f"{self.path}/{offset_name(offset, suffix)}"

    def names(self) -> list[str]:
        return self.disk.list(self.path)

    def sync(self) -> None:
        """Makes the directory entries durable. Does nothing if the log was retired meanwhile."""
        try:
            self.disk.sync_directory(self._path)
        except FileNotFoundError:
            if not self.is_retired:
                raise

    def retire(self) -> None:
        self.is_retired = True

    def __str__(self) -> str:
        return self._path
