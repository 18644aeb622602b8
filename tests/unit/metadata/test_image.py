"""Records in, an image and what changed out."""

import random

import pytest

from fencepost.metadata.features import METADATA_VERSION
from fencepost.metadata.image import (
    BROKER_CONFIG,
    MIGRATING_DIRECTORY,
    NO_LEADER,
    TOPIC_CONFIG,
    InconsistentMetadata,
    MetadataImage,
    PartitionState,
    config_record,
)
from fencepost.metadata.records import (
    RECORD_NAMES,
    RECORD_TYPES,
    MetadataRecord,
    UnknownRecord,
    UnreadableMetadata,
    decode_record,
    encode_record,
)
from fencepost.wire.batch import encode_unsigned_varint
from fencepost.wire.messages import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    message_names,
    schema_of,
)
from tests.support.random_messages import random_message

ORDERS, PAYMENTS = b"o" * 16, b"p" * 16
HERE, THERE = b"h" * 16, b"t" * 16


def record(message, version=0):
    return MetadataRecord(message, version)


def topic(topic_id=ORDERS, name="orders"):
    return record(TopicRecord(name=name, topic_id=topic_id))


def partition(index=0, topic_id=ORDERS, **fields):
    known = {"replicas": [1, 2], "isr": [1, 2], "leader": 1, "leader_epoch": 0, "partition_epoch": 0}
    return record(
        PartitionRecord(partition_id=index, topic_id=topic_id, **{**known, "directories": [HERE, THERE], **fields}), 2
    )


def change(index=0, topic_id=ORDERS, **fields):
    return record(PartitionChangeRecord(partition_id=index, topic_id=topic_id, **fields), 2)


def level(feature, level):
    return record(FeatureLevelRecord(name=feature, feature_level=level))


def image_of(*records):
    image = MetadataImage()
    image.apply(records)
    return image


def test_the_table_of_types_is_that_of_the_schemas():
    schemas = {name: schema_of(name) for name in message_names()}
    assert {s["key"]: name for name, s in schemas.items() if s["type"] == "metadata"} == RECORD_NAMES


@pytest.mark.parametrize("name", RECORD_TYPES)
def test_every_record_goes_through_bytes_unchanged(name):
    for version in range(schema_of(name)["valid"][0], schema_of(name)["valid"][1] + 1):
        made = record(random_message(name, version, random.Random(version)), version)
        assert decode_record(encode_record(made)) == made


def test_a_record_that_kafka_4_3_does_not_have_is_named():
    with pytest.raises(UnknownRecord, match="type 29"):
        decode_record(bytes([1, 29, 0, 0]))
    with pytest.raises(UnknownRecord, match="TopicRecord in version 7"):
        decode_record(bytes([1, 2, 7, 0]))
    with pytest.raises(UnknownRecord, match="frame of version 2"):
        decode_record(bytes([2, 2, 0, 0]))
    with pytest.raises(UnreadableMetadata, match="cut off"):
        decode_record(b"\x01" + encode_unsigned_varint(300)[:1])
    with pytest.raises(UnreadableMetadata, match="TopicRecord"):
        decode_record(bytes([1, 2, 0, 9]))
    with pytest.raises(UnknownRecord, match=r"metadata.version is 31"):
        image_of(level(METADATA_VERSION, 31))


def test_epochs_follow_from_the_change_itself():
    image = image_of(topic(), partition())
    image.apply([change(isr=[1])])
    assert image.partition(ORDERS, 0) == PartitionState((1, 2), (HERE, THERE), (1,), 1, 0, 1)
    image.apply([change(leader=NO_LEADER, eligible_leader_replicas=[1])])
    state = image.partition(ORDERS, 0)
    assert (state.leader, state.leader_epoch, state.partition_epoch, state.elr) == (NO_LEADER, 1, 2, (1,))
    image.apply([change(leader=1)])  # the same leader as ever is a new epoch all the same
    assert (image.partition(ORDERS, 0).leader_epoch, image.partition(ORDERS, 0).partition_epoch) == (2, 3)
    image.apply([record(ClearElrRecord(topic_name="orders"))])
    assert (image.partition(ORDERS, 0).elr, image.partition(ORDERS, 0).partition_epoch) == ((), 4)
    delta = image.apply([record(ClearElrRecord(topic_name=""))])
    assert not delta, "there was nothing to clear"


def test_directories_that_nobody_has_named_are_being_assigned():
    image = image_of(topic(), partition(directories=[]), partition(1))
    assert image.partition(ORDERS, 0).directories == (MIGRATING_DIRECTORY,) * 2
    with pytest.raises(InconsistentMetadata, match="1 directories for 2 replicas"):
        image.apply([change(1, directories=[HERE])])


