"""As much of a Java exception as PySpark keeps with its own."""

import dataclasses


@dataclasses.dataclass
class Thrown:
    name: str
    condition: str | None = None
    cause: "Thrown | None" = None

    def getClass(self) -> "Class":
        return Class(self.name)

    def getCause(self) -> "Thrown | None":
        return self.cause

    def getMessage(self) -> str:
        return "Job aborted due to stage failure"

    def getCondition(self) -> str | None:
        return self.condition


@dataclasses.dataclass
class Class:
    name: str

    def getName(self) -> str:
        return self.name

    def getSuperclass(self) -> None:
        return None


class JobFailed(Exception):
    def __init__(self, origin: Thrown) -> None:
        super().__init__("Job aborted due to stage failure")
        self._origin = origin


def kept_rows_lost() -> JobFailed:
    return JobFailed(Thrown("org.apache.spark.SparkException", "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"))


def process_lost() -> JobFailed:
    return JobFailed(Thrown("org.apache.spark.SparkException"))
