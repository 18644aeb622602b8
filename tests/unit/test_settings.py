"""How settings are declared, parsed, refused and documented."""

import importlib.util
from pathlib import Path

import pytest

from fencepost.config import BROKER_DEFAULT_OF, broker_config, broker_settings, topic_config, topic_settings
from fencepost.settings import InvalidSetting

ROOT = Path(__file__).parent.parent.parent


def test_every_default_is_a_value_the_setting_itself_would_take():
    for settings in (broker_settings(), topic_settings()):
        for setting in settings.values():
            assert setting.parse(setting.render(setting.default)) == setting.default


def test_a_topic_takes_its_defaults_from_the_broker_and_its_own_settings_win():
    broker = broker_config({"log.retention.ms": "1000", "log.segment.bytes": "4096"})
    config = topic_config({"segment.bytes": "8192"}, broker)
    assert (config.retention_ms, config.segment_bytes) == (1000, 8192)


def test_broker_defaults_of_topics_agree_with_the_topics_own():
    for topic_name, broker_name in BROKER_DEFAULT_OF.items():
        assert topic_settings()[topic_name].default == broker_settings()[broker_name].default, topic_name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("flush.thread", "did you mean flush.threads?"),
        ("broker.id", "use node.id"),
        ("max.transaction.timeout.ms", "use transaction.max.timeout.ms"),
        ("completely.unknown.nonsense.xyz", "Unknown configuration completely.unknown.nonsense.xyz"),
    ],
)
def test_an_unknown_name_is_refused_with_what_would_do(name, expected):
    with pytest.raises(InvalidSetting, match=expected.replace("?", r"\?")):
        broker_config({name: "1"})


@pytest.mark.parametrize(
    ("name", "text"),
    [("flush", "sometimes"), ("num.partitions", "0"), ("num.partitions", "x"), ("max.connections", "1e9")],
)
def test_a_value_that_a_setting_cannot_take_is_refused(name, text):
    with pytest.raises(InvalidSetting, match=f"Invalid value {text} for configuration {name}"):
        broker_config({name: text})


def test_the_documentation_lists_the_settings_as_they_are():
    spec = importlib.util.spec_from_file_location("write_settings_doc", ROOT / "scripts" / "write_settings_doc.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    document = script.DOCUMENT.read_text()
    assert script.updated(document) == document, "run python scripts/write_settings_doc.py"
