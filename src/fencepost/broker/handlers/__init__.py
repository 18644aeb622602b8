"""One file per API or family of APIs. Each declares its APIs in `HANDLERS` (`broker/handler.py`)."""

from fencepost.broker.handler import Handler
from fencepost.broker.handlers import (
    acls,
    api_versions,
    cluster,
    configs,
    describe_producers,
    fetch,
    group_offsets,
    groups,
    init_producer_id,
    metadata,
    offsets_for,
    produce,
    quotas,
    replica_placement,
    sasl,
    scram_credentials,
    topics,
    transactions,
)
from fencepost.wire.catalog import ApiKey


def all_handlers() -> dict[ApiKey, Handler]:
    families = (
        acls,
        api_versions,
        cluster,
        configs,
        describe_producers,
        fetch,
        group_offsets,
        groups,
        init_producer_id,
        metadata,
        offsets_for,
        produce,
        quotas,
        replica_placement,
        sasl,
        scram_credentials,
        topics,
        transactions,
    )
    return {key: handler for family in families for key, handler in family.HANDLERS.items()}
