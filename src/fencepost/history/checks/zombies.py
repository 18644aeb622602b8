"""Zombies: a producer whose transactional id another has taken over commits nothing any more."""

from bisect import bisect_left
from collections import defaultdict

from fencepost.history.evidence import Evidence
from fencepost.history.findings import Findings
from fencepost.history.operations import NEVER, Kind, Operation, Outcome


def check_zombies(evidence: Evidence, findings: Findings) -> None:
    inits: dict[str, list[Operation]] = defaultdict(list)
    for operation in evidence.history.operations:
        if operation.kind is Kind.INIT and operation.outcome is Outcome.OK and operation.transactional_id is not None:
            inits[operation.transactional_id].append(operation)
    by_completion = {name: sorted(each, key=lambda init: init.completed) for name, each in inits.items()}
    own: dict[tuple[str, str], Operation] = {}
    for operation in evidence.history.operations:
        name = operation.transactional_id
        if name is None:
            continue
        if operation.kind is Kind.INIT and operation.outcome is Outcome.OK:
            own[name, operation.process] = operation
        elif operation.is_transaction and operation.outcome is Outcome.OK and operation.ending != NEVER:
            held_since = own.get((name, operation.process))
            if held_since is not None:
                _check(operation, held_since, by_completion[name], findings)


def _check(transaction: Operation, held_since: Operation, inits: list[Operation], findings: Findings) -> None:
    # From the last to complete before the end was asked for, back to this producer's own.
    at = bisect_left(inits, transaction.ending, key=lambda init: init.completed) - 1
    while at >= 0 and inits[at].completed > held_since.completed:
        other = inits[at]
        if other.process != transaction.process and other.invoked > held_since.completed:
            findings.add(
                "zombie-commit",
                f"{transaction.process} committed as {transaction.transactional_id} after {other.process} had taken it "
                "over",
                held_since,
                other,
                transaction,
            )
            return
        at -= 1
