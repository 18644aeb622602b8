"""Read Kafka's own message definitions out of its jars and write what the wire layer is built from:
`wire/schemas.json`, and `wire/messages.pyi` with the types of the classes made from it.

    python scripts/extract_schemas.py DIRECTORY_WITH_KAFKA_JARS
"""

import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

WIRE = Path(__file__).parent.parent / "src" / "fencepost" / "wire"
RECORD_SCHEMAS = {
    "kafka-group-coordinator": [
        "OffsetCommitKey",
        "OffsetCommitValue",
        "LegacyOffsetCommitKey",
        "LegacyOffsetCommitValue",
        "GroupMetadataKey",
        "GroupMetadataValue",
        # Of the consumer protocol (KIP-848): not served yet, but read in files of Apache Kafka.
        *(
            f"ConsumerGroup{name}{part}"
            for name in (
                "Metadata",
                "PartitionMetadata",
                "MemberMetadata",
                "TargetAssignmentMetadata",
                "TargetAssignmentMember",
                "CurrentMemberAssignment",
                "RegularExpression",
            )
            for part in ("Key", "Value")
        ),
    ],
    "kafka-transaction-coordinator": ["TransactionLogKey", "TransactionLogValue"],
}
DATA_SCHEMAS = [
    "ConsumerProtocolSubscription",
    "ConsumerProtocolAssignment",
    "DefaultPrincipalData",
    "EndTxnMarker",
    # Control records of the metadata log and its snapshots.
    "LeaderChangeMessage",
    "KRaftVersionRecord",
    "VotersRecord",
    "SnapshotHeaderRecord",
    "SnapshotFooterRecord",
]
NOT_SPOKEN = ("Share", "Streams", "DelegationToken", "Telemetry")
KEPT = ("name", "type", "versions", "nullableVersions", "taggedVersions", "tag", "default", "fields")


def parse_json_with_comments(text: str) -> Any:
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


def bounds(text: str | None, newest: int) -> list[int] | None:
    if text is None or text == "none":
        return None
    if text.endswith("+"):
        return [int(text[:-1]), newest]
    low, _, high = text.partition("-")
    return [int(low), int(high or low)]


def strip_field(field: dict[str, Any], newest: int) -> dict[str, Any]:
    kept: dict[str, Any] = {key: field[key] for key in KEPT if key in field}
    # A field that exists only as a tag is given with taggedVersions alone in the record schemas.
    kept["versions"] = bounds(field.get("versions") or field.get("taggedVersions"), newest)
    for key in ("nullableVersions", "taggedVersions"):
        if key in kept:
            kept[key] = bounds(kept[key], newest)
    if "default" in kept:
        given = kept["default"]
        kept["default"] = "null" if given is None else str(given).lower() if isinstance(given, bool) else str(given)
    if "fields" in kept:
        kept["fields"] = [strip_field(inner, newest) for inner in field["fields"]]
    return kept


def strip(schema: dict[str, Any]) -> dict[str, Any] | None:
    valid = bounds(schema["validVersions"], 0)
    if valid is None:
        return None
    newest = valid[1]
    flexible = bounds(schema.get("flexibleVersions", "none"), newest)
    return {
        "key": schema.get("apiKey"),
        "type": schema["type"],
        "valid": valid,
        "flexible": flexible[0] if flexible else None,
        "unstable": bool(schema.get("latestVersionUnstable")),
        "fields": [strip_field(field, newest) for field in schema["fields"]],
        "structs": {s["name"]: [strip_field(f, newest) for f in s["fields"]] for s in schema.get("commonStructs", [])},
    }


def collect(jars: Path) -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    clients = next(jars.glob("kafka-clients-*.jar"))
    with zipfile.ZipFile(clients) as archive:
        for name in archive.namelist():
            stem = Path(name).stem
            if not name.endswith(".json") or "common/message/" not in name:
                continue
            is_call = stem.endswith(("Request", "Response"))
            if stem in DATA_SCHEMAS or (
                is_call and not stem.startswith(NOT_SPOKEN) and not any(part in stem for part in NOT_SPOKEN)
            ):
                schemas[stem] = strip(parse_json_with_comments(archive.read(name).decode()))
    for prefix, stems in RECORD_SCHEMAS.items():
        with zipfile.ZipFile(next(jars.glob(f"{prefix}-[0-9]*.jar"))) as archive:
            for stem in stems:
                schemas[stem] = strip(parse_json_with_comments(archive.read(f"common/message/{stem}.json").decode()))
    with zipfile.ZipFile(next(jars.glob("kafka-metadata-[0-9]*.jar"))) as archive:
        for name in archive.namelist():
            if name.startswith("common/metadata/") and name.endswith(".json"):
                schema = parse_json_with_comments(archive.read(name).decode())
                schemas[schema["name"]] = strip(schema)
    return {name: schemas[name] for name in sorted(schemas) if schemas[name] is not None}


def snake(name: str) -> str:
    """ThrottleTimeMs -> throttle_time_ms, the rule that wire/messages.py applies too."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


PYTHON_TYPES = {
    "bool": "bool",
    "string": "str",
    "bytes": "bytes",
    "uuid": "bytes",
    "records": "Buffer",
    "float64": "float",
    **dict.fromkeys(("int8", "int16", "uint16", "int32", "uint32", "int64"), "int"),
}


def python_type(field: dict[str, Any], common: dict[str, str]) -> str:
    kind = field["type"]
    array = kind.startswith("[]")
    base = kind[2:] if array else kind
    text = PYTHON_TYPES.get(base) or common.get(base, base)
    if array:
        text = f"list[{text}]"
    if field.get("nullableVersions") or field.get("default") == "null" or kind == "records":
        text += " | None"
    return text


def stub_class(
    name: str, fields: list[dict[str, Any]], structs: dict[str, Any], common: dict[str, str], indent: str
) -> list[str]:
    lines = [f"{indent}class {name}:"]
    inner = indent + "    "
    for struct, struct_fields in structs.items():
        lines += stub_class(struct, struct_fields, {}, common, inner)
    for field in fields:
        if "fields" in field:
            lines += stub_class(field["type"].removeprefix("[]"), field["fields"], {}, common, inner)
    lines += [f"{inner}{snake(field['name'])}: {python_type(field, common)}" for field in fields]
    arguments = "".join(f", {snake(field['name'])}: {python_type(field, common)} = ..." for field in fields)
    lines.append(f"{inner}def __init__(self{', *' if fields else ''}{arguments}) -> None: ...")
    return lines


def stub(schemas: dict[str, Any]) -> str:
    lines = [
        "# Written by scripts/extract_schemas.py; do not edit.",
        "from typing import Any",
        "",
        "from fencepost.ports import Buffer",
        "",
        "def message_class(name: str) -> type[Any]: ...",
        "def schema_of(name: str) -> dict[str, Any]: ...",
        "def message_names() -> list[str]: ...",
        "def snake_case(name: str) -> str: ...",
        "def default_of(field: dict[str, Any]) -> Any: ...",
        "",
    ]
    for name, schema in schemas.items():
        common = {struct: f"{name}.{struct}" for struct in schema["structs"]}
        lines += [*stub_class(name, schema["fields"], schema["structs"], common, ""), ""]
    return "\n".join(lines)


def main() -> None:
    schemas = collect(Path(sys.argv[1]))
    body = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(schema, separators=(',', ':'))}" for name, schema in schemas.items()
    )
    (WIRE / "schemas.json").write_text("{\n" + body + "\n}\n")
    (WIRE / "messages.pyi").write_text(stub(schemas))
    print(f"{len(schemas)} schemas")


if __name__ == "__main__":
    main()
