"""Answers that Produce packs itself are those that the codec would have written."""

import pytest

from fencepost.broker.handlers.produce import ACCEPTED, PartitionResponse, TopicResponse
from fencepost.wire.catalog import API_VERSIONS, ApiKey
from fencepost.wire.codec import encode
from fencepost.wire.messages import ProduceResponse

LOWEST, HIGHEST = API_VERSIONS[ApiKey.PRODUCE]


@pytest.mark.parametrize("version", range(LOWEST, HIGHEST + 1))
def test_an_accepted_batch_is_answered_as_the_codec_would(version: int) -> None:
    pack, rest = ACCEPTED[version]
    packed = pack(7, 0, 2**40 + 1, -1, 3, rest)
    message = PartitionResponse(index=7, base_offset=2**40 + 1, log_append_time_ms=-1, log_start_offset=3)
    answers = [
        ProduceResponse(responses=[TopicResponse(name="t", partition_responses=[one, message])])
        for one in (packed, message)
    ]
    assert encode(answers[0], version) == encode(answers[1], version)
