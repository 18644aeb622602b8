"""What a recording may hold, and frames that cannot be read."""

import json

from fencepost.tap.frames import HIDDEN, newest_version, plain, read_answer, read_request
from fencepost.wire.catalog import ApiKey
from fencepost.wire.framing import request_frame, response_frame
from fencepost.wire.messages import (
    ApiVersionsResponse,
    IncrementalAlterConfigsRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
)


def frame_of(api_key: ApiKey, version: int, message: object) -> memoryview:
    return memoryview(b"".join(request_frame(api_key, version, 7, "client", message)))[4:]


def recorded(api: str, message: object) -> str:
    return json.dumps(plain(api, message, with_contents=True, topic_name=lambda _: None))


def test_a_password_is_never_recorded() -> None:
    sent = SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret")
    header, message = read_request(frame_of(ApiKey.SASL_AUTHENTICATE, 2, sent))
    assert (header.client_id, message) == ("client", sent)
    text = recorded("SaslAuthenticate", message)
    assert "secret" not in text
    assert HIDDEN in text


def test_the_value_of_a_setting_is_never_recorded() -> None:
    request = IncrementalAlterConfigsRequest
    config = request.AlterConfigsResource.AlterableConfig(name="ssl.key.password", value="hunter2")
    text = recorded("IncrementalAlterConfigs", request(resources=[request.AlterConfigsResource(configs=[config])]))
    assert "hunter2" not in text
    assert "ssl.key.password" in text


def test_an_api_or_version_that_is_not_known_is_passed_on() -> None:
    unknown = memoryview(b"\x03\xe8\x00\x05\x00\x00\x00\x07\xff\xff" + b"?" * 10)
    header, message = read_request(unknown)
    assert (header.api_key, header.api_version, header.correlation_id, message) == (1000, 5, 7, None)
    assert read_answer(1000, 5, unknown) is None
    newest = newest_version(ApiKey.METADATA)
    assert newest is not None
    assert read_answer(ApiKey.METADATA, newest + 1, unknown) is None


def test_bytes_behind_a_request_are_no_reason_not_to_read_it() -> None:
    sent = MetadataRequest(topics=None)
    frame = bytes(frame_of(ApiKey.METADATA, 12, sent)) + b"\0\0\0"
    assert read_request(memoryview(frame))[1] == sent


def test_bytes_that_do_not_fit_their_schema_are_passed_on() -> None:
    good = bytes(frame_of(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"x")))
    header, message = read_request(memoryview(good[:-3]))
    assert header.api_key == ApiKey.SASL_AUTHENTICATE
    assert message is None


def test_a_broker_may_answer_api_versions_in_version_0() -> None:
    answer = ApiVersionsResponse(error_code=35)
    frame = memoryview(b"".join(response_frame(ApiKey.API_VERSIONS, 0, 7, answer)))[4:]
    assert read_answer(ApiKey.API_VERSIONS, 4, frame) == (answer, 0)
