"""Where OAUTHBEARER tokens come from: a fixed one, one of an OIDC token endpoint, or an unsigned one for tests.

Each is a callable value that can be pickled, so that writers in other processes can authenticate too.
"""

import asyncio
import base64
import dataclasses
import json
import time
import urllib.parse
import urllib.request

TOKEN_TIMEOUT_SECONDS = 10
UNSECURED_LIFETIME_SECONDS = 3600


@dataclasses.dataclass(frozen=True, slots=True)
class StaticToken:
    token: str = dataclasses.field(repr=False)

    def __call__(self) -> str:
        return self.token


@dataclasses.dataclass(frozen=True, slots=True)
class UnsecuredToken:
    """An unsigned JWT, as Kafka accepts it where no keys are configured: for development only."""

    subject: str

    def __call__(self) -> str:
        # Whole seconds: a fraction of a millisecond ahead of the broker's clock is "issued in the future".
        now = int(time.time())
        claims = {"sub": self.subject, "iat": now, "exp": now + UNSECURED_LIFETIME_SECONDS}
        return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


@dataclasses.dataclass(frozen=True, slots=True)
class ClientCredentials:
    """The client credentials grant of OAuth 2.0."""

    url: str
    client_id: str
    client_secret: str = dataclasses.field(repr=False)
    scope: str = ""

    async def __call__(self) -> str:
        return await asyncio.to_thread(self._ask)

    def _ask(self) -> str:
        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        basic = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        request = urllib.request.Request(
            self.url,
            urllib.parse.urlencode(form).encode(),
            {"Authorization": f"Basic {basic}", "Accept": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=TOKEN_TIMEOUT_SECONDS) as answer:
            token: str = json.load(answer)["access_token"]
        return token


def _encoded(part: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
