"""What all views share: the cluster, the model, the survey, and what is allowed."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from fencepost.dashboard.cluster_watch import Watch, wall_ms
from fencepost.dashboard.id_follower import IdFollower
from fencepost.dashboard.partition_survey import Survey
from fencepost.insight.causes import causes_of
from fencepost.insight.cluster_view import ClusterView
from fencepost.insight.explanation import client_of

NAMES_MAX = 20_000
NAME_BYTES_MAX = 32_767
"""Maximum length of a string in Kafka's protocol."""
STUCK_AFTER_MS = 10_000
"""How long a transaction may hold up readers without being reported."""


class BadParameter(Exception):
    """An invalid parameter of a request; the text says what is valid."""


class NotThere(Exception):
    """The requested object does not exist."""


def check_name(text: str, what: str) -> None:
    """Raises BadParameter for impossible names: a broker would close the connection, which others use as well."""
    if len(text.encode("utf-8", "replace")) > NAME_BYTES_MAX:
        raise BadParameter(f"{what} is longer than any name can be ({NAME_BYTES_MAX} bytes)")


@dataclasses.dataclass(frozen=True, slots=True)
class Parameters:
    """The query parameters of a request, with the parameters of its path."""

    given: Mapping[str, str]

    def text(self, *names: str) -> str:
        return next((self.given[name] for name in names if name in self.given), "")

    def needed(self, *names: str) -> str:
        found = self.text(*names)
        if not found:
            raise BadParameter(f"{names[0]} is missing")
        check_name(found, names[0])
        return found

    def number(self, name: str, default: int, least: int = 0, most: int = 2**63 - 1) -> int:
        found = self.given.get(name, "")
        if not found:
            return default
        if not found.isascii() or not found.isdigit():
            raise BadParameter(f"{name}={found} is not a number")
        return min(max(int(found), least), most)

    def optional_number(self, name: str) -> int | None:
        return self.number(name, 0) if self.given.get(name) else None

    def one_of(self, name: str, choices: Iterable[str], default: str) -> str:
        found, known = self.given.get(name) or default, list(choices)
        if found not in known:
            raise BadParameter(f"{name}={found} is not one of {', '.join(known)}")
        return found

    def flag(self, name: str) -> bool:
        return self.given.get(name, "") in ("1", "true", "yes")


class Page:
    def __init__(
        self,
        view: ClusterView,
        *,
        are_actions_allowed: bool = False,
        stuck_after_ms: int = STUCK_AFTER_MS,
        now_ms: Callable[[], int] = wall_ms,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`say` gets a message when the cluster stops answering, and when it answers again."""
        self.view = view
        self.are_actions_allowed = are_actions_allowed
        self.stuck_after_ms = stuck_after_ms
        self.now_ms = now_ms
        self.watch = Watch(view, now_ms, say)
        self.survey = Survey(view, now_ms)
        self.followers: dict[str, IdFollower] = {}
        self._client_of_epoch: tuple[tuple[str, int], str | None] | None = None
        self._is_fencepost: tuple[str, bool] | None = None
        self._names: dict[int, str | None] = {}

    async def is_fencepost(self) -> bool:
        """Whether the cluster records causes; queried once per cluster."""
        cluster_id = self.view.cluster.cluster_id
        if self._is_fencepost is None or self._is_fencepost[0] != cluster_id:
            self._is_fencepost = (cluster_id, await causes_of(self.view, "") is not None)
        return self._is_fencepost[1]

    async def client_of_epoch(self, transactional_id: str, producer_epoch: int) -> str | None:
        """The client that has an epoch. The last answer is cached: the overview asks for the same one every second."""
        key = (transactional_id, producer_epoch)
        if self._client_of_epoch is None or self._client_of_epoch[0] != key:
            causes = await causes_of(self.view, transactional_id)
            self._client_of_epoch = (key, client_of(causes, producer_epoch))
        return self._client_of_epoch[1]

    async def names_of(self, producer_ids: Iterable[int]) -> dict[int, str | None]:
        """The transactional ids of producers: from the model, otherwise queried once."""
        wanted = {each for each in producer_ids if each >= 0}
        model = self.watch.model
        unknown = {each for each in wanted if each not in model.producers and each not in self._names}
        if unknown:
            if len(self._names) > NAMES_MAX:
                self._names.clear()
            listed = await self.view.names_of(unknown)
            for each in unknown:
                self._names[each] = listed[each].transactional_id if each in listed else None
        return {each: model.producers.get(each) or self._names.get(each) for each in wanted}
