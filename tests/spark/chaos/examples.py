"""The pipelines that are run, the inputs they get, and what must come out for each input."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fencepost.client.partitioner import partition_of_key
from tests.peers.build import REPOSITORY

INPUT_PARTITIONS = 3
OUTPUT_PARTITIONS = 4
ACCOUNTS = 13

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Example:
    name: str
    """Its transactional id and group."""
    file: Path
    source: str
    outputs: tuple[str, str]
    make_input: Callable[[int], Row]
    name_of: Callable[[Row], str]
    """What an input and both of its outputs are known by."""
    keys_of: Callable[[Row], tuple[str, str]]
    """The keys of an input's two outputs."""
    agree: Callable[[Row, Row], bool]
    """Whether the two outputs of one input say the same."""

    def places_of(self, row: Row) -> list[str]:
        """The partitions in which an input's two outputs must stand."""
        return [
            f"{topic}-{partition_of_key(key.encode(), OUTPUT_PARTITIONS)}"
            for topic, key in zip(self.outputs, self.keys_of(row), strict=True)
        ]


def _purchase(number: int) -> Row:
    return {
        "purchase_id": f"purchase-{number:06}", "customer": f"customer-{number % 97}", "item": "book",
        "quantity": 1 + number % 3, "price_cents": 500 + number % 41,
    }  # fmt: skip


def _transfer(number: int) -> Row:
    return {
        "transfer_id": f"transfer-{number:06}", "payer": f"account-{number % ACCOUNTS}",
        "payee": f"account-{(number * 7 + 1) % ACCOUNTS}", "amount_cents": 100 + number % 59,
    }  # fmt: skip


def _shop(file: Path) -> Example:
    return Example(
        "shop", file, "purchases", ("invoices", "shipments"), _purchase,
        name_of=lambda row: row["purchase_id"],
        keys_of=lambda row: (row["purchase_id"], row["purchase_id"]),
        # Both carry an id that was drawn at random on the way.
        agree=lambda invoice, shipment: invoice["shipment_id"] == shipment["shipment_id"],
    )  # fmt: skip


SHOP = _shop(REPOSITORY / "examples" / "shop.py")
FLAKY_SHOP = _shop(Path(__file__).with_name("flaky_shop.py"))
SLOW_SHOP = _shop(Path(__file__).with_name("slow_shop.py"))
TRANSFERS = Example(
    "transfers", REPOSITORY / "examples" / "transfers.py", "transfers", ("debits", "credits"), _transfer,
    name_of=lambda row: row["transfer_id"],
    keys_of=lambda row: (row["payer"], row["payee"]),
    agree=lambda debit, credit: debit["amount_cents"] == -credit["amount_cents"],
)  # fmt: skip


def encode(row: Row) -> bytes:
    return json.dumps(row).encode()
