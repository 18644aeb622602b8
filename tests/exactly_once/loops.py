"""The two loops, their inputs, and what one input must become.

An input's value is `number,sender,receiver,ordinal`: its number in the run, the key it is sent under, the key that the
second output gets, and its place among the inputs of its key. An output's value is the output's topic, a colon and the
input's value, so that every output record tells all by itself where it comes from.
"""

import random
from collections import Counter
from dataclasses import dataclass

from confluent_kafka import Producer

from tests.support.patience import patient

INPUT_PARTITIONS = 4
OUTPUT_PARTITIONS = 3
KEYS = 40
SEED_TIMEOUT_SECONDS = patient(60)


@dataclass(frozen=True, slots=True)
class Loop:
    source: str
    outputs: tuple[str, str]
    # A purchase is shipped to who paid; a transfer is credited to somebody else's account.
    receiver_is_sender: bool


PURCHASES = Loop("purchases", ("invoices", "shipments"), receiver_is_sender=True)
TRANSFERS = Loop("transfers", ("debits", "credits"), receiver_is_sender=False)
LOOPS = {loop.source: loop for loop in (PURCHASES, TRANSFERS)}


@dataclass(frozen=True, slots=True)
class Input:
    number: int
    sender: str
    receiver: str
    ordinal: int

    @property
    def value(self) -> str:
        return f"{self.number},{self.sender},{self.receiver},{self.ordinal}"

    @classmethod
    def parse(cls, value: str) -> "Input":
        number, sender, receiver, ordinal = value.split(",")
        return cls(int(number), sender, receiver, int(ordinal))


def make_inputs(loop: Loop, count: int, source: random.Random) -> list[Input]:
    keys = [f"{'customer' if loop.receiver_is_sender else 'account'}-{n}" for n in range(KEYS)]
    ordinals: Counter[str] = Counter()
    inputs = []
    for number in range(count):
        sender = source.choice(keys)
        receiver = sender if loop.receiver_is_sender else source.choice(keys)
        inputs.append(Input(number, sender, receiver, ordinals[sender]))
        ordinals[sender] += 1
    return inputs


def produce_inputs(bootstrap_servers: str, loop: Loop, inputs: list[Input]) -> None:
    failures: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 20})
    for one in inputs:
        producer.produce(
            loop.source,
            key=one.sender,
            value=one.value,
            on_delivery=lambda error, _: failures.append(str(error)) if error else None,
        )
        producer.poll(0)
    assert producer.flush(SEED_TIMEOUT_SECONDS) == 0
    assert not failures, failures[:3]
