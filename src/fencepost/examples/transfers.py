"""Each transfer becomes one debit and one credit: money never appears or vanishes, whatever crashes in between.

fencepost run examples/transfers.py --sample 1000 --until-caught-up
"""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fencepost.spark import Output, pipeline


@pipeline(
    "transfers",
    source="transfers",
    schema="transfer_id string NOT NULL, payer string NOT NULL, payee string NOT NULL, amount_cents bigint NOT NULL",
    outputs=[Output("debits", key="account"), Output("credits", key="account")],
    dead_letter="transfers.dlq",
)
def transfers(transfers: DataFrame) -> dict[str, DataFrame]:
    amount = F.col("amount_cents")
    return {
        "debits": transfers.select("transfer_id", F.col("payer").alias("account"), (-amount).alias("amount_cents")),
        "credits": transfers.select("transfer_id", F.col("payee").alias("account"), amount),
    }


@transfers.sample
def transfer(number: int) -> dict[str, Any]:
    return {
        "transfer_id": f"transfer-{number:06}",
        "payer": f"account-{number % 13}",
        "payee": f"account-{(number * 7 + 1) % 13}",
        "amount_cents": 100 + 13 * (number % 59),
    }
