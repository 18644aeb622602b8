"""A Confluent-compatible schema registry, over HTTP: five bytes before each value say which schema it was written with.

Small enough to travel to the executors, where each Python worker asks for a schema once.
"""

import base64
import dataclasses
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from fencepost.spark.errors import FencepostSparkError

MAGIC = 0
HEADER_BYTES = 5
REQUEST_TIMEOUT_SECONDS = 30.0
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
NOT_FOUND = 404

_schemas: dict[tuple[str, int], str] = {}


class RegistryFailed(FencepostSparkError):
    """The registry did not answer, or refused."""


class UnknownSchema(FencepostSparkError):
    """The registry has no such schema or subject."""


@dataclasses.dataclass(frozen=True, slots=True)
class RegisteredSchema:
    id: int
    schema: str


@dataclasses.dataclass(frozen=True, slots=True)
class SchemaRegistry:
    url: str
    username: str | None = None
    password: str | None = dataclasses.field(default=None, repr=False)

    @staticmethod
    def header(schema_id: int) -> bytes:
        return bytes([MAGIC]) + schema_id.to_bytes(4, "big")

    @staticmethod
    def split(value: bytes) -> tuple[int, bytes]:
        """The schema id and what follows it. ValueError says that there is none."""
        if len(value) < HEADER_BYTES or value[0] != MAGIC:
            raise ValueError("the value does not begin with a schema id")
        return int.from_bytes(value[1:HEADER_BYTES], "big"), value[HEADER_BYTES:]

    def schema(self, schema_id: int) -> str:
        """The text of a schema, asked for once per process: an id never changes its meaning."""
        found = _schemas.get((self.url, schema_id))
        if found is None:
            found = _schemas[self.url, schema_id] = self._call(f"/schemas/ids/{schema_id}")["schema"]
        return found

    def latest(self, subject: str) -> RegisteredSchema:
        answer = self._call(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest")
        return RegisteredSchema(answer["id"], answer["schema"])

    def register(self, subject: str, schema: Any, kind: str) -> RegisteredSchema:
        """Registering what is there already gives the same id again."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body = {"schema": text} if kind == "AVRO" else {"schema": text, "schemaType": kind}
        answer = self._call(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions", body)
        return RegisteredSchema(answer["id"], text)

    def _call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url.rstrip("/") + path, data, {"Accept": CONTENT_TYPE})
        if self.username is not None:
            pair = base64.b64encode(f"{self.username}:{self.password or ''}".encode()).decode()
            request.add_header("Authorization", f"Basic {pair}")
        if body is not None:
            request.add_header("Content-Type", CONTENT_TYPE)
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_SECONDS) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                said = error.read().decode(errors="replace")[:500]
            if error.code == NOT_FOUND:
                raise UnknownSchema(f"the schema registry has nothing at {path}: {said}") from None
            raise RegistryFailed(f"the schema registry answered {error.code} to {path}: {said}") from None
        except (OSError, ValueError) as error:
            raise RegistryFailed(
                f"the schema registry at {self.url} did not answer: {error}", "check registry= and the network"
            ) from None


def as_registry(given: "SchemaRegistry | str | None") -> SchemaRegistry | None:
    """From the address, credentials within it allowed: http://name:secret@host:8081."""
    if given is None or isinstance(given, SchemaRegistry):
        return given
    parts = urllib.parse.urlsplit(given)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise RegistryFailed(f"{given!r} is no address of a schema registry", "write it as http://HOST:PORT")
    host = parts.hostname if ":" not in parts.hostname else f"[{parts.hostname}]"
    plain = urllib.parse.urlunsplit(
        (parts.scheme, host + (f":{parts.port}" if parts.port else ""), parts.path, parts.query, "")
    )
    if parts.username is None:
        return SchemaRegistry(plain)
    secret = None if parts.password is None else urllib.parse.unquote(parts.password)
    return SchemaRegistry(plain, urllib.parse.unquote(parts.username), secret)
