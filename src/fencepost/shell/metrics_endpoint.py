"""A minimal HTTP server for Prometheus: one path, one answer per connection."""

import asyncio
import socket

from prometheus_client import CollectorRegistry, generate_latest

REQUEST_HEAD_BYTES_MAX = 8192
REQUEST_TIMEOUT_SECONDS = 10
# Prometheus needs one. More would use up descriptors that clients and logs need.
CONNECTIONS_MAX = 16


async def serve_registry(registry: CollectorRegistry, bound: socket.socket) -> asyncio.Server:
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        if connections >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        connections += 1
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), timeout=REQUEST_TIMEOUT_SECONDS)
            path = head.split(b" ", 2)[1] if head.count(b" ") >= 2 else b""
            if path.split(b"?")[0] == b"/metrics":
                status, kind, body = b"200 OK", b"text/plain; version=0.0.4; charset=utf-8", generate_latest(registry)
            else:
                status, kind, body = b"404 Not Found", b"text/plain", b"see /metrics\n"
            writer.write(
                b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
                % (status, kind, len(body))
            )
            writer.write(body)
            await asyncio.wait_for(writer.drain(), timeout=REQUEST_TIMEOUT_SECONDS)
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            connections -= 1
            writer.close()

    return await asyncio.start_server(answer, sock=bound, limit=REQUEST_HEAD_BYTES_MAX)
