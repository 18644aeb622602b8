"""Each purchase becomes one invoice and one shipment, which share a generated shipment id.

fencepost run examples/shop.py --sample 1000 --until-caught-up
"""

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fencepost.spark import Output, pipeline


@pipeline(
    "shop",
    source="purchases",
    schema="purchase_id string NOT NULL, customer string NOT NULL, item string, quantity int, price_cents bigint",
    outputs=[Output("invoices", key="purchase_id"), Output("shipments", key="purchase_id")],
    dead_letter="purchases.dlq",
)
def shop(purchases: DataFrame, once: Callable[[DataFrame], DataFrame]) -> dict[str, DataFrame]:
    # `once`: the random id is computed once, so that both outputs have the same one.
    orders = once(purchases.withColumn("shipment_id", F.expr("uuid()")))
    return {
        "invoices": orders.select(
            "_record",  # not written; tells a dead letter which record it came from
            "purchase_id",
            "customer",
            "shipment_id",
            (F.col("quantity") * F.col("price_cents")).alias("amount_cents"),
        ),
        "shipments": orders.select("_record", "purchase_id", "shipment_id", "customer", "item", "quantity"),
    }


ITEMS = ("book", "lamp", "chair", "kettle", "rug")


@shop.sample
def purchase(number: int) -> dict[str, Any]:
    return {
        "purchase_id": f"purchase-{number:06}",
        "customer": f"customer-{number % 97}",
        "item": ITEMS[number % len(ITEMS)],
        "quantity": 1 + number % 3,
        "price_cents": 500 + 37 * (number % 41),
    }
