"""One file per API or family of APIs. Each declares its APIs in `HANDLERS` (`broker/handler.py`)."""

from typing import TYPE_CHECKING

from fencepost.wire.catalog import ApiKey

if TYPE_CHECKING:
    from fencepost.broker.handler import Handler


def all_handlers() -> "dict[ApiKey, Handler]":
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
