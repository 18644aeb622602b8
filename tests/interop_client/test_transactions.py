"""Transactions of the client, under both protocols, against a real coordinator."""

import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer

from fencepost.client import (
    Admin,
    Client,
    CommittedOffset,
    GroupMetadata,
    ProducerFenced,
    ProducerIdentity,
    Sending,
    TopicPartition,
    TransactionAborted,
    TransactionFailed,
    TransactionMustAbort,
    TransactionProtocol,
)
from fencepost.client.errors import TransactionMisused
from fencepost.client.transactions import State
from fencepost.wire.errors import ErrorCode
from tests.interop_client.conftest import CONFIGS, committed, create_topic, require_transactions, written
from tests.peers.broker_process import BrokerProcess
from tests.peers.raw import RawClient
from tests.support.patience import patient

TV1, TV2 = TransactionProtocol.TV1, TransactionProtocol.TV2


def described(broker: BrokerProcess, transactional_id: str) -> dict[str, object]:
    with RawClient(broker.address) as raw:
        answer = raw.call("DescribeTransactions", 0, {"TransactionalIds": [transactional_id]})
    found: dict[str, object] = answer["TransactionStates"][0]
    return found


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def finalize(broker: BrokerProcess, level: int) -> None:
    """Change the transaction version, and wait until the broker tells new connections."""

    def is_known() -> bool:
        with Admin(broker.bootstrap_servers) as admin:
            return admin.describe_features().finalized.get("transaction.version") == level

    with Admin(broker.bootstrap_servers) as admin:
        admin.update_features({"transaction.version": level})
    wait_until(is_known)


def test_what_a_block_sends_becomes_visible_together(
    broker: BrokerProcess, client: Client, topic: str, protocol: TransactionProtocol
) -> None:
    with client.transaction(f"tx-{topic}", protocol=protocol) as transaction:
        for partition in range(3):
            transaction.send(topic, b"%d" % partition, key=b"k", partition=partition, headers=[("h", b"v")])
        transaction.flush()
        assert written(broker, topic) == [b"0", b"1", b"2"]
        assert committed(broker, topic) == []
    wait_until(lambda: committed(broker, topic) == [b"0", b"1", b"2"])


def test_a_foreign_consumer_sees_committed_records_and_no_aborted_ones(
    broker: BrokerProcess, client: Client, topic: str, protocol: TransactionProtocol
) -> None:
    for number in range(6):
        try:
            with client.transaction(f"tx-{topic}", protocol=protocol) as transaction:
                for at in range(20):
                    transaction.send(topic, b"%d.%d" % (number, at), partition=0)
                transaction.flush()
                if number % 2:
                    raise LookupError(number)
        except LookupError:
            pass
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": f"foreign-{topic}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    found = [message.value() for message in consumer.consume(60, 30)]
    consumer.close()
    assert found == [b"%d.%d" % (number, at) for number in (0, 2, 4) for at in range(20)]
    assert len(written(broker, topic)) == 120


def test_an_exception_aborts_and_the_producer_goes_on(
    broker: BrokerProcess, client: Client, topic: str, protocol: TransactionProtocol
) -> None:
    with (  # noqa: PT012 - the end of the block is what raises
        pytest.raises(ZeroDivisionError),
        client.transaction(f"tx-{topic}", protocol=protocol, sending=Sending(linger_ms=60_000)) as transaction,
    ):
        unsent = transaction.send(topic, b"dropped", partition=0)
        _ = 1 / 0
    with pytest.raises(TransactionAborted):
        unsent.result(patient(10))
    with client.transaction(f"tx-{topic}") as transaction:
        transaction.send(topic, b"kept", partition=0)
    wait_until(lambda: committed(broker, topic) == [b"kept"])


def test_only_tv2_takes_a_new_epoch_with_every_transaction(
    broker: BrokerProcess, client: Client, topic: str, protocol: TransactionProtocol
) -> None:
    identities = []
    for number in range(3):
        with client.transaction(f"tx-{topic}", protocol=protocol) as transaction:
            transaction.send(topic, b"%d" % number, partition=0).result(patient(20))
            transaction.send(topic, b"again %d" % number, partition=0)
            identities.append(transaction.identity)
    assert len({identity.producer_id for identity in identities}) == 1
    assert [identity.producer_epoch for identity in identities] == ([0, 1, 2] if protocol is TV2 else [0, 0, 0])
    with RawClient(broker.address) as raw:
        batches = [batch for batch in raw.fetch_batches(topic, 0) if batch.base_sequence >= 0]
    # Sequences begin again with every epoch, and go on within one.
    assert [batch.base_sequence for batch in batches] == ([0, 1, 0, 1, 0, 1] if protocol is TV2 else list(range(6)))


