"""ApiVersions (0-4): the APIs and versions that this broker speaks. Open to everybody.

From v3 on the client names its software, and the answer has the supported and finalized features. A request in an
unknown version is answered by the dispatcher.
"""

from typing import TYPE_CHECKING

from fencepost.broker.cluster_metadata import SUPPORTED_FEATURES
from fencepost.broker.connection import Call
from fencepost.broker.handler import Handler
from fencepost.broker.rights import OPEN
from fencepost.wire.catalog import ADVERTISED_MINIMUM, ApiKey
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from fencepost.broker.node import Node

_SOFTWARE_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.")


def _advertised(node: "Node") -> list[ApiVersionsResponse.ApiVersion]:
    return [
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=ADVERTISED_MINIMUM.get(key, low), max_version=high)
        for key, (low, high) in node.api_versions.items()
    ]


def _is_valid_software(text: str) -> bool:
    return bool(text) and set(text) <= _SOFTWARE_CHARACTERS and text[0] not in "-." and text[-1] not in "-."


def api_versions(node: "Node", call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if call.version >= 3:
        if not (
            _is_valid_software(request.client_software_name) and _is_valid_software(request.client_software_version)
        ):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        call.connection.name_software(f"{request.client_software_name} {request.client_software_version}")
    metadata = node.metadata
    return ApiVersionsResponse(
        api_keys=_advertised(node),
        # Before v4 clients reject a feature whose lowest level is 0.
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
            if low > 0 or call.version >= 4
        ],
        finalized_features_epoch=metadata.features_epoch,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in metadata.features.items()
            if level > 0
        ],
    )


HANDLERS = {ApiKey.API_VERSIONS: Handler(api_versions, needs=OPEN)}