def test_a_delta_tells_from_where_to_where():
    image = image_of(topic(), partition(), config_record((TOPIC_CONFIG, "orders"), "retention.ms", "1"))
    before = image.partition(ORDERS, 0)
    delta = image.apply([change(isr=[1]), change(isr=[1, 2]), topic(PAYMENTS, "payments"), partition(0, PAYMENTS)])
    assert delta.partitions == {
        (ORDERS, 0): (before, image.partition(ORDERS, 0)),
        (PAYMENTS, 0): (None, image.partition(PAYMENTS, 0)),
    }
    assert delta.topics_created == {PAYMENTS: "payments"}
    delta = image.apply([change(isr=[1]), partition(1), record(RemoveTopicRecord(topic_id=ORDERS))])
    assert delta.partitions == {}
    assert delta.topics_deleted[ORDERS].partitions[0].isr == (1, 2), "as it was before"
    assert list(delta.topics_deleted[ORDERS].partitions) == [0]
    assert delta.configs == {(TOPIC_CONFIG, "orders")}
    assert image.configs == {}
    delta = image.apply([topic(), partition(), record(RemoveTopicRecord(topic_id=ORDERS))])
    assert not delta, "what came and went changes nothing"


def test_a_metadata_transaction_counts_when_it_ends():
    image = image_of(record(BeginTransactionRecord(name="bootstrap")))
    assert not image.apply([topic(), partition()])
    assert image.in_transaction
    assert image.topics == {}
    assert image.apply([record(EndTransactionRecord())]).topics_created == {ORDERS: "orders"}
    image.apply([record(BeginTransactionRecord()), record(RemoveTopicRecord(topic_id=ORDERS))])
    assert not image.apply([record(AbortTransactionRecord())])
    assert list(image.topics) == ["orders"]
    assert not image.in_transaction
    with pytest.raises(InconsistentMetadata, match="has not begun"):
        image.apply([record(EndTransactionRecord())])
    with pytest.raises(InconsistentMetadata, match="inside another"):
        image.apply([record(BeginTransactionRecord()), record(BeginTransactionRecord())])


def test_records_that_do_not_fit_are_refused_as_kafkas_controller_refuses_them():
    for bad in (
        [topic(), topic(PAYMENTS)],
        [change()],
        [partition()],
        [record(RemoveTopicRecord(topic_id=ORDERS))],
        [record(ProducerIdsRecord(next_producer_id=1000))] * 2,
        [record(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1))],
    ):
        with pytest.raises(InconsistentMetadata):
            image_of(*bad)


def test_a_broker_registers_is_unfenced_and_shuts_down():
    image = image_of(record(RegisterBrokerRecord(broker_id=1, broker_epoch=7, log_dirs=[HERE]), 3))
    assert image.brokers[1].is_fenced
    image.apply([record(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1))])
    assert not image.brokers[1].is_fenced
    delta = image.apply([record(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, in_controlled_shutdown=1))])
    assert image.brokers[1].is_in_controlled_shutdown
    assert image.brokers[1].directories == (HERE,)
    before, after = delta.brokers[1]
    assert (before.is_in_controlled_shutdown, after.is_in_controlled_shutdown) == (False, True)
    with pytest.raises(InconsistentMetadata, match="epoch 7 is registered"):
        image.apply([record(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=6, fenced=1))])


def test_a_snapshot_builds_an_equal_image_and_writes_what_the_level_of_the_cluster_has():
    token = record(DelegationTokenRecord(owner="User:a", token_id="t", renewers=["User:b"]))
    for metadata_version, versions in ((30, (2, 4)), (22, (1, 3)), (16, (0, 2)), (7, (0, 1))):
        image = image_of(
            level(METADATA_VERSION, metadata_version),
            level("kraft.version", 1),
            level("group.version", 1),
            level("group.version", 0),
            record(RegisterBrokerRecord(broker_id=1, broker_epoch=7, log_dirs=[HERE]), 3),
            topic(),
            partition(eligible_leader_replicas=[2]),
            config_record((BROKER_CONFIG, ""), "a", "1"),
            config_record((BROKER_CONFIG, "1"), "b", "2"),
            config_record((BROKER_CONFIG, "1"), "b", None),
            record(ProducerIdsRecord(broker_id=1, next_producer_id=5000)),
            token,
        )
        records = list(image.to_records())
        by_name = {each.name: each for each in records}
        assert (by_name["PartitionRecord"].version, by_name["RegisterBrokerRecord"].version) == versions
        assert token in records
        assert by_name["ConfigRecord"].message.name == "a"
        assert [each.message.name for each in records if each.name == "FeatureLevelRecord"] == [METADATA_VERSION]
        again = image_of(*map(decode_record, map(encode_record, records)))
        assert list(again.to_records()) == records