def test_a_transaction_without_records_costs_no_call(
    broker: BrokerProcess, client: Client, topic: str, protocol: TransactionProtocol
) -> None:
    with client.transaction(f"tx-{topic}", protocol=protocol):
        pass
    assert described(broker, f"tx-{topic}")["TransactionState"] == "Empty"
    with client.transaction(f"tx-{topic}") as transaction:
        transaction.send(topic, b"x")
    wait_until(lambda: described(broker, f"tx-{topic}")["TransactionState"] == "CompleteCommit")


def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    broker: BrokerProcess, client: Client, topic: str, protocol: TransactionProtocol
) -> None:
    group, at = f"group-{topic}", TopicPartition(topic, 1)
    with client.transaction(f"tx-{topic}", protocol=protocol) as transaction:
        transaction.send_offsets({at: CommittedOffset(7, metadata="batch 7")}, group)
        transaction.send(topic, b"x")
    with Admin(broker.bootstrap_servers) as admin:
        # Asked for all partitions, a broker leaves out those that have nothing but a pending offset.
        wait_until(lambda: admin.committed_offsets(group) == {at: CommittedOffset(7, metadata="batch 7")})
        with pytest.raises(LookupError), client.transaction(f"tx-{topic}") as transaction:  # noqa: PT012
            transaction.send_offsets({at: 9}, GroupMetadata(group))
            raise LookupError
        assert admin.committed_offsets(group, require_stable=True)[at].offset == 7


def test_offsets_of_a_member_that_is_gone_abort_the_transaction(
    broker: BrokerProcess, client: Client, topic: str, protocol: TransactionProtocol
) -> None:
    with (  # noqa: PT012 - the end of the block is what raises
        pytest.raises(TransactionMustAbort) as refused,
        client.transaction(f"tx-{topic}", protocol=protocol) as transaction,
    ):
        transaction.send(topic, b"never")
        transaction.send_offsets(
            {TopicPartition(topic, 0): 1}, GroupMetadata(f"group-{topic}", generation_id=3, member_id="gone")
        )
    assert refused.value.cause.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)  # type: ignore[attr-defined]
    with client.transaction(f"tx-{topic}") as transaction:
        transaction.send(topic, b"kept")
    wait_until(lambda: committed(broker, topic) == [b"kept"])


def test_who_takes_an_id_over_fences_its_holder_and_ends_what_it_had_open(
    broker: BrokerProcess, client: Client, topic: str, protocol: TransactionProtocol
) -> None:
    old = client.producer(f"tx-{topic}", protocol=protocol)
    old.init()
    old.begin()
    old.send(topic, b"zombie", partition=0).result(patient(20))
    with Client(broker.bootstrap_servers) as other:
        with other.transaction(f"tx-{topic}", protocol=protocol) as transaction:
            transaction.send(topic, b"successor", partition=0)
        with pytest.raises(ProducerFenced) as fenced:
            old.commit()
        assert fenced.value.transactional_id == f"tx-{topic}"
        assert old.state is State.FAILED
        with pytest.raises(ProducerFenced):
            old.send(topic, b"more")
        wait_until(lambda: committed(broker, topic) == [b"successor"])
        # It may take the id back, but only when told to.
        old.init()
        old.begin()
        old.send(topic, b"back", partition=0)
        old.commit()
        with pytest.raises(ProducerFenced), other.transaction(f"tx-{topic}") as transaction:
            transaction.send_offsets({TopicPartition(topic, 0): 1}, f"group-{topic}")
    wait_until(lambda: committed(broker, topic) == [b"successor", b"back"])


def test_a_late_record_of_a_fenced_producer_is_refused(
    broker: BrokerProcess, client: Client, topic: str, protocol: TransactionProtocol
) -> None:
    old = client.producer(f"tx-{topic}", protocol=protocol)
    old.init()
    old.begin()
    old.send(topic, b"before", partition=0).result(patient(20))
    client_two = Client(broker.bootstrap_servers)
    client_two.init_producer_id(f"tx-{topic}")
    old.send(topic, b"late", partition=0)
    with pytest.raises(TransactionMustAbort, match="INVALID_PRODUCER_EPOCH"):
        old.flush()
    with pytest.raises(TransactionMustAbort):
        old.commit()
    with pytest.raises(ProducerFenced):
        old.abort()
    client_two.close()
    assert written(broker, topic) == [b"before"]
    assert committed(broker, topic) == []


