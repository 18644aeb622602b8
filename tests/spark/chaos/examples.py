"""The pipelines that are run, the inputs they get, and what must come out for each input."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.peers.build import REPOSITORY

INPUT_PARTITIONS = 3
OUTPUT_PARTITIONS = 4
ACCOUNTS = 13


@dataclass(frozen=True, slots=True)
class Example:
    name: str
    file: Path
    source: str
    outputs: tuple[str, str]
    make_input: Callable[[int], dict[str, Any]]
    key_of: Callable[[dict[str, Any]], str]
    """The field of an output that names the input it came from."""
    agree: Callable[[dict[str, Any], dict[str, Any]], bool]
    """Whether the two outputs of one input say the same."""


def _purchase(number: int) -> dict[str, Any]:
    return {
        "purchase_id": f"purchase-{number:06}", "customer": f"customer-{number % 97}", "item": "book",
        "quantity": 1 + number % 3, "price_cents": 500 + number % 41,
    }  # fmt: skip


def _transfer(number: int) -> dict[str, Any]:
    return {
        "transfer_id": f"transfer-{number:06}", "payer": f"account-{number % ACCOUNTS}",
        "payee": f"account-{(number * 7 + 1) % ACCOUNTS}", "amount_cents": 100 + number % 59,
    }  # fmt: skip


SHOP = Example(
    "shop", REPOSITORY / "examples" / "shop.py", "purchases", ("invoices", "shipments"), _purchase,
    key_of=lambda row: row["purchase_id"],
    # Both carry an id that was drawn at random on the way.
    agree=lambda invoice, shipment: invoice["shipment_id"] == shipment["shipment_id"],
)  # fmt: skip
FLAKY_SHOP = Example(
    "shop", Path(__file__).with_name("flaky_shop.py"), "purchases", ("invoices", "shipments"), _purchase,
    key_of=lambda row: row["purchase_id"],
    agree=lambda invoice, shipment: invoice["shipment_id"] == shipment["shipment_id"],
)  # fmt: skip
TRANSFERS = Example(
    "transfers", REPOSITORY / "examples" / "transfers.py", "transfers", ("debits", "credits"), _transfer,
    key_of=lambda row: row["transfer_id"],
    agree=lambda debit, credit: debit["amount_cents"] == -credit["amount_cents"],
)  # fmt: skip


def encode(row: dict[str, Any]) -> bytes:
    return json.dumps(row).encode()
