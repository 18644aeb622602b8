"""What a reader gets now, to the end that there is."""

import asyncio

from fencepost.client import AsyncPartitionReader, IsolationLevel, Reset, TopicPartition
from tests.peers.broker_process import BrokerProcess


async def committed_values(bootstrap_servers: str, topic: str, partition: int = 0, start: int = -1) -> list[bytes]:
    async with AsyncPartitionReader(bootstrap_servers, isolation_level=IsolationLevel.READ_COMMITTED) as reader:
        await reader.assign({TopicPartition(topic, partition): Reset.EARLIEST if start < 0 else start})
        return [record.value or b"" async for record in reader.records()]


def read_committed(broker: BrokerProcess, topic: str, partition: int = 0, start: int = -1) -> list[bytes]:
    return asyncio.run(committed_values(broker.bootstrap_servers, topic, partition, start))
