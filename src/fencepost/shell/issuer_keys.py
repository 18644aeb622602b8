"""The public keys of the issuer of tokens, fetched from a URL that is allowed, and again from time to time.

Only URLs in `org.apache.kafka.sasl.oauthbearer.allowed.urls` are ever asked (CVE-2025-27817), and redirects are not
followed. Keys that cannot be fetched leave those of last time in force.
"""

import asyncio
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fencepost.broker.security.listener_security import ListenerSecurity
from fencepost.settings import InvalidSetting

if TYPE_CHECKING:
    from fencepost.broker.security.signed_tokens import Key

URL = "sasl.oauthbearer.jwks.endpoint.url"
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
FETCH_TIMEOUT_SECONDS = 10
KEY_SET_BYTES_MAX = 1_048_576
# A token whose key is not known may be the first after a change of keys, or somebody's nonsense.
UNKNOWN_KEY_INTERVAL_SECONDS = 10.0


class IssuerKeys:
    what = "keys of the issuer of tokens"

    def __init__(self, security: ListenerSecurity, loop: asyncio.AbstractEventLoop) -> None:
        """Raises InvalidSetting."""
        config = security.config
        self.listener = config.name
        self._url = allowed_url(config.get(URL, "OAUTHBEARER"), config.get(ALLOWED_URLS))
        self._interval_seconds = config.get("sasl.oauthbearer.jwks.endpoint.refresh.ms", "OAUTHBEARER") / 1000
        self._key_set = security.key_set
        self._key_set.when_key_is_unknown(self._wanted_early)
        self._loop = loop
        self._fetch_at = 0.0
        self._last_fetch = float("-inf")
        self._content = b""

    @property
    def is_due(self) -> bool:
        return self._loop.time() >= self._fetch_at

    def _wanted_early(self) -> None:
        self._fetch_at = min(self._fetch_at, self._last_fetch + UNKNOWN_KEY_INTERVAL_SECONDS)

    async def refresh(self) -> bool:
        """Whether there are other keys than before. Raises InvalidSetting; then those of before still count."""
        self._last_fetch = self._loop.time()
        self._fetch_at = self._last_fetch + UNKNOWN_KEY_INTERVAL_SECONDS
        content, keys = await asyncio.to_thread(fetch_keys, self._url)
        self._fetch_at = self._last_fetch + self._interval_seconds
        if content == self._content:
            return False
        self._content = content
        self._key_set.replace(keys)
        return True


def allowed_url(url: str, allowed: tuple[str, ...]) -> str:
    if url not in allowed:
        raise InvalidSetting(
            f"{URL}={url} is not allowed: the URLs that keys may come from must be listed in {ALLOWED_URLS}"
        )
    scheme = urllib.parse.urlsplit(url).scheme
    if scheme not in ("https", "http", "file"):
        raise InvalidSetting(f"{URL}={url}: only https, http and file URLs can be fetched")
    return url


def fetch_keys(url: str) -> "tuple[bytes, list[Key]]":
    # Needs packages of the extra `security`; a listener that takes signed tokens has made sure that they are there.
    from fencepost.broker.security.signed_tokens import KeysUnusable, read_key_set

    try:
        content = _fetch(url)
        return content, read_key_set(content)
    except (OSError, KeysUnusable, ValueError) as error:
        raise InvalidSetting(f"cannot get the keys of the issuer of tokens from {url}: {error}") from None


def _fetch(url: str) -> bytes:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        path = Path(urllib.request.url2pathname(parts.path))
        if path.stat().st_size > KEY_SET_BYTES_MAX:
            raise ValueError("it is too large")
        return path.read_bytes()
    opener = urllib.request.build_opener(_NoRedirects, urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=FETCH_TIMEOUT_SECONDS) as answer:
        content: bytes = answer.read(KEY_SET_BYTES_MAX + 1)
    if len(content) > KEY_SET_BYTES_MAX:
        raise ValueError("it is too large")
    return content


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None
