"""Keeps the model up to date: follows __transaction_state, or, if that is hidden, lists transactions at longer
intervals.

One task for the whole page. It survives failures of the cluster: it reports them and continues where it was.
"""

import asyncio
import time
from collections.abc import Callable, Iterable

from fencepost.client.errors import ClientError
from fencepost.dashboard.transaction_model import IdRow, TransactionModel
from fencepost.insight.cluster_view import ClusterView
from fencepost.insight.state_tail import StateTail, TransactionStateHidden

LOOKED_AT_SECONDS = 1.0
UNATTENDED_SECONDS = 2.0
POLLING_SECONDS = 5.0
LISTING_SECONDS = 60.0
ABSENT_SECONDS = 5.0
"""Seconds between checks for a __transaction_state that does not exist yet."""
DESCRIBED_MAX = 100
"""Maximum number of ids to describe at a time."""


def wall_ms() -> int:
    return round(time.time() * 1000)


class Watch:
    def __init__(
        self,
        view: ClusterView,
        now_ms: Callable[[], int] = wall_ms,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`say` gets a message when a failure begins and when it ends."""
        self.view = view
        self.now_ms = now_ms
        self.model = TransactionModel()
        self.source = "log"
        self.skipped_offsets = 0
        self.as_of_ms = 0
        """Everything up to here has been processed."""
        self.trouble: ClientError | None = None
        self.trouble_since_ms: int | None = None
        self._say = say
        self._lookers = 0
        self._has_looked = asyncio.Event()
        self._tail = StateTail(view)
        self._cluster_id = ""
        self._listed_at = self._tried_at = float("-inf")
        self._was_absent = False

    @property
    def note(self) -> str | None:
        if self.source == "polling":
            return (
                "this cluster does not show __transaction_state: ids are listed every"
                f" {POLLING_SECONDS:.0f} s, and rates and latencies are unknown"
            )
        if self.skipped_offsets:
            return f"{self.skipped_offsets} changes arrived too fast and were skipped; the rates are too low"
        return None

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await self.look()
            if self.source == "polling":
                pause = POLLING_SECONDS
            else:
                pause = LOOKED_AT_SECONDS if self._lookers else UNATTENDED_SECONDS
            await asyncio.sleep(pause)

    def looked_at(self, by: int) -> None:
        """Changes the number of viewers of the page."""
        self._lookers += by

    async def ready(self) -> None:
        """Waits for the first update. Raises the error of the latest one if it failed."""
        await self._has_looked.wait()
        if self.trouble is not None:
            raise self.trouble

    async def look(self) -> None:
        try:
            await self.view.start()
            await self._look()
        except ClientError as error:
            self.trouble = error
            if self.trouble_since_ms is None:
                self.trouble_since_ms = self.now_ms()
                self._say(f"{error}; trying again")
        else:
            if self.trouble is not None:
                self._say("the cluster answers again")
            self.trouble = self.trouble_since_ms = None
        finally:
            self._has_looked.set()

    async def _look(self) -> None:
        if self.trouble is not None or not self._cluster_id:
            await self._meet()
        began_ms = self.now_ms()
        try:
            if self._tail.has_begun or await self._begin():
                await self._follow()
        except TransactionStateHidden:
            self._tail, self.source = StateTail(self.view), "polling"
        now = time.monotonic()
        is_due = now - self._listed_at >= (POLLING_SECONDS - 1 if self.source == "polling" else LISTING_SECONDS)
        if is_due:
            await self._list()
            self._listed_at = now
        self.as_of_ms = began_ms

    async def _meet(self) -> None:
        """Detects that another cluster than before answers at this address."""
        found = (await self.view.describe_cluster()).cluster_id
        if found != self._cluster_id:
            self.model, self._tail = TransactionModel(), StateTail(self.view)
            self._cluster_id, self.skipped_offsets = found, 0
            self._listed_at = self._tried_at = float("-inf")
            self._was_absent = False

    async def _begin(self) -> bool:
        now = time.monotonic()
        if now - self._tried_at < ABSENT_SECONDS:
            return False
        self._tried_at = now
        is_there = await self._tail.begin(is_new=self._was_absent)
        self._was_absent = not is_there
        if is_there:
            self.source, self._listed_at = "log", float("-inf")
        elif self.model.rows:
            raise TransactionStateHidden
        return is_there

    async def _follow(self) -> None:
        followed = await self._tail.read()
        if followed.is_other_log:
            self.model.forget_offsets()
        self.skipped_offsets += followed.skipped_offsets
        if followed.skipped_offsets:
            self._listed_at = float("-inf")
        now_ms = self.now_ms()
        for change, is_live in followed.changes:
            self.model.apply(change, now_ms, is_live=is_live)

    async def _list(self) -> None:
        since = self.model.mark()
        self.model.apply_listing(await self.view.list_transactions(), since)
        await self.fill_in(row for row in self.model.open_rows() if row.start_ms is None)

    async def fill_in(self, rows: Iterable[IdRow]) -> None:
        """Adds what only DescribeTransactions tells about some ids."""
        wanted = [row.transactional_id for row in rows][:DESCRIBED_MAX]
        for description in await asyncio.gather(*map(self.view.describe_transaction_if_known, wanted)):
            if description is not None:
                self.model.apply_description(description)
