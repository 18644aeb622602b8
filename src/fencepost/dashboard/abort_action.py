"""Aborts a transaction from the page: first shows the plan, then aborts if it is still the same transaction."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from fencepost.client.kafka_types import TransactionDescription
from fencepost.dashboard.page_context import BadParameter, NotThere, Page, check_name
from fencepost.dashboard.shortened_names import full_name
from fencepost.insight.abort_plan import AbortEffect, plan_abort
from fencepost.insight.aborting import NothingToAbort, abort_hanging, force_abort, hanging_at, open_parts
from fencepost.insight.cluster_view import OpenTransaction
from fencepost.topic_partition import TopicPartition


class PlanChanged(Exception):
    """The transaction is no longer the one that the plan was made for."""


@dataclasses.dataclass(frozen=True, slots=True)
class AbortPlan:
    description: TransactionDescription | None
    """The id that is taken over; None for a hanging transaction in one partition."""
    opened: list[OpenTransaction]
    effects: list[AbortEffect]

    @property
    def confirm(self) -> str:
        """Identifies the transaction, not its size, which may grow."""
        if self.description is not None:
            of = self.description
            identity: list[Any] = [of.transactional_id, of.producer_id, of.producer_epoch, of.start_ms]
        else:
            identity = [
                [str(each.partition), each.producer.producer_id, each.producer.producer_epoch, each.start_offset]
                for each in self.opened
            ]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]

    def sentences(self) -> list[str]:
        found = []
        if self.description is not None:
            of = self.description
            found.append(
                f"The transaction of {of.transactional_id} will be aborted, and its producer ({of.producer_id}, epoch"
                f" {of.producer_epoch}) fenced: its next call fails with ProducerFenced."
            )
        for each in self.effects:
            found += _sentences(each)
        if not self.effects:
            found.append("It has no records in any partition, so nothing is lost.")
        return found

    def document(self) -> dict[str, Any]:
        return {
            "effects": [each.document() for each in self.effects],
            "text": self.sentences(),
            "confirm": self.confirm,
        }


def _sentences(effect: AbortEffect) -> list[str]:
    found = [
        f"In {effect.partition} {_records(effect.vanishing_records)} of it from offset {effect.start_offset} on"
        " will never be visible to read_committed consumers."
    ]
    moved = f"Readers advance from {effect.last_stable_offset} to {effect.next_last_stable_offset}"
    if effect.visible_records:
        moved += f" and get {_records(effect.visible_records)} of others immediately"
    if effect.held_by is not None:
        moved += f"; then producer {effect.held_by} holds them up"
    found.append(moved + ".")
    for pending in effect.vanishing_offsets:
        found.append(f"The offset {pending.offset} of group {pending.group_id} for {pending.partition} is discarded.")
    return found


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"


async def make_plan(page: Page, asked: Mapping[str, Any]) -> AbortPlan:
    view = page.view
    transactional_id = asked.get("transactional_id")
    try:
        if transactional_id is not None:
            if not isinstance(transactional_id, str) or not transactional_id:
                raise BadParameter("transactional_id must be a string")
            check_name(transactional_id, "transactional_id")
            transactional_id = full_name(transactional_id, page.watch.model.rows)
            if await view.describe_transaction_if_known(transactional_id) is None:
                raise NotThere(f"no coordinator knows the transactional id {transactional_id!r}")
            description, opened = await open_parts(view, transactional_id)
            return AbortPlan(description, opened, await plan_abort(view, opened))
        topic, partition, start = asked.get("topic"), asked.get("partition"), asked.get("start_offset")
        if not isinstance(topic, str) or not isinstance(partition, int) or not isinstance(start, int):
            raise BadParameter("give transactional_id, or topic, partition and start_offset")
        check_name(topic, "topic")
        if not 0 <= partition < 2**31 or not 0 <= start < 2**63:
            raise BadParameter("partition and start_offset must be valid numbers")
        hanging = [await hanging_at(view, TopicPartition(topic, partition), start)]
        return AbortPlan(None, hanging, await plan_abort(view, hanging))
    except NothingToAbort as error:
        raise PlanChanged(str(error)) from None


async def execute(page: Page, asked: Mapping[str, Any]) -> AbortPlan:
    plan, view = await make_plan(page, asked), page.view
    if asked.get("confirm") != plan.confirm:
        raise PlanChanged(
            "the transaction has changed since the plan was made: it has another epoch, or is another transaction"
        )
    if plan.description is not None:
        await force_abort(view, plan.description)
    else:
        await abort_hanging(view, plan.opened[0])
    return plan
