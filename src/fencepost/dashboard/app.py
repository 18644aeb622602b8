"""The page over HTTP: routes, and the mapping of exceptions to status codes. Everything else is in the views."""

import asyncio
import contextlib
import ipaddress
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from fencepost.client.errors import ClientError
from fencepost.dashboard import abort_action
from fencepost.dashboard.failure_answers import Failure, failure_of
from fencepost.dashboard.page_context import BadParameter, NotThere, Page, Parameters
from fencepost.dashboard.request_checks import AllowedHosts, Guard, Token, cookie_name
from fencepost.dashboard.shortened_names import readable
from fencepost.dashboard.subscriptions import STREAMS_MAX, Subscription, Subscriptions, TooManyStreams
from fencepost.dashboard.views.registry import VIEWS
from fencepost.dashboard.views.session import locked_session, session

STATIC = Path(__file__).parent / "static"
BODY_MAX_BYTES = 64 * 1024
BODY_SECONDS = 10.0
FAREWELL_SECONDS = 1.0
EXPECTED = (ClientError, BadParameter, NotThere, abort_action.PlanChanged)
Handler = Callable[[Request], Awaitable[Response]]

ACTIONS_FORBIDDEN = Failure(
    403,
    "actions are disabled on this page",
    "start it with `fencepost ui --allow-actions` (or `serve --ui-allow-actions`)",
)


