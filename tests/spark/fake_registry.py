"""A schema registry that answers the three calls a pipeline makes, over real HTTP."""

import http.server
import json
import threading
from typing import Any, Self


class FakeRegistry:
    def __init__(self) -> None:
        self.schemas: dict[int, str] = {}
        self.subjects: dict[str, list[int]] = {}
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(registry.get(self.path))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                subject = self.path.split("/")[2]
                self._answer({"id": registry.add(subject, body["schema"])})

            def _answer(self, document: Any) -> None:
                data = json.dumps(document or {"error_code": 40403, "message": "not found"}).encode()
                self.send_response(200 if document else 404)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                return None

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def add(self, subject: str, schema: str) -> int:
        known = [number for number, text in self.schemas.items() if text == schema]
        number = known[0] if known else len(self.schemas) + 1
        self.schemas[number] = schema
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def get(self, path: str) -> Any:
        parts = path.strip("/").split("/")
        if parts[0] == "schemas":
            schema = self.schemas.get(int(parts[2]))
            return schema and {"schema": schema}
        versions = self.subjects.get(parts[1])
        return versions and {"id": versions[-1], "schema": self.schemas[versions[-1]]}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
