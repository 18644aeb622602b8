"""What a client's expensive requests may take of the processor.

A request may use a millisecond of processor time, and beyond it a time in proportion to the bytes that it brings and
takes away: twenty times what Produce needs for them, which ordinary requests never do. What a request uses on top of it
is charged to its client: a principal at an address, because connections and client ids are for a client to choose. An
account fills with the client's share of the time that passes, up to a burst. While it is overdrawn, expensive
requests of that client wait, in the midst of their work (`slices.py`); everything else goes on. In Kafka this is the
request quota of KIP-124.

Everything that changes an account is in this file. Time is an argument.
"""

from fencepost.broker.security.principal import Principal

FREE_NS = 1_000_000
# Produce with batches of 1 KiB takes about 30 ns for each byte received and sent.
NS_PER_BYTE = 600
# Accounts that are full are forgotten when there are more than so many, and then the one that was charged longest ago.
ACCOUNTS_MAX = 10_000
_NS_PER_MS = 1_000_000


class Account:
    __slots__ = ("balance_ns", "since_ms")

    def __init__(self, balance_ns: int, since_ms: int) -> None:
        self.balance_ns = balance_ns
        """What is left of the burst; below zero it is overdrawn."""
        self.since_ms = since_ms
        """When it was last filled."""


_Client = tuple[Principal, str]


class ProcessorShares:
    def __init__(self, percentage: int, burst_ms: int) -> None:
        assert percentage > 0
        self._refill_ns_per_ms = percentage * _NS_PER_MS // 100
        self._burst_ns = burst_ms * _NS_PER_MS
        self._accounts: dict[_Client, Account] = {}
        """In the order in which they were last charged."""

    def __len__(self) -> int:
        return len(self._accounts)

    def bill(self, principal: Principal, host: str, received_bytes: int) -> "Bill":
        """For one request of that client."""
        return Bill(self, (principal, host), received_bytes)

    def balance_ns(self, principal: Principal, host: str) -> int:
        """What was left when it was last looked at."""
        account = self._accounts.get((principal, host))
        return self._burst_ns if account is None else account.balance_ns

    def wait_ms(self, client: _Client, now_ms: int) -> int:
        """How long it takes until the client's account is no longer overdrawn."""
        account = self._accounts.get(client)
        if account is None:
            return 0
        self._refill(account, now_ms)
        return -(account.balance_ns // self._refill_ns_per_ms) if account.balance_ns < 0 else 0

    def charge(self, client: _Client, used_ns: int, now_ms: int) -> None:
        account = self._accounts.pop(client, None)
        if account is None:
            if len(self._accounts) >= ACCOUNTS_MAX:
                self._forget(now_ms)
            account = Account(self._burst_ns, now_ms)
        self._accounts[client] = account
        self._refill(account, now_ms)
        account.balance_ns -= used_ns

    def refund(self, client: _Client, unused_ns: int) -> None:
        account = self._accounts.get(client)
        if account is not None:
            account.balance_ns = min(self._burst_ns, account.balance_ns + unused_ns)

    def _refill(self, account: Account, now_ms: int) -> None:
        filled_ns = account.balance_ns + (now_ms - account.since_ms) * self._refill_ns_per_ms
        account.balance_ns = min(self._burst_ns, filled_ns)
        account.since_ms = now_ms

    def _forget(self, now_ms: int) -> None:
        for client, account in list(self._accounts.items()):
            self._refill(account, now_ms)
            if account.balance_ns == self._burst_ns:
                del self._accounts[client]
        if len(self._accounts) >= ACCOUNTS_MAX:
            del self._accounts[next(iter(self._accounts))]


class Bill:
    """What one request has used, and what of it was charged to its client."""

    __slots__ = ("_begun_ns", "_charged_ns", "_client", "_free_ns", "_is_answering", "_shares")

    def __init__(self, shares: ProcessorShares, client: _Client, received_bytes: int) -> None:
        self._shares = shares
        self._client = client
        self._free_ns = FREE_NS + received_bytes * NS_PER_BYTE
        self._charged_ns = 0
        self._begun_ns: int | None = None
        self._is_answering = False

    @property
    def is_counting(self) -> bool:
        """Whether a slice of the request runs: what runs inside it is not to be counted twice."""
        return self._begun_ns is not None

    def begin(self, cpu_ns: int) -> None:
        """A slice of the work begins at this reading of the thread's processor time."""
        assert self._begun_ns is None
        self._begun_ns = cpu_ns

    def end(self, cpu_ns: int, now_ms: int) -> None:
        assert self._begun_ns is not None
        self.add(cpu_ns - self._begun_ns, now_ms)
        self._begun_ns = None

    def add(self, used_ns: int, now_ms: int) -> None:
        if self._is_answering:
            return
        self._free_ns -= used_ns
        if self._free_ns < 0:
            self._shares.charge(self._client, -self._free_ns, now_ms)
            self._charged_ns -= self._free_ns
            self._free_ns = 0

    def pause_ms(self, now_ms: int) -> int:
        """How long the rest of the work has to wait; 0 unless it is expensive and its client's account overdrawn."""
        if self._is_answering or not self._charged_ns:
            return 0
        return self._shares.wait_ms(self._client, now_ms)

    def answering(self, cpu_ns: int, now_ms: int) -> int:
        """The work is done; writing the answer is paid for by its bytes. For how long the client is to send nothing.

        That is until its account is no longer overdrawn. What the request itself has waited is not in it: the client
        has waited with it.
        """
        if self._begun_ns is not None:
            self.end(cpu_ns, now_ms)
            self.begin(cpu_ns)
        left_ms = self.pause_ms(now_ms)
        self._is_answering = True
        return left_ms

    def sent(self, sent_bytes: int) -> None:
        """What of the work a large answer pays for is given back."""
        if self._charged_ns:
            unused_ns = min(self._charged_ns, sent_bytes * NS_PER_BYTE)
            self._charged_ns -= unused_ns
            self._shares.refund(self._client, unused_ns)