def test_a_transaction_that_timed_out_ends_a_tv1_producer_and_not_a_tv2_one(
    broker: BrokerProcess, client: Client, topic: str, protocol: TransactionProtocol
) -> None:
    transactional_id = f"tx-{topic}"
    expected = TransactionAborted if protocol is TV2 else ProducerFenced
    with (  # noqa: PT012 - the end of the block is what raises
        pytest.raises(expected),
        client.transaction(transactional_id, protocol=protocol, transaction_timeout_ms=500) as transaction,
    ):
        transaction.send(topic, b"slow", partition=0).result(patient(20))
        wait_until(lambda: described(broker, transactional_id)["TransactionState"] == "CompleteAbort")
    if protocol is TV2:
        with client.transaction(transactional_id) as transaction:
            transaction.send(topic, b"next", partition=0)
        wait_until(lambda: committed(broker, topic) == [b"next"])
    assert committed(broker, topic) == ([b"next"] if protocol is TV2 else [])


def test_a_record_that_is_refused_aborts_its_transaction_only(
    broker: BrokerProcess, client: Client, topic: str, protocol: TransactionProtocol
) -> None:
    with (  # noqa: PT012 - the end of the block is what raises
        pytest.raises(TransactionAborted, match="MESSAGE_TOO_LARGE") as aborted,
        client.transaction(f"tx-{topic}", protocol=protocol) as transaction,
    ):
        transaction.send(topic, b"small", partition=0)
        transaction.send(topic, b"x" * 3_000_000, partition=1)
    assert aborted.value.producer_epoch == 0
    with client.transaction(f"tx-{topic}") as transaction:
        # Under TV1 the failed batch's sequence is lost, so the producer asked for an epoch of its own accord (KIP-360).
        assert transaction.identity.producer_epoch == 1
        for partition in range(3):
            transaction.send(topic, b"kept", partition=partition)
    wait_until(lambda: committed(broker, topic) == [b"kept"] * 3)


WRITER = """
import pickle, sys
handle = pickle.loads(bytes.fromhex(sys.stdin.readline()))
topic, partition = sys.argv[1], int(sys.argv[2])
with handle.writer() as writer:
    for number in range(50):
        writer.send(topic, b"%d.%d" % (partition, number), partition=partition)
"""


def test_other_processes_write_in_a_transaction_by_its_handle(
    broker: BrokerProcess, client: Client, topic: str, protocol: TransactionProtocol
) -> None:
    for number in range(2):
        with client.transaction(f"tx-{topic}", protocol=protocol) as transaction:
            transaction.send(topic, b"driver", partition=0)
            transaction.flush()
            handle = transaction.handle()
            assert "options" not in repr(handle)
            writers = [
                subprocess.run(
                    [sys.executable, "-c", WRITER, topic, str(partition)],
                    input=pickle.dumps(handle).hex() + "\n",
                    capture_output=True,
                    text=True,
                    timeout=patient(60),
                )
                for partition in range(3)
            ]
            assert all(writer.returncode == 0 for writer in writers), [writer.stderr for writer in writers]
            assert len(written(broker, topic)) == 151 * (number + 1)
    wait_until(lambda: len(committed(broker, topic)) == 302)
    found = committed(broker, topic)
    assert found[:51] == [b"driver", *(b"0.%d" % number for number in range(50))]


def test_another_process_can_end_a_transaction_by_its_handle(
    broker: BrokerProcess, client: Client, topic: str, protocol: TransactionProtocol
) -> None:
    opened = client.producer(f"tx-{topic}", protocol=protocol)
    opened.init()
    opened.begin()
    opened.send(topic, b"one", partition=0).result(patient(20))
    handle = pickle.loads(pickle.dumps(opened.handle()))
    with Client(broker.bootstrap_servers) as other:
        ending = other.step_into(handle)
        ending.send(topic, b"two", partition=0)
        ending.commit()
        wait_until(lambda: committed(broker, topic) == [b"one", b"two"])
        ending.begin()
        ending.send(topic, b"three", partition=0)
        ending.commit()
    wait_until(lambda: committed(broker, topic) == [b"one", b"two", b"three"])


def test_an_id_is_taken_over_by_a_bare_init_and_kept_by_one_with_the_own_pair(
    broker: BrokerProcess, client: Client, topic: str
) -> None:
    transactional_id = f"tx-{topic}"
    first = client.init_producer_id(transactional_id)
    kept = client.init_producer_id(transactional_id, previous=first)
    assert kept == ProducerIdentity(first.producer_id, first.producer_epoch + 1)
    taken = client.init_producer_id(transactional_id)
    assert taken.producer_epoch == kept.producer_epoch + 1
    with pytest.raises(ProducerFenced):
        client.init_producer_id(transactional_id, previous=first)
    with pytest.raises(TransactionFailed, match="INVALID_TRANSACTION_TIMEOUT"):
        client.init_producer_id(transactional_id, transaction_timeout_ms=2**31 - 1)


