import pytest

pytest.register_assert_rewrite("tests.unit.coordinators.transactions.scene")
