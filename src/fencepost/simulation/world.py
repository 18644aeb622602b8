"""A whole world for one seed: a broker on its machine, clients, a network, and their faults.

The broker is the production code; only its ports are simulated. Everything happens in one thread, in virtual time, in
an order determined by the seed alone. The machine may crash at any step of the schedule and at any call of its disk.
"""

import errno
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from fencepost.broker.events import HandlerFailed, PartitionCompacted, SegmentsDeleted, StorageFailed
from fencepost.broker.node import Node
from fencepost.history import check, read_events
from fencepost.log.partition_log import PartitionLog
from fencepost.log.side_files import CLEAN_SHUTDOWN
from fencepost.ports import FULL_DISK
from fencepost.simulation.administered_clients import FinalSurvey
from fencepost.simulation.administered_topics import PLANS, AdministeredTopics
from fencepost.simulation.administrators import Builder, TopicStrike
from fencepost.simulation.client_journal import ClientJournal
from fencepost.simulation.clients import ClientProcess
from fencepost.simulation.clock import VirtualClock
from fencepost.simulation.consumers import FinalReader
from fencepost.simulation.copy_check import check_copies
from fencepost.simulation.disk import PowerCut
from fencepost.simulation.faults import HOLD_MAX_MS, Fault, schedule
from fencepost.simulation.flusher import SYNC_MS
from fencepost.simulation.fragile_disk import FragileDisk, MachineDied
from fencepost.simulation.invariants import InvariantBroken, Invariants
from fencepost.simulation.network import Network
from fencepost.simulation.node import DATA_DIRECTORY, SimulatedNode
from fencepost.simulation.population import PARTITIONS, TRANSACTION_TIMEOUT_MS, Founder, everybody, twin_of
from fencepost.simulation.scheduler import SimulatedScheduler
from fencepost.simulation.thinning_check import check_thinning
from fencepost.simulation.trace import Trace
from fencepost.simulation.transactional_producers import Duty, TransactionalProducer
from fencepost.wire.catalog import ApiKey

SWEEP_MS = 1_000
# Small segments and frequent checkpoints: rolling, compaction and recovery points are under test, too.
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.segment.bytes": "6000",
    "transaction.state.log.segment.bytes": "6000",
    "log.segment.bytes": "5000",
    "log.index.interval.bytes": "400",
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "log.cleaner.backoff.ms": "1500",
    "log.retention.check.interval.ms": "2500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(SWEEP_MS),
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
}
ACCESS_RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
PAGE_CACHE_EVERY, ACCESS_RULES_EVERY = 5, 3
"""In one of so many worlds the broker leaves syncs to the page cache; in one of so many access is by rules."""
RESCAN_EVERY_MS = 15_000
# A request that is held up may open a transaction after the last fault, and that has its timeout, too.
REST_MS = HOLD_MAX_MS + TRANSACTION_TIMEOUT_MS + 4 * SWEEP_MS
FINAL_READ_MS = 60_000


class _Trap(NamedTuple):
    """How the machine dies after the next request of a kind."""

    moment: ApiKey
    kind: Fault
    cut: PowerCut | None
    disk_calls: int | None
    steps: int | None


QUIET_AFTER_MAX_MS = 3


class _Machine(SimulatedNode):
    on_boot: Callable[[Node], None]

    def watch(self, node: Node) -> None:
        self.on_boot(node)


