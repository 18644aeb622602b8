"""Settings of topics, brokers and groups."""

from typing import Any

from tests.security_acls.matrix import OP, Body, Names, c, case, g, t

CONFIG_TOPIC, CONFIG_BROKER, CONFIG_GROUP = 2, 4, 32


def settings_of(kind: int) -> Body:
    def body(names: Names, version: int) -> dict[str, Any]:
        name = {CONFIG_TOPIC: names.topic, CONFIG_BROKER: "1", CONFIG_GROUP: names.group}[kind]
        keys = {CONFIG_TOPIC: ["segment.ms"], CONFIG_BROKER: ["log.cleaner.backoff.ms"], CONFIG_GROUP: ["none"]}[kind]
        return {"Resources": [{"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": keys}]}

    return body


def altered(kind: int, operations: bool) -> Body:
    def body(names: Names, version: int) -> dict[str, Any]:
        name = {CONFIG_TOPIC: names.topic, CONFIG_BROKER: "1", CONFIG_GROUP: names.group}[kind]
        key = {CONFIG_TOPIC: "segment.ms", CONFIG_BROKER: "log.cleaner.backoff.ms"}.get(kind, "none")
        change: dict[str, Any] = {"Name": key, "Value": "20000"}
        if operations:
            change["ConfigOperation"] = 0
        resource = {"ResourceType": kind, "ResourceName": name, "Configs": [change]}
        return {"Resources": [resource], "ValidateOnly": True}

    return body


case(
    "describe configs of a topic",
    "DescribeConfigs",
    settings_of(CONFIG_TOPIC),
    [t(OP.DESCRIBE)],
    [t(OP.DESCRIBE_CONFIGS)],
)
case(
    "describe configs of a topic by the right to alter them",
    "DescribeConfigs",
    settings_of(CONFIG_TOPIC),
    [t(OP.ALTER_CONFIGS)],
)
case("describe configs of a broker", "DescribeConfigs", settings_of(CONFIG_BROKER), [c(OP.DESCRIBE_CONFIGS)])
case("describe configs of a group", "DescribeConfigs", settings_of(CONFIG_GROUP), [g(OP.DESCRIBE_CONFIGS)])
for _api, _operations in (("AlterConfigs", False), ("IncrementalAlterConfigs", True)):
    _words = "alter configs" if _api == "AlterConfigs" else "incremental alter configs"
    case(f"{_words} of a topic", _api, altered(CONFIG_TOPIC, _operations), [t(OP.ALTER)], [t(OP.ALTER_CONFIGS)])
    case(f"{_words} of a broker", _api, altered(CONFIG_BROKER, _operations), [c(OP.ALTER)], [c(OP.ALTER_CONFIGS)])
    case(
        f"{_words} of a group",
        _api,
        altered(CONFIG_GROUP, _operations),
        [c(OP.ALTER_CONFIGS)],
        [g(OP.ALTER_CONFIGS)],
        until=2,
    )
case(
    "list config resources",
    "ListConfigResources",
    lambda n, v: {"ResourceTypes": [4]} if v else {},
    [c(OP.DESCRIBE_CONFIGS)],
)
