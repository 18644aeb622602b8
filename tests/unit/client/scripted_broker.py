"""A broker that says what a test tells it to say, and remembers what it was asked.

Every call has a plain answer of success; a test queues others in front of it: an error code, a message, or SILENCE.
"""

import asyncio
import collections
import enum
import struct
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from tests.support.patience import patient

from fencepost.wire import messages
from fencepost.wire.batch import BatchHeader, read_header
from fencepost.wire.catalog import ApiKey, request_class
from fencepost.wire.codec import decode
from fencepost.wire.errors import ErrorCode
from fencepost.wire.framing import read_request_header, response_frame


class Mishap(enum.Enum):
    SILENCE = enum.auto()
    HANG_UP = enum.auto()


SILENCE, HANG_UP = Mishap.SILENCE, Mishap.HANG_UP
VERSIONS = {
    ApiKey.PRODUCE: (3, 12), ApiKey.METADATA: (4, 13), ApiKey.FIND_COORDINATOR: (0, 3), ApiKey.API_VERSIONS: (0, 4),
    ApiKey.INIT_PRODUCER_ID: (0, 5), ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5), ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.END_TXN: (0, 5), ApiKey.TXN_OFFSET_COMMIT: (0, 5),
}  # fmt: skip
HOUSEKEEPING = (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.FIND_COORDINATOR)


class Asked(NamedTuple):
    api: ApiKey
    version: int
    request: Any


class ScriptedBroker:
    def __init__(self, transaction_version: int = 2) -> None:
        self.transaction_version = transaction_version
        self.asked: list[Asked] = []
        self.script: dict[ApiKey, collections.deque[Any]] = collections.defaultdict(collections.deque)
        self.epoch = 0
        self.address = ""
        self._port = 0

    # What a test says and asks

    def answer(self, api: ApiKey, *answers: Any) -> None:
        self.script[api].extend(answers)

    @property
    def calls(self) -> list[tuple[str, int]]:
        """What was asked, but for housekeeping."""
        return [(asked.api.camel_name, asked.version) for asked in self.asked if asked.api not in HOUSEKEEPING]

    def requests(self, api: ApiKey) -> list[Any]:
        return [asked.request for asked in self.asked if asked.api == api]

    def batches(self) -> list[tuple[int, BatchHeader]]:
        return [
            (data.index, read_header(data.records))
            for request in self.requests(ApiKey.PRODUCE)
            for topic in request.topic_data
            for data in topic.partition_data
        ]

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            host, self._port = server.sockets[0].getsockname()
            self.address = f"{host}:{self._port}"
            async with server:
                await asyncio.wait_for(scenario(), patient(30))

        asyncio.run(main())

    # What it does

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                frame = memoryview(await reader.readexactly(length))
                header = read_request_header(frame)
                api = ApiKey(header.api_key)
                request = decode(request_class(api), header.api_version, frame, header.body)
                self.asked.append(Asked(api, header.api_version, request))
                scripted = self.script[api].popleft() if self.script[api] else ErrorCode.NONE
                if scripted is SILENCE:
                    continue
                if scripted is HANG_UP:
                    return
                message = self._answer(api, request, scripted) if isinstance(scripted, ErrorCode) else scripted
                writer.writelines(response_frame(api, header.api_version, header.correlation_id, message))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def _answer(self, api: ApiKey, request: Any, code: ErrorCode) -> Any:
        name = api.name.lower()
        answered: Any = getattr(self, f"_{name}")(request, code)
        return answered

    def _api_versions(self, request: Any, code: ErrorCode) -> Any:
        response = messages.ApiVersionsResponse
        level = self.transaction_version
        return response(
            api_keys=[
                response.ApiVersion(api_key=int(key), min_version=low, max_version=high)
                for key, (low, high) in VERSIONS.items()
            ],
            finalized_features_epoch=1,
            finalized_features=[
                response.FinalizedFeatureKey(
                    name="transaction.version", max_version_level=level, min_version_level=level
                )
            ],
        )

    def _metadata(self, request: Any, code: ErrorCode) -> Any:
        response = messages.MetadataResponse
        topic = response.MetadataResponseTopic
        names = [asked.name for asked in request.topics or ()]
        return response(
            brokers=[response.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self._port)],
            controller_id=1,
            topics=[
                topic(
                    name=name,
                    partitions=[
                        topic.MetadataResponsePartition(partition_index=index, leader_id=1, leader_epoch=0)
                        for index in range(3)
                    ],
                )
                for name in names
            ],
        )

    def _find_coordinator(self, request: Any, code: ErrorCode) -> Any:
        return messages.FindCoordinatorResponse(error_code=code, node_id=1, host="127.0.0.1", port=self._port)

    def _init_producer_id(self, request: Any, code: ErrorCode) -> Any:
        if code == ErrorCode.NONE and request.producer_epoch >= 0:
            self.epoch = request.producer_epoch + 1
        return messages.InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=self.epoch)

    def _end_txn(self, request: Any, code: ErrorCode) -> Any:
        if code == ErrorCode.NONE:
            self.epoch = request.producer_epoch + 1
        return messages.EndTxnResponse(error_code=code, producer_id=7, producer_epoch=self.epoch)

    def _add_partitions_to_txn(self, request: Any, code: ErrorCode) -> Any:
        response = messages.AddPartitionsToTxnResponse
        result = response.AddPartitionsToTxnPartitionResult
        return response(
            results_by_topic_v3_and_below=[
                response.AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        result(partition_index=index, partition_error_code=code) for index in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    def _add_offsets_to_txn(self, request: Any, code: ErrorCode) -> Any:
        return messages.AddOffsetsToTxnResponse(error_code=code)

    def _txn_offset_commit(self, request: Any, code: ErrorCode) -> Any:
        response = messages.TxnOffsetCommitResponse
        topic = response.TxnOffsetCommitResponseTopic
        return response(
            topics=[
                topic(
                    name=asked.name,
                    partitions=[
                        topic.TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                        for one in asked.partitions
                    ],
                )
                for asked in request.topics
            ]
        )

    def _produce(self, request: Any, code: ErrorCode) -> Any:
        response = messages.ProduceResponse
        topic = response.TopicProduceResponse
        return response(
            responses=[
                topic(
                    name=asked.name,
                    partition_responses=[
                        topic.PartitionProduceResponse(
                            index=one.index, error_code=code, base_offset=0, log_append_time_ms=-1
                        )
                        for one in asked.partition_data
                    ],
                )
                for asked in request.topic_data
            ]
        )