class NameConvertor(Convertor[str]):
    """Matches the rest of a path: names may contain line feeds and slashes."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("name", NameConvertor())


class DashboardApp:
    """One page and its routes. `asgi` is what a server serves."""

    def __init__(self, page: Page, host: str, port: int, token: str | None = None, hosts: Iterable[str] = ()) -> None:
        self._page = page
        self._token = None if token is None else Token(token)
        self._cookie = cookie_name(port)
        self._making: dict[tuple[str, tuple[tuple[str, str], ...]], asyncio.Task[dict[str, Any]]] = {}
        self.subscriptions: Subscriptions
        app = Starlette(routes=self._routes(), lifespan=self._lifespan)
        self.asgi: ASGIApp = Guard(app, AllowedHosts(host, hosts), self._token, self._cookie)

    def _routes(self) -> list[Route | Mount]:
        return [
            Route("/api/session", self._guarded(self._session), methods=["GET"]),
            Route("/api/session", self._guarded(self._log_in), methods=["POST"]),
            Route("/api/overview", self._view("overview")),
            Route("/api/transactions", self._view("transactions")),
            Route("/api/transactions/{id:name}", self._view("transaction")),
            Route("/api/partitions", self._view("partitions")),
            Route("/api/partitions/{topic}/{partition}/strip", self._view("strip")),
            Route("/api/groups", self._view("groups")),
            Route("/api/groups/{id:name}", self._view("group")),
            Route("/api/producers", self._view("producers")),
            Route("/api/pipelines", self._view("pipelines")),
            Route("/api/events", self._guarded(self._events)),
            Route("/api/abort/plan", self._guarded(self._plan_abort), methods=["POST"]),
            Route("/api/abort", self._guarded(self._abort), methods=["POST"]),
            Route("/api/{rest:name}", self._guarded(self._nothing)),
            Route("/", self._index),
            Mount("/", StaticFiles(directory=STATIC, check_dir=False)),
        ]

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.subscriptions = Subscriptions(self._page)
        watching = asyncio.create_task(self._page.watch.run())
        try:
            yield
        finally:
            self.subscriptions.close()
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await self._page.view.close()

    # Routes

    def _view(self, name: str) -> Handler:
        async def answer(request: Request) -> Response:
            return _answer(await self._document(name, {**request.query_params, **request.path_params}))

        return self._guarded(answer)

    async def _document(self, name: str, given: dict[str, str]) -> dict[str, Any]:
        """Concurrent requests for the same document share one answer."""
        key = (name, tuple(sorted(given.items())))
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = asyncio.create_task(self._make(name, given))
            making.add_done_callback(lambda _: self._making.pop(key, None))
        return await asyncio.shield(making)

    async def _make(self, name: str, given: dict[str, str]) -> dict[str, Any]:
        await self._page.watch.ready()
        return await VIEWS[name].make(self._page, Parameters(given))

    async def _session(self, request: Request) -> Response:
        if not request.scope["fencepost.is_trusted"]:
            return JSONResponse(locked_session())
        await self._page.watch.ready()
        return JSONResponse(await session(self._page))

    async def _log_in(self, request: Request) -> Response:
        given = (await _body(request)).get("token")
        if self._token is None:
            return JSONResponse({"needs_token": False})
        if not isinstance(given, str) or not self._token.matches(given):
            refused = Failure(401, "the token is wrong", "use the token that was printed when the page was started")
            return _failed(refused)
        answer = JSONResponse({"needs_token": False})
        answer.set_cookie(self._cookie, self._token.cookie_value, httponly=True, samesite="strict", path="/")
        return answer

    async def _events(self, request: Request) -> Response:
        given = dict(request.query_params)
        view = given.pop("view", "")
        try:
            return EventStream(self.subscriptions.open(view, given, _client(request)))
        except TooManyStreams:
            return _failed(
                Failure(
                    503, f"{STREAMS_MAX} streams are already open, and other clients have fewer", "close some pages"
                )
            )

    async def _plan_abort(self, request: Request) -> Response:
        if not self._page.are_actions_allowed:
            return _failed(ACTIONS_FORBIDDEN)
        plan = await abort_action.make_plan(self._page, await _body(request))
        return _answer(plan.document())

    async def _abort(self, request: Request) -> Response:
        if not self._page.are_actions_allowed:
            return _failed(ACTIONS_FORBIDDEN)
        plan = await abort_action.execute(self._page, await _body(request))
        return _answer({"executed": True, "effects": [each.document() for each in plan.effects]})

    async def _nothing(self, request: Request) -> Response:
        raise NotThere(f"{request.url.path} does not exist")

    async def _index(self, request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    def _guarded(self, handler: Handler) -> Handler:
        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except EXPECTED as error:
                return _failed(failure_of(error), self._page.watch.trouble_since_ms)

        return answer


class EventStream(Response):
    """Server-sent events until the client disconnects or the page stops."""

    def __init__(self, subscription: Subscription) -> None:
        super().__init__(media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._subscription = subscription

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_disconnected(receive))
        ended = asyncio.create_task(self._subscription.ended())
        try:
            done, _ = await asyncio.wait((sending, leaving, ended), return_when=asyncio.FIRST_COMPLETED)
            if ended in done:
                # A client that does not read cannot receive a message, so it is not waited for.
                await asyncio.wait((sending, leaving), timeout=FAREWELL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving, ended):
                task.cancel()
            await asyncio.gather(sending, leaving, ended, return_exceptions=True)
            self._subscription.close()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with contextlib.aclosing(self._subscription.events()) as events:
            async for event in events:
                await send({"type": "http.response.body", "body": event.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request) -> dict[str, Any]:
    taken = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                taken += chunk
                if len(taken) > BODY_MAX_BYTES:
                    raise BadParameter("the body is too large")
        found = json.loads(bytes(taken) or b"{}")
    except TimeoutError:
        raise BadParameter("the body did not arrive in time") from None
    except RecursionError:
        raise BadParameter("the body is nested too deeply") from None
    except (ValueError, ClientDisconnect):
        raise BadParameter("the body is not JSON") from None
    if not isinstance(found, dict):
        raise BadParameter("the body is not a JSON object")
    return found


def _answer(document: dict[str, Any]) -> Response:
    return JSONResponse(readable(document))


def _client(request: Request) -> str:
    """Identifies the client by its address; in IPv6 by its network, because a machine may use any address of it."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str(ipaddress.ip_network(f"{address}/64", strict=False)) if address.version == 6 else host


def _failed(failure: Failure, since_ms: int | None = None) -> Response:
    document = {**readable(failure.document()), "status": failure.status, "since_ms": since_ms}
    return JSONResponse(document, failure.status)
