"""Options of the whole suite; fixtures live beside the tests that use them."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--against",
        choices=("fencepost", "apache", "both"),
        default="fencepost",
        help="the broker that the interop tests run against",
    )
