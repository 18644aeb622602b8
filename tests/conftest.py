"""Options of the whole suite; fixtures live beside the tests that use them."""

import os
import signal

import pytest

from tests.support.order import longest_first
from tests.support.patience import PATIENCE, patient

try:
    from hypothesis import settings
except ModuleNotFoundError:
    pass  # Spark 3.5 has a small environment of its own, for tests without properties
else:
    # What the gate tries is the same every time; HYPOTHESIS_PROFILE=fresh (`make properties`) tries something new.
    settings.register_profile("gate", deadline=None, derandomize=True, database=None)
    settings.register_profile("fresh", deadline=None, print_blob=True)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--against",
        choices=("fencepost", "apache", "both"),
        default="fencepost",
        help="the broker that the interop tests run against",
    )


# A shell that starts the suite in the background makes it ignore SIGINT, and `nohup` makes it ignore SIGHUP. Child
# processes would inherit that, and the brokers and commands that tests interrupt would not stop. A signal that is
# handled here has its default in children.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.option.timeout is None:
        config.option.timeout = patient(float(config.getini("timeout")))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole files change places; the tests of a file stay in order. A test's own time-out needs patience, too."""
    places = longest_first(_file(item) for item in items)
    items.sort(key=lambda item: places[_file(item)])
    for item in items if PATIENCE != 1 else ():
        marker = item.get_closest_marker("timeout")
        if marker is not None and marker.args:
            item.add_marker(pytest.mark.timeout(patient(marker.args[0])), append=False)


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
