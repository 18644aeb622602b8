"""A peer that is not installed: a skip for a developer, a failure where every peer must be."""

import pytest

from tests.peers.build import require_program


def test_a_missing_peer_is_a_skip_for_a_developer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-program is not installed"):
        require_program("no-such-program")


def test_a_missing_peer_is_a_failure_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="CI must have every peer"):
        require_program("no-such-program")
