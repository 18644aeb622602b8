"""What handlers declare agrees with Kafka's schemas, and is applied as declared."""

from typing import Any

import pytest

from fencepost.broker.connection import Call
from fencepost.broker.handler import Each, Handler, Repeated, Shape
from fencepost.broker.handlers import all_handlers
from fencepost.broker.rights import each, with_rights
from fencepost.broker.security.access import Access
from fencepost.broker.security.authorizer import Authorizer
from fencepost.broker.security.principal import Principal
from fencepost.promise import Promise
from fencepost.wire.acls import AclBinding, AclOperation, AclPermissionType, ResourcePattern, ResourceType
from fencepost.wire.catalog import ApiKey, request_class, response_class
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import ListOffsetsRequest, ListOffsetsResponse, schema_of, snake_case

ALICE = Principal("User", "alice")
HANDLERS = all_handlers()
SHAPES = [(key, shape) for key, handler in HANDLERS.items() for shape in handler.shapes]
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class FakeConnection:
    principal = ALICE
    peer_host = "10.0.0.1"

    def __init__(self, authorizer: Authorizer) -> None:
        self.access = Access(authorizer, ALICE, self.peer_host, lambda event: None)
        self.close_reason: str | None = None

    def close(self, reason: str) -> None:
        self.close_reason = reason


def call_of(key: ApiKey, version: int, *topics: str) -> tuple[Authorizer, Call]:
    """A call by alice, who may describe and write these topics."""
    authorizer = Authorizer()
    authorizer.add(
        AclBinding(ResourcePattern(ResourceType.TOPIC, name), str(ALICE), "*", operation, AclPermissionType.ALLOW)
        for name in topics
        for operation in (AclOperation.DESCRIBE, AclOperation.WRITE, AclOperation.ALTER)
    )
    connection: Any = FakeConnection(authorizer)
    return authorizer, Call(connection, key, version, 1, None)


