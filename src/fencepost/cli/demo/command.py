"""`fencepost demo`, in two acts. The first takes ten seconds and needs no Java: clients, transactions, a zombie and
why it was fenced. The second runs the shop pipeline on Spark, kills its processes on the way, and has another client
count.
"""

import time
from pathlib import Path
from typing import Any

from fencepost.cli.output import CommandFailed, print_json

# Imports inside functions: each command loads only what it needs, so that it starts quickly.

TRADED_MAX = 100


def run_demo(purchases: int, *, act: int | None, compare: bool, connector_jars: Path | None, as_json: bool) -> int:
    document: dict[str, Any] = {}
    if act in (None, 1):
        document |= _first_act(min(purchases, TRADED_MAX), as_json=as_json)
    missing = None if act == 1 else _missing_for_second_act()
    if missing is not None and act == 2:
        raise missing
    if act != 1 and missing is None:
        from fencepost.cli.demo.crashes import second_act

        document |= second_act(purchases, compare=compare, connector_jars=connector_jars, as_json=as_json)
    if as_json:
        print_json(
            {
                **document,
                **({} if missing is None else {"act_two": None, "missing": f"{missing.message}; {missing.advice}"}),
            }
        )
    elif missing is not None:
        print(f"\nAct two needs Spark. {missing.message}: {missing.advice}.")
    _check(document)
    return 0


def _first_act(purchases: int, *, as_json: bool) -> dict[str, Any]:
    from fencepost import Broker
    from fencepost.cli.demo.fenced_zombie import show_transactions, transact
    from fencepost.cli.demo.foreign_clients import PARTITIONS, TOPIC, show_trade, trade

    say = _silent if as_json else print
    begun = time.perf_counter()
    with Broker(topics={TOPIC: PARTITIONS, "invoices": 1, "shipments": 1}) as broker:
        say(f"a broker listens on {broker.bootstrap_servers} after {(time.perf_counter() - begun) * 1000:.0f} ms")
        traded = trade(broker.bootstrap_servers, purchases, say)
        if not as_json:
            show_trade(traded)
        transacted = transact(broker)
        if not as_json:
            show_transactions(transacted)
    return {**traded, "transactions": transacted}


def _missing_for_second_act() -> CommandFailed | None:
    import importlib.util

    from fencepost.spark.errors import FencepostSparkError
    from fencepost.spark.requirements import PYSPARK_FOR_SOURCE, require_arrow, require_java, require_pyspark

    try:
        require_pyspark(PYSPARK_FOR_SOURCE, "the pipeline")
        require_arrow()
        require_java()
    except FencepostSparkError as error:
        return CommandFailed(error.fact, error.advice)
    if importlib.util.find_spec("confluent_kafka") is None:
        return CommandFailed("the audit needs confluent-kafka, which is not installed", "pip install confluent-kafka")
    return None


def _check(document: dict[str, Any]) -> None:
    if not all(row["complete"] for row in document.get("readers", ())):
        raise CommandFailed("a client did not read what the others wrote", "run `fencepost demo --json` to see which")
    found = document.get("act_two")
    if found is not None and not found["exactly_once"]:
        raise CommandFailed("the audit found rows that are missing or duplicated", "run `fencepost demo --json`")


def _silent(_: str) -> None:
    return None
