"""The inputs kept in the repository: found by the fuzzer, minimised to those that add coverage, and first ones."""

import hashlib
from pathlib import Path

ROOT = Path(__file__).parent / "corpus"


def inputs(target: str) -> list[Path]:
    return sorted((ROOT / target).iterdir()) if (ROOT / target).exists() else []


def write(directory: Path, inputs: list[bytes]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for data in inputs:
        (directory / hashlib.sha1(data).hexdigest()).write_bytes(data)