def test_calls_out_of_order_are_refused_without_harm(client: Client, topic: str) -> None:
    producer = client.producer(f"tx-{topic}")
    with pytest.raises(TransactionMisused, match="begin is not possible while uninitialized"):
        producer.begin()
    producer.init()
    for call in (producer.commit, producer.abort, producer.flush):
        with pytest.raises(TransactionMisused, match="while ready"):
            call()
    producer.begin()
    with pytest.raises(TransactionMisused, match="while in transaction"):
        producer.begin()
    producer.send(topic, b"x")
    producer.commit()
    assert producer.state is State.READY


def test_a_second_block_of_an_id_that_is_open_is_refused_and_leaves_the_first_alone(
    broker: BrokerProcess, client: Client, topic: str
) -> None:
    """The first to end would commit what the other has sent so far, and nobody would hear of it."""
    transactional_id = f"tx-{topic}"
    with client.transaction(transactional_id) as first:
        first.send(topic, b"1")
        with (
            pytest.raises(TransactionMisused, match="another block of this id is open"),
            client.transaction(transactional_id) as second,
        ):
            second.send(topic, b"never")
        first.send(topic, b"2")
    wait_until(lambda: sorted(committed(broker, topic)) == [b"1", b"2"])


def test_blocks_of_one_id_in_several_threads_are_whole_or_refused(
    broker: BrokerProcess, client: Client, topic: str
) -> None:
    transactional_id = f"tx-{topic}"
    committed_by: list[int] = []
    refused: list[int] = []

    def work(number: int) -> None:
        try:
            with client.transaction(transactional_id) as transaction:
                transaction.send(topic, b"%d a" % number)
                transaction.flush()
                transaction.send(topic, b"%d b" % number)
            committed_by.append(number)
        except TransactionMisused:
            refused.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patient(30))
    assert committed_by
    assert sorted(committed_by + refused) == list(range(6)), "nothing else was raised"
    whole = sorted(b"%d %s" % (number, part) for number in committed_by for part in (b"a", b"b"))
    wait_until(lambda: sorted(committed(broker, topic)) == whole)


def test_a_block_that_has_ended_does_not_reach_into_the_next(broker: BrokerProcess, client: Client, topic: str) -> None:
    transactional_id = f"tx-{topic}"
    with client.transaction(transactional_id) as ended:
        ended.send(topic, b"1")
    with client.transaction(transactional_id) as following:
        for call in (lambda: ended.send(topic, b"late"), ended.flush, ended.handle):
            with pytest.raises(TransactionMisused, match="this block is not open"):
                call()
        following.send(topic, b"2")
    wait_until(lambda: sorted(committed(broker, topic)) == [b"1", b"2"])


def test_a_client_from_before_a_fork_is_refused_in_the_child(broker: BrokerProcess) -> None:
    program = """if True:
        import os, sys
        from fencepost.client import Client
        client = Client(sys.argv[1])
        if os.fork() == 0:
            try:
                with client, client.transaction("forked"):
                    pass
            except Exception as error:
                os.write(1, str(error).encode())
            os._exit(0)
        os.wait()
        client.close()
    """
    done = subprocess.run(
        [sys.executable, "-c", program, broker.bootstrap_servers], capture_output=True, text=True, timeout=patient(60)
    )
    assert done.stdout == "the client was created before this process was forked; create one in each process"
    assert done.returncode == 0, done.stderr


def test_a_producer_changes_to_tv2_when_the_cluster_does(
    kind: type[BrokerProcess], unique: Callable[[str], str]
) -> None:
    with kind(CONFIGS) as broker:
        require_transactions(broker)
        topic = create_topic(broker, unique("upgraded"))
        finalize(broker, 1)
        with Client(broker.bootstrap_servers) as client:
            producer = client.producer(f"tx-{topic}")
            producer.init()
            assert producer.protocol is TV1
            for number in range(2):
                producer.begin()
                producer.send(topic, b"%d" % number, partition=0)
                producer.commit()
            finalize(broker, 2)
            # The feature is learned with a new connection; the broker is restarted in the midst of a transaction.
            producer.begin()
            producer.send(topic, b"2", partition=0).result(patient(20))
            broker.kill()
            broker.start()
            producer.commit()
            assert (producer.protocol, producer.identity.producer_epoch) == (TV1, 0)
            producer.begin()
            assert (producer.protocol, producer.identity.producer_epoch) == (TV2, 1)
            producer.send(topic, b"3", partition=0)
            producer.commit()
            assert producer.identity.producer_epoch == 2
        wait_until(lambda: committed(broker, topic) == [b"0", b"1", b"2", b"3"])


def test_topics_that_do_not_exist_are_refused_at_once(client: Client, unique: Callable[[str], str]) -> None:
    name = unique("absent")
    with pytest.raises(Exception, match="does not exist"), client.transaction(f"tx-{name}") as transaction:
        transaction.send(name, b"x")