class World:
    SYNC_MS = SYNC_MS
    DELAY_MAX_MS = 2

    def __init__(
        self,
        seed: int,
        seconds: int,
        kinds: frozenset[Fault],
        carry_out: "Callable[[World, Fault], bool]",
        *,
        keeps_lines: bool = False,
    ) -> None:
        """`carry_out` carries out or arms a fault, and returns whether it has already happened."""
        self.seed = seed
        self.duration_ms = seconds * 1000
        self.is_group_commit = seed % PAGE_CACHE_EVERY != PAGE_CACHE_EVERY - 1
        self.has_access_rules = seed % ACCESS_RULES_EVERY == 1
        self.kinds = kinds
        self._carry_out = carry_out
        self.source = random.Random(f"{seed}/world")
        self.disk = FragileDisk()
        quiet_after_ms = random.Random(f"{seed}/quiet").randrange(QUIET_AFTER_MAX_MS + 1)
        self.scheduler = SimulatedScheduler(VirtualClock(), quiet_after_ms)
        self.trace = Trace(self.scheduler.clock, keeps_lines=keeps_lines)
        settings = {
            **SETTINGS,
            **({} if self.is_group_commit else {"flush": "os"}),
            **(ACCESS_RULES if self.has_access_rules else {}),
        }
        self.machine = _Machine(settings, seed=seed, disk=self.disk, scheduler=self.scheduler)
        self.machine.on_boot = self._booting
        self.network = Network(self.machine, random.Random(f"{seed}/network"), self.trace)
        self.network.watch_requests(self._request_arrives)
        self.surroundings = (self.scheduler, self.network, seed)
        self.journal = ClientJournal(self.scheduler.clock)
        self.topics = AdministeredTopics()
        self.invariants = Invariants(self.disk, is_group_commit=self.is_group_commit)
        self.hits: Counter[Fault] = Counter()
        self.clients: list[ClientProcess] = []
        self.twins: list[ClientProcess] = []
        """Processes that come for a while: twins, and administrators with one thing to do."""
        self.steps = 0
        self.restarts = -1
        self.is_serving = False
        """The broker runs, and nothing is known to be wrong with its disk."""
        self._armed: list[_Trap] = []
        self._death: tuple[Fault, PowerCut | None] | None = None
        self._die_at_step: int | None = None
        self._boot_planned = False
        self._is_healed = False
        self._names = 0
        self._runs_checked = -1
        self._put_back: list[Callable[[], None]] = []
        """Undo what took files away."""

    # The course of events

    def run(self) -> list[str]:
        """Runs the world. Returns the findings."""
        try:
            self._set_up()
            start_ms = self._now_ms()
            for at_ms, kind in schedule(random.Random(f"{self.seed}/faults"), self.duration_ms, self.kinds):
                self.later(at_ms, lambda kind=kind: self._do(kind))  # type: ignore[misc]
            for at_ms in range(RESCAN_EVERY_MS, self.duration_ms, RESCAN_EVERY_MS):
                self.later(at_ms, self.invariants.rescan)
            self._live(start_ms + self.duration_ms)
            return self._settle()
        except InvariantBroken as broken:
            return [f"invariant: {broken}", *self.journal.findings]

    def _settle(self) -> list[str]:
        """After the last fault: everything comes to rest, and the final state is checked."""
        self._heal()
        for client in (*self.clients, *self.twins):
            client.supervise(lambda client: None)
            client.kill()
        self._live(self._now_ms() + REST_MS)
        self.invariants.check_rest()
        self.invariants.rescan()
        groups = [(duty.group, duty.source) for duty in self._duties()]
        final = FinalReader(
            "final", *self.surroundings, partitions=list(PARTITIONS), groups=groups, journal=self.journal
        )
        final.start()
        end_ms = self._now_ms() + FINAL_READ_MS
        while not final.is_ended and self._step(end_ms):
            pass
        survey = FinalSurvey("survey", *self.surroundings, topics=self.topics, journal=self.journal)
        survey.start()
        while not survey.is_ended and self._step(end_ms):
            pass
        self.clients += [final, survey]
        self.trace.note(f"end {sorted(final.positions.items())} {sorted(survey.starts.items())}")
        return [*self.journal.findings, *self._judge(final, survey)]

    def _judge(self, final: FinalReader, survey: FinalSurvey) -> Iterator[str]:
        if not final.is_done or not survey.is_done:
            yield "unavailable: the final reading did not come to its end"
            return
        yield from (f"final-read: {problem}" for problem in (*final.problems, *survey.problems))
        history = read_events(self.journal.events)
        report = check(history)
        yield from (f"{finding.anomaly}: {finding.message}" for finding in report.findings)
        yield from check_copies(self._duties(), final)
        yield from check_thinning(self.topics, survey, history)
        yield from self._check_settings()

    def _check_settings(self) -> Iterator[str]:
        """What was set and acknowledged is still set."""
        for topic in self.machine.node.metadata.topics.values():
            plan = PLANS.get(topic.name)
            if plan is not None and plan.may_go:
                continue
            for name, value in self.topics.settings.get(topic.name, {}).items():
                if topic.overrides.get(name) != value:
                    yield f"setting-lost: {name} of {topic.name} was set to {value} and is {topic.overrides.get(name)}"

    def _duties(self) -> list[Duty]:
        """Of all copiers, each once."""
        copiers = [client for client in self.clients if isinstance(client, TransactionalProducer)]
        return list(dict.fromkeys(duty for copier in copiers for duty in copier.duties))

    def _live(self, end_ms: int) -> None:
        while self._step(end_ms):
            pass
        if self._now_ms() < end_ms:
            self.scheduler.clock.advance_to(end_ms)

    def _step(self, end_ms: int) -> bool:
        self.steps += 1
        self.disk.set_time(self.scheduler.clock.wall_ms())
        try:
            if self._die_at_step is not None:
                self._die_at_step -= 1
                if self._die_at_step < 0 and self.machine.process is not None:
                    raise MachineDied
            happened = self.scheduler.step(end_ms)
        except MachineDied:
            kind, cut = self._death or (Fault.CRASH, None)
            self.hits[kind] += 1
            self.die(kind.value, cut)
            return True
        process = self.machine.process
        if process is not None and process.runs != self._runs_checked:
            # What clients do among themselves changes nothing in the broker.
            self._runs_checked = process.runs
            self.invariants.check_step()
        return happened

    def _now_ms(self) -> int:
        return self.scheduler.clock.monotonic_ms()

    def later(self, delay_ms: int, act: Callable[[], None]) -> None:
        self.scheduler.call_later(delay_ms, act)

    # Life and death of the broker

    def _boot(self) -> None:
        self._boot_planned = False
        if self.machine.process is not None:
            return
        self.trace.note("boot")
        failures = self.disk.failures
        try:
            self.machine.boot()
        except OSError as error:
            # Full, or failing as planned: an operator sees to the disk and tries again.
            if error.errno not in FULL_DISK and error.errno != errno.EIO:
                raise
            self.die(f"start failed: {error.strerror}", None)
            return
        except Exception as error:
            # Refused, because something is missing that the whole broker needs.
            if not self.invariants.excused:
                raise
            self.die(f"start refused: {error}", None)
            return
        self.restarts += 1
        if self.disk.failures > failures and len(self.good_logs()) < len(list(self.machine.node.all_partitions())):
            # The same, where it met the files of one log.
            self.die("a log failed at the start", None)
            return
        self.invariants.started(self.machine.node)
        self.is_serving = True

    def _booting(self, node: Node) -> None:
        node.events.subscribe(self._on_event)

    def die(self, reason: str, cut: PowerCut | None) -> None:
        """Ends the process, and with a power failure loses unsynced data. The process is restarted later.

        Where syncs are left to the page cache, a power cut may take what was acknowledged: there only processes die."""
        if not self.is_group_commit:
            cut = None
        self.trace.note(f"dies: {reason} {cut}")
        self.invariants.stopped()
        if cut is None:
            self.machine.crash()
        else:
            self.machine.cut_power(cut)
        self._gone()

    def lose_power(self, cut: PowerCut) -> None:
        if self.machine.process is not None and not self._is_healed:
            self.die("power", cut)

    def _gone(self) -> None:
        self.is_serving = False
        self._die_at_step = self._death = None
        self.disk.live_on()
        self._armed.clear()
        self.network.broker_died()
        if not self._boot_planned:
            self._boot_planned = True
            self.later(20 if self._is_healed else self.source.choice((20, 200, 1_200)), self._boot)

    def stop_soon(self, then: Callable[[], None] = lambda: None) -> None:
        """A clean stop, as soon as no sync is under way; `then` something happens to the files."""
        process = self.machine.process
        if process is None or process.is_paused or not self.is_serving:
            return
        if self.machine.flusher.running:
            self.later(1, lambda: self.stop_soon(then))
            return
        self.trace.note("stops")
        self.invariants.stopped()
        self.machine.stop_now()
        self.hits[Fault.CLEAN_STOP] += 1
        then()
        self._gone()

    def arm(
        self,
        moment: ApiKey,
        kind: Fault,
        cut: PowerCut | None,
        *,
        disk_calls: int | None = None,
        steps: int | None = None,
    ) -> None:
        """Have the machine die so long after the next such request has arrived."""
        self._armed.append(_Trap(moment, kind, cut, disk_calls, steps))

    def _request_arrives(self, api: ApiKey) -> None:
        if not self._armed or self._death is not None:
            return
        for at, trap in enumerate(self._armed):
            if trap.moment is api:
                del self._armed[at]
                self._death = (trap.kind, trap.cut)
                self._die_at_step = trap.steps
                self.disk.die_after(trap.disk_calls)
                return

    def die_at(self, kind: Fault, cut: PowerCut | None, path_parts: tuple[str, ...], disk_calls: int) -> None:
        """Have the machine die after so many operations on such paths."""
        if self._death is None:
            self._death = (kind, cut)
            self.disk.die_after(disk_calls, path_parts)

    def _on_event(self, event: object) -> None:
        if isinstance(event, HandlerFailed):
            self.journal.findings.append(f"handler-failed: {event.api}: {event.error}\n{event.traceback}")
        elif isinstance(event, StorageFailed):
            self.trace.note(f"storage failed: {event.reason}")
            failure = self.machine.node.storage_failure
            if failure is not None and failure.errno != errno.EIO:
                self.journal.findings.append(f"storage-failed: nothing is wrong with the disk: {failure}")
            if self.machine.process is not None and self.machine.node.storage_failure is not None and self.is_serving:
                self.is_serving = False
                self.later(self.source.choice((100, 1_000)), self._reboot)
        elif isinstance(event, PartitionCompacted):
            self.topics.done["compaction" if event.topic in PLANS else "internal-compaction"] += 1
        elif isinstance(event, SegmentsDeleted):
            self.topics.done["retention"] += 1

    def _reboot(self) -> None:
        if self.machine.process is not None and not self.is_serving:
            # Without a reboot the page cache still shows what the failed sync has lost.
            cuts = (None, None, PowerCut.LOSE_ALL, PowerCut.PREFIX, PowerCut.TORN)
            self.die("restart after a failure of the disk", self.source.choice(cuts))

    # Faults

    def _do(self, kind: Fault) -> None:
        if self._is_healed:
            return
        self.trace.note(f"fault {kind.value}")
        if self._carry_out(self, kind):
            self.hits[kind] += 1

    def _heal(self) -> None:
        self._is_healed = True
        self.trace.note("healed")
        self._count_armed()
        if self._put_back:
            self._find_files()
        self.disk.mend()
        self._armed.clear()
        self._die_at_step = self._death = None
        self.network.heal(self.DELAY_MAX_MS)
        self.machine.set_sync_ms(SYNC_MS)
        process = self.machine.process
        if process is None:
            if not self._boot_planned:
                self._boot_planned = True
                self.later(0, self._boot)
        else:
            if process.is_paused:
                process.resume()
            if not self.is_serving:
                self._reboot()

    def _count_armed(self) -> None:
        """What was only armed and has happened."""
        self.hits[Fault.NET_DUPLICATE] = self.network.duplicates_made
        self.hits[Fault.ENOSPC] = self.disk.refusals.get(errno.ENOSPC, 0)
        self.hits[Fault.SYNC_EIO] = self.disk.failed_syncs
        self.hits[Fault.WRITE_EIO] = self.disk.failed_writes

    def good_logs(self) -> list[PartitionLog]:
        return [
            partition.log
            for partition in self.machine.node.all_partitions()
            if partition.failure is None and partition.log.failure is None
        ]

    def some_client(self) -> ClientProcess | None:
        alive = [client for client in (*self.clients, *self.twins) if not client.is_ended]
        return self.source.choice(alive) if alive else None

    def start_twin(self) -> None:
        """A second process with the transactional id of one that runs, for a while."""
        originals = [client for client in self.clients if isinstance(client, TransactionalProducer)]
        original = self.source.choice(originals)
        self._names += 1
        twin = twin_of(original, f"{original.name}-twin{self._names}", self.surroundings, self.journal)
        self.twins.append(twin)
        twin.start()
        self.later(self.source.choice((500, 2_000, 6_000)), lambda: None if twin.is_ended else twin.kill())

    def lose_files(self, kind: Fault, key: tuple[str, int], paths: list[str]) -> None:
        """The broker is down, and somebody takes files of a log away. They are found again before long.

        A stop that a full disk kept from being clean has not noted how far the log went."""
        if self._put_back or not self.disk.exists(f"{DATA_DIRECTORY}/{CLEAN_SHUTDOWN}"):
            return
        self.hits[kind] += 1
        self.trace.note(f"lost {paths}")
        self._put_back = [self.disk.take_away(path) for path in paths]
        self.invariants.excuse(frozenset({key}))
        self.later(self.source.choice((1_500, 4_000)), self._find_files)

    @property
    def are_files_away(self) -> bool:
        return bool(self._put_back)

    def _find_files(self) -> None:
        if self.machine.process is not None and self._put_back:
            self.die("files are put back", None)
        for put_back in self._put_back:
            put_back()
        self._put_back = []
        self.invariants.excuse(frozenset())

    def strike(self, kind: Fault, name: str) -> None:
        """Delete a topic now, while its files are being synced."""
        if self._is_healed:
            return
        self.hits[kind] += 1
        self._names += 1
        self._slow_syncs_for_a_while()
        strike = TopicStrike(
            f"strike{self._names}", *self.surroundings, plan=PLANS[name], topics=self.topics, journal=self.journal
        )
        self.twins.append(strike)
        self.later(0, strike.start)

    def _slow_syncs_for_a_while(self) -> None:
        """Long enough for a request to come in between."""
        machine = self.machine
        if machine.process is None or machine.sync_ms > SYNC_MS:
            return
        machine.set_sync_ms(60)
        self.later(100, lambda: machine.set_sync_ms(SYNC_MS))

    def build(self) -> None:
        """Somebody creates another topic, whatever room there is."""
        self._names += 1
        builder = Builder(f"builder{self._names}", *self.surroundings, topics=self.topics, journal=self.journal)
        self.twins.append(builder)
        builder.start()

    # Clients

    def _set_up(self) -> None:
        self._boot()
        founder = Founder("founder", *self.surroundings)
        founder.start()
        while not founder.is_ended:
            assert self._step(self._now_ms() + REST_MS), "the topics could not be made"
        self.clients = everybody(self.surroundings, self.journal, self.topics, with_access_rules=self.has_access_rules)
        for client in self.clients:
            client.supervise(self._client_ended)
            self.later(self.source.randint(0, 100), client.start)

    def _client_ended(self, client: ClientProcess) -> None:
        """Killed, or fenced: a supervisor starts it again."""

        def start() -> None:
            if not self._is_healed and client.is_ended:
                client.start()

        self.later(self.source.choice((50, 400, 2_000)), start)

    # Figures

    @property
    def calls(self) -> int:
        return sum(client.calls for client in (*self.clients, *self.twins))
