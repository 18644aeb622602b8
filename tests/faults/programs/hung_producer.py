"""A producer that a test can stop dead in the middle of a transaction: bootstrap, transactional id, topic, group."""

import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.peers.programs.console import say


def main(bootstrap: str, transactional_id: str, topic: str, group: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0}
    # Errors are told by what fails, and not raised from callbacks as well.
    producer = Producer({**settings, "error_cb": lambda error: None})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(topic, b"before", partition=0)
    producer.flush(10)
    say("open")
    # Here it is stopped and, much later, goes on as if nothing had been.
    sys.stdin.readline()
    outcomes = []

    def delivered(error: object, message: object) -> None:
        outcomes.append("written" if error is None else "refused")

    producer.produce(topic, b"after", partition=0, on_delivery=delivered)
    try:
        producer.flush(10)
    except (KafkaException, SystemError) as problem:
        outcomes.append(str(problem))
    for step in (
        lambda: producer.send_offsets_to_transaction(
            [TopicPartition(topic, 0, 7)], consumer.consumer_group_metadata(), 10
        ),
        lambda: producer.commit_transaction(10),
    ):
        try:
            step()
            outcomes.append("done")
        except KafkaException as problem:
            outcomes.append(str(problem.args[0]))
    say("outcomes", outcomes=outcomes)


if __name__ == "__main__":
    main(*sys.argv[1:])