def fields_of(struct: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {snake_case(field["name"]): field for field in struct["fields"]}


def check_shape(shape: Shape, request: dict[str, Any], answer: dict[str, Any], request_of: Any, answer_of: Any) -> None:
    asked, answered = fields_of(request)[shape.entries], fields_of(answer)[shape.answers]
    assert asked["type"].startswith("[]")
    assert answered["type"].startswith("[]")
    if shape.keys:
        assert {*shape.keys} <= fields_of(request_of(asked)).keys()
    elif shape.keys == ():
        assert "fields" not in asked
    if shape.answer is not None:
        slots = {snake_case(field["name"]) for field in answer_of(answered)["fields"]}
        assert slots == {*shape.answer.__slots__}
        assert {*shape.answer_keys, *shape.on_error} <= slots
    if shape.inner is not None:
        check_shape(shape.inner, request_of(asked), answer_of(answered), request_of, answer_of)


@pytest.mark.parametrize(("key", "shape"), SHAPES, ids=lambda value: getattr(value, "camel_name", ""))
def test_a_shape_names_fields_that_the_request_and_its_answer_have(key: ApiKey, shape: Shape) -> None:
    request, answer = schema_of(request_class(key).__name__), schema_of(response_class(key).__name__)

    def struct_of(schema: dict[str, Any]) -> Any:
        return lambda field: (
            field if "fields" in field else {"fields": schema["structs"][field["type"].removeprefix("[]")]}
        )

    check_shape(shape, request, answer, struct_of(request), struct_of(answer))


@pytest.mark.parametrize("key", HANDLERS, ids=lambda key: key.camel_name)
def test_what_each_entry_needs_can_be_answered_for(key: ApiKey) -> None:
    handler = HANDLERS[key]
    if any(isinstance(need, Each) for need in handler.needs or ()):
        assert handler.shapes
        assert all(shape.answer is not None for shape in handler.shapes)


def offsets_request(*names: str) -> ListOffsetsRequest:
    topic = ListOffsetsRequest.ListOffsetsTopic
    partitions = [topic.ListOffsetsPartition(partition_index=index) for index in (0, 1)]
    return ListOffsetsRequest(topics=[topic(name=name, partitions=partitions) for name in names])


def answering(seen: list[list[str]], later: Promise[None] | None = None) -> Any:
    """A handler's function that answers every topic it is asked about, at once or later."""

    def function(node: Any, call: Call, request: ListOffsetsRequest) -> Any:
        seen.append([topic.name for topic in request.topics])
        topic_answer = ListOffsetsResponse.ListOffsetsTopicResponse
        response = ListOffsetsResponse(topics=[topic_answer(name=topic.name) for topic in request.topics])
        if later is None:
            return response
        answer: Promise[Any] = Promise()
        later.then(lambda _: answer.resolve(response))
        return answer

    return function


def list_offsets(function: Any, *names: str, allowed: tuple[str, ...], **changes: Any) -> Any:
    authorizer, call = call_of(ApiKey.LIST_OFFSETS, 7, *allowed)
    handler = HANDLERS[ApiKey.LIST_OFFSETS]._replace(function=function, **changes)
    return with_rights({ApiKey.LIST_OFFSETS: handler}, authorizer)[ApiKey.LIST_OFFSETS].function(
        None, call, offsets_request(*names)
    )


def test_refusals_come_behind_what_the_handler_answers() -> None:
    seen: list[list[str]] = []
    response = list_offsets(answering(seen), "a", "secret", "b", allowed=("a", "b"))
    assert seen == [["a", "b"]]
    assert [topic.name for topic in response.topics] == ["a", "b", "secret"]
    errors = [(one.partition_index, one.error_code, one.offset) for one in response.topics[-1].partitions]
    assert errors == [(0, REFUSED, -1), (1, REFUSED, -1)]


def test_an_answer_that_comes_later_is_completed_when_it_comes() -> None:
    later: Promise[None] = Promise()
    answer = list_offsets(answering([], later), "a", "secret", allowed=("a",))
    assert not answer.done
    later.resolve(None)
    assert [topic.name for topic in answer.value.topics] == ["a", "secret"]


def test_a_handler_is_not_asked_about_nothing() -> None:
    seen: list[list[str]] = []
    response = list_offsets(answering(seen), "secret", allowed=())
    assert not seen
    assert [topic.name for topic in response.topics] == ["secret"]


@pytest.mark.parametrize(
    ("repeated", "asked", "answered"),
    [
        (Repeated.ANSWERED_EACH, ["a"], ["a", "x", "x", "y"]),
        (Repeated.ANSWERED_ONCE, ["a"], ["a", "x", "y"]),
        (Repeated.LEFT_TO_HANDLER, ["a", "x", "x"], ["a", "x", "x", "y"]),
    ],
)
def test_entries_that_are_named_twice(repeated: Repeated, asked: list[str], answered: list[str]) -> None:
    seen: list[list[str]] = []
    needs = (each(AclOperation.DESCRIBE, ResourceType.TOPIC, "name", repeated=repeated),)
    response = list_offsets(answering(seen), "x", "a", "x", "y", allowed=("a",), needs=needs)
    assert seen == [asked]
    assert [topic.name for topic in response.topics] == answered


def test_a_client_that_waits_for_no_answer_loses_its_connection() -> None:
    seen: list[list[str]] = []
    authorizer, call = call_of(ApiKey.LIST_OFFSETS, 7, "a")
    handler = HANDLERS[ApiKey.LIST_OFFSETS]._replace(function=answering(seen), is_answered=lambda request: False)
    served = with_rights({ApiKey.LIST_OFFSETS: handler}, authorizer)[ApiKey.LIST_OFFSETS]
    assert served.function(None, call, offsets_request("a", "secret")) is None
    assert seen == [["a"]]
    connection: Any = call.connection
    assert connection.close_reason is not None


def test_a_handler_without_needs_is_left_as_it_is() -> None:
    handler = Handler(answering([]), needs=())
    assert with_rights({ApiKey.API_VERSIONS: handler}, Authorizer())[ApiKey.API_VERSIONS] is handler
