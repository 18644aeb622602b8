"""aiokafka and kafka-python on secured listeners, as a program: `python_clients NAME JSON`.

For each way in: a transaction, then its records read back by a group. Prints one line of JSON for each.
"""

import asyncio
import json
import ssl
import sys
import time
from typing import Any

from fencepost.client.security import UnsecuredToken
from tests.support.patience import patient

VALUES = {b"first", b"last"}
SECONDS = patient(30.0)


async def aiokafka(way: dict[str, Any]) -> set[bytes]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Bearer(AbstractTokenProvider):
        async def token(self) -> str:
            return UnsecuredToken(way["user"])()

    context = ssl.create_default_context(cafile=way["authority"])
    if way["certificate"]:
        context.load_cert_chain(way["certificate"])
    options: dict[str, Any] = {
        "bootstrap_servers": way["bootstrap"],
        "security_protocol": way["protocol"],
        "ssl_context": context,
        **_login(way, Bearer),
    }
    topic = way["topic"]
    async with AIOKafkaProducer(**options, transactional_id=topic) as producer, producer.transaction():
        for value in VALUES:
            await producer.send_and_wait(topic, value)
    consumer = AIOKafkaConsumer(
        topic, **options, group_id=topic, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    found: set[bytes] = set()
    async with consumer:
        while found != VALUES:
            found.add((await asyncio.wait_for(consumer.getone(), SECONDS)).value)
    return found


def kafka_python(way: dict[str, Any]) -> set[bytes]:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Bearer(AbstractTokenProvider):
        def token(self) -> str:
            return UnsecuredToken(way["user"])()

    options: dict[str, Any] = {
        "bootstrap_servers": way["bootstrap"],
        "security_protocol": way["protocol"],
        "ssl_cafile": way["authority"],
        **_login(way, Bearer),
    }
    if way["certificate"]:
        options |= {"ssl_certfile": way["certificate"], "ssl_keyfile": way["certificate"]}
    topic = way["topic"]
    producer = KafkaProducer(**options, transactional_id=topic)
    producer.init_transactions()
    producer.begin_transaction()
    for value in VALUES:
        producer.send(topic, value)
    producer.commit_transaction()
    producer.close()
    consumer = KafkaConsumer(
        topic, **options, group_id=topic, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    found: set[bytes] = set()
    deadline = time.monotonic() + SECONDS
    while found != VALUES and (left := deadline - time.monotonic()) > 0:
        # The whole time: this client forgets a join that outlasts the poll.
        for records in consumer.poll(left * 1000).values():
            found |= {record.value for record in records}
    consumer.close()
    return found


def _login(way: dict[str, Any], bearer: Any) -> dict[str, Any]:
    if not way["mechanism"]:
        return {}
    if way["mechanism"] == "OAUTHBEARER":
        return {"sasl_mechanism": way["mechanism"], "sasl_oauth_token_provider": bearer()}
    return {
        "sasl_mechanism": way["mechanism"],
        "sasl_plain_username": way["user"],
        "sasl_plain_password": way["password"],
    }


if __name__ == "__main__":
    for each in json.loads(sys.argv[2]):
        values = asyncio.run(aiokafka(each)) if sys.argv[1] == "aiokafka" else kafka_python(each)
        print(json.dumps({"topic": each["topic"], "values": sorted(value.decode() for value in values)}), flush=True)
