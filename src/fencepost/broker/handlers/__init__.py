"""One file per family of APIs; each says in `HANDLERS` which keys it serves."""

from typing import TYPE_CHECKING

from fencepost.wire.catalog import ApiKey

if TYPE_CHECKING:
    from fencepost.broker.dispatch import Handler


def all_handlers() -> "dict[ApiKey, Handler]":
    from fencepost.broker.handlers import (
        acls,
        api_versions,
        cluster,
        configs,
        fetch,
        groups,
        metadata,
        offsets_for,
        produce,
        producers,
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
        fetch,
        groups,
        metadata,
        offsets_for,
        produce,
        producers,
        quotas,
        replica_placement,
        sasl,
        scram_credentials,
        topics,
        transactions,
    )
    return {key: handler for family in families for key, handler in family.HANDLERS.items()}
