"""What the source refuses, and where rows may have been lost. Each says what to do next."""

from fencepost.spark.errors import FencepostSparkError


class InvalidSourceOption(FencepostSparkError):
    """An option that is missing, misspelt or does not fit the others."""

    def __init__(self, fact: str, advice: str = "") -> None:
        super().__init__(fact.rstrip("."), advice)


class UnmatchedTimestamp(FencepostSparkError):
    advice = "give an earlier timestamp, or set 'startingOffsetsByTimestampStrategy' to 'latest'"

    def __init__(self, partition: object, timestamp_ms: int) -> None:
        super().__init__(f"No offset matched from request of topic-partition {partition} and timestamp {timestamp_ms}")


class DataLoss(FencepostSparkError):
    """Rows that were to be read are gone. In Spark's words, so that what is known of its source helps here too."""

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(
            "Some data may have been lost because they are not available in Kafka any more; either the data was aged "
            "out by Kafka or the topic may have been deleted before all the data in the topic was processed. "
            f"Reason: {reason}",
            advice
            or "if you don't want your query to fail on such cases, set the source option failOnDataLoss to false",
        )


class MalformedTimestamp(FencepostSparkError):
    advice = "ensure that the producer sets the timestamp in milliseconds"

    def __init__(self, topic: str, partition: int, offset: int, timestamp_ms: int) -> None:
        super().__init__(
            f"Record at topic {topic} partition {partition} offset {offset} has timestamp value {timestamp_ms} that "
            "overflows when converting to Spark's microsecond-precision TimestampType"
        )
