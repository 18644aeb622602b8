"""A slice of `make mutants`: some broken brokers that die early, and the checks by name, which the good one passes."""

import pytest

from tests.mutants import directed
from tests.mutants.catalogue import MUTANTS
from tests.mutants.hunting import SEEDS_MAX, hunt
from tests.mutants.patching import broken

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
DIE_EARLY = [
    "acknowledge-before-sync",
    "high-watermark-is-end",
    "forget-new-names",
    "stable-offset-off-by-one",
    "aborted-list-before-data",
    "forget-a-participant",
    "prepared-not-resumed",
    "skip-identity-check",
    "init-without-bump",
    "pending-kept-on-abort",
    "any-member-in-transactions",
]
QUICK_CHECKS = [
    directed.old_epochs_are_refused,
    directed.gaps_in_sequences_are_refused,
    directed.full_disks_only_delay_the_end,
    directed.overtaken_verifications_open_nothing,
    directed.open_transactions_outlive_a_restart,
    directed.late_ends_do_nothing,
    directed.pending_offsets_are_unstable,
]


@pytest.mark.parametrize("name", DIE_EARLY)
def test_a_broken_broker_is_found_by_its_clients_and_invariants(name: str) -> None:
    # As many seeds as `make mutants` tries; the table in docs/proof.md has the first that finds it.
    assert hunt(BY_NAME[name], range(SEEDS_MAX)).is_dead


@pytest.mark.parametrize("mutant", [one for one in MUTANTS if one.check in QUICK_CHECKS], ids=lambda one: one.name)
def test_a_check_by_name_passes_on_the_good_broker_and_fails_on_the_broken_one(mutant) -> None:
    mutant.check()
    with broken(mutant), pytest.raises(AssertionError):
        mutant.check()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_a_mutant_breaks_what_it_says_and_leaves_nothing_behind(mutant) -> None:
    before = [getattr(owner, name) for owner, name, _ in mutant.patches]
    with broken(mutant):
        assert all(
            getattr(owner, name) is not good for (owner, name, _), good in zip(mutant.patches, before, strict=True)
        )
    assert [getattr(owner, name) for owner, name, _ in mutant.patches] == before
