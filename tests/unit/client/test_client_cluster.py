"""Addresses as people write them."""

import pytest

from fencepost.client.cluster import parse_addresses
from fencepost.client.errors import InvalidAddress


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("broker", [("broker", 9092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
        (["a:1", "b:2"], [("a", 1), ("b", 2)]),
    ],
)
def test_addresses_are_understood(text: str | list[str], addresses: list[tuple[str, int]]) -> None:
    assert parse_addresses(text) == addresses


@pytest.mark.parametrize("text", ["", ",", "host:", "host:x", ":9092", "host:0", "host:70000"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidAddress):
        parse_addresses(text)
