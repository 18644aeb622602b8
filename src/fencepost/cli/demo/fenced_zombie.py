"""The demo's second scene: a transaction that is committed, one that is aborted, a zombie that is fenced, and why."""

from typing import Any

from fencepost.embedded import Broker

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

TRANSACTIONAL_ID = "shop"


class _ChangedMyMind(Exception):
    pass


def transact(broker: Broker) -> dict[str, Any]:
    from fencepost.client import Client, IsolationLevel, PartitionReader, Reset, TransactionError

    address = broker.bootstrap_servers
    refusal = ""
    with Client(address, client_id="till-1") as first:
        with first.transaction(TRANSACTIONAL_ID) as transaction:
            transaction.send("invoices", b"invoice 1")
            transaction.send("shipments", b"shipment 1")
        try:
            with first.transaction(TRANSACTIONAL_ID) as transaction:
                transaction.send("invoices", b"invoice 2, never paid")
                transaction.flush()
                raise _ChangedMyMind
        except _ChangedMyMind:
            pass
        try:
            with first.transaction(TRANSACTIONAL_ID) as transaction:
                transaction.send("invoices", b"invoice 3, of a till that hangs")
                transaction.flush()
                # Somebody believes it dead and starts another producer with the same id.
                with Client(address, client_id="till-2") as second, second.transaction(TRANSACTIONAL_ID) as successor:
                    successor.send("invoices", b"invoice 3")
                    successor.send("shipments", b"shipment 3")
                transaction.send("invoices", b"invoice 3, once more")
                transaction.flush()
        except TransactionError as error:
            refusal = str(error)
    visible = {}
    for topic in ("invoices", "shipments"):
        with PartitionReader(address, isolation_level=IsolationLevel.READ_COMMITTED) as reader:
            reader.assign_topic(topic, Reset.EARLIEST)
            visible[topic] = [(record.value or b"").decode() for record in reader.records()]
    return {"visible": visible, "zombie": {"refused": refusal, "why": _why(broker)}}


def _why(broker: Broker) -> dict[str, Any]:
    """The cause, from the event feed of the broker."""
    for event in broker.events():
        if type(event).__name__ == "ProducerFenced":
            cause: Any = getattr(event, "cause", None)
            return {
                "cause": cause.value,
                "by_client_id": getattr(event, "client_id", None),
                "by_host": getattr(event, "client_host", None),
                "old_epoch": getattr(event, "old_epoch", None),
                "new_epoch": getattr(event, "new_epoch", None),
            }
    return {}


def show_transactions(document: dict[str, Any]) -> None:
    why = document["zombie"]["why"]
    print("\none transaction was committed, one was aborted, and a third was taken over; a read_committed client sees")
    for topic, values in document["visible"].items():
        print(f"  {topic}: {', '.join(values)}")
    print(f"the zombie got the error: {document['zombie']['refused']}")
    print(
        f"why: {why.get('cause')} by client {why.get('by_client_id')} at {why.get('by_host')}; "
        f"epoch {why.get('old_epoch')} became {why.get('new_epoch')}"
    )
