"""A real PostgreSQL, run as an unprivileged user, on a socket in a directory of its own."""

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.support.patience import patient

SETTINGS = {
    "wal_level": "logical",
    "listen_addresses": "",
    "max_replication_slots": "40",
    "max_wal_senders": "40",
    "fsync": "off",  # tests end processes, not machines
    "wal_sender_timeout": "20s",
    "shared_buffers": "32MB",
}


def binaries() -> Path | None:
    """Debian keeps them off the path."""
    for found in (shutil.which("initdb"), *sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))[-1:]):
        if found:
            return Path(found).resolve().parent
    return None


def require_postgres() -> None:
    """A skip with a reason for a developer, a failure where everything must be."""
    if binaries() is None:
        reason = "PostgreSQL's server is not installed (apt-get install postgresql)"
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must have every peer: {reason}", pytrace=False)
        pytest.skip(reason, allow_module_level=True)


class Postgres:
    def __init__(self, **settings: str) -> None:
        self._settings = {**SETTINGS, **settings}
        # A short path: a socket's may have 107 bytes.
        self.directory = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
        self._data = self.directory / "data"
        self._process: subprocess.Popen[bytes] | None = None
        found = binaries()
        assert found is not None
        self._binaries = found
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self.directory, user.pw_uid, user.pw_gid)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def dsn(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"host={self.directory} user={user} dbname={database}"

    def start(self) -> Self:
        if not self._data.exists():
            command = [self._binaries / "initdb", "-D", self._data, "-A", "trust", "-U", "postgres", "-N", "-E", "UTF8"]
            done = subprocess.run([*command, "--locale=C"], capture_output=True, text=True, cwd="/", **self._as)
            assert done.returncode == 0, done.stderr
        options = [f"-c{name}={value}" for name, value in self._settings.items()]
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data, "-k", self.directory, *options],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd="/", **self._as,
            )  # fmt: skip
        deadline = time.monotonic() + patient(30)
        while not self._answers():
            is_running = self._process.poll() is None
            assert is_running, self.log_text()
            assert time.monotonic() < deadline, self.log_text()
            time.sleep(0.05)
        return self

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.dsn(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self, kind: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: cleanly. SIGQUIT: as a crash, with recovery at the next start."""
        if self._process is not None:
            self._process.send_signal(kind)
            self._process.wait(patient(30))
            self._process = None

    def crash(self) -> None:
        self.stop(signal.SIGQUIT)

    def execute(self, *statements: str, database: str = "postgres") -> None:
        """All in one transaction."""
        import psycopg

        with psycopg.connect(self.dsn(database)) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def rows(self, query: str, parameters: Sequence[Any] = ()) -> list[Any]:
        import psycopg

        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            return connection.execute(query.encode(), parameters or None).fetchall()

    def log_text(self) -> str:
        file = self.directory / "log"
        return file.read_text(errors="replace")[-4000:] if file.exists() else ""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.crash()
        shutil.rmtree(self.directory, ignore_errors=True)
