"""Options of the whole suite; fixtures live beside the tests that use them."""

import pytest

from tests.support.order import longest_first


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--against",
        choices=("fencepost", "apache", "both"),
        default="fencepost",
        help="the broker that the interop tests run against",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole files change places; the tests of a file stay in order."""
    places = longest_first(_file(item) for item in items)
    items.sort(key=lambda item: places[_file(item)])


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
