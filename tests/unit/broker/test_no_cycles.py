"""Serving leaves nothing to the garbage collector: it runs rarely, and what it finds it makes everybody wait for."""

import gc

import pytest

from fencepost.simulation.node import SimulatedNode
from fencepost.wire.catalog import ApiKey
from tests.durability.scene import SMALL
from tests.durability.test_two_phase_commit import OUTPUTS, Shop

TRANSACTIONS = 40


@pytest.mark.parametrize("protocol", [1, 2])
@pytest.mark.parametrize("flush", ["os", "group"])
def test_transactions_leave_no_cycles_behind(protocol: int, flush: str) -> None:
    machine = SimulatedNode({**SMALL, "flush": flush}).start()
    shop = Shop(machine, protocol)
    shop.open()

    def transact(first: int) -> None:
        for number in range(first, first + TRANSACTIONS):
            shop.transact(b"purchase", number, is_commit=number % 4 != 0)
            machine.scheduler.run_for(50)
            for topic in OUTPUTS:
                shop.client.socket.call(ApiKey.FETCH, 12, shop.client.fetch_request(topic, {0: 0}, isolation_level=1))

    transact(0)
    gc.collect()
    gc.disable()
    try:
        transact(TRANSACTIONS)
        found = gc.collect()
    finally:
        gc.enable()
    assert found < TRANSACTIONS, f"{found} objects in cycles after {TRANSACTIONS} transactions"
