"""The running balance of every account, from its transfers: state that outlives batches, restarts and crashes.

fencepost run examples/balances.py --sample 1000 --until-caught-up
"""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fencepost.spark import Output, pipeline


@pipeline(
    "balances",
    source="transfers",
    schema="transfer_id string NOT NULL, payer string NOT NULL, payee string NOT NULL, amount_cents bigint NOT NULL",
    outputs=[Output("balances", key="account")],
    dead_letter="balances.dlq",
    output_mode="update",
)
def balances(accounts: DataFrame) -> dict[str, DataFrame]:
    return {"balances": accounts}


@balances.stream
def by_account(transfers: DataFrame) -> DataFrame:
    """Runs on the stream: Spark keeps each account's sum in its state store, and passes on the accounts that
    changed."""
    amount = F.col("amount_cents")
    entries = F.array(
        F.struct(F.col("payer").alias("account"), (-amount).alias("amount_cents")),
        F.struct(F.col("payee").alias("account"), amount.alias("amount_cents")),
    )
    return (
        transfers.select(F.inline(entries))
        .groupBy("account")
        .agg(F.sum("amount_cents").alias("balance_cents"), F.count("*").alias("entries"))
    )


@balances.sample
def transfer(number: int) -> dict[str, Any]:
    return {
        "transfer_id": f"transfer-{number:06}",
        "payer": f"account-{number % 13}",
        "payee": f"account-{(number * 7 + 1) % 13}",
        "amount_cents": 100 + 13 * (number % 59),
    }
