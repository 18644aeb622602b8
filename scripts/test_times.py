"""Prints how long the tests of each directory took, from the JUnit files of pytest; `scripts/test` ends with it.

Times are those of the tests, set-up and tear-down included: with several workers they exceed the wall clock.
"""

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path


def directory_of(classname: str) -> str:
    """JUnit has `tests.unit.log.test_cleaner` or `tests.unit.log.test_cleaner.TestClass`."""
    names = classname.split(".")
    modules = [at for at, name in enumerate(names) if name.startswith("test_")]
    parts = names[: modules[0]] if modules else names
    return "/".join(parts[:2]) or "."


def main(paths: list[str]) -> None:
    seconds: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    slowest: dict[str, tuple[float, str]] = {}
    for path in filter(Path.is_file, map(Path, paths)):
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            directory = directory_of(case.get("classname", ""))
            took = float(case.get("time", 0))
            seconds[directory] += took
            tests[directory] += 1
            slowest[directory] = max(slowest.get(directory, (0.0, "")), (took, case.get("name", "")))
    print("\nSeconds per directory, added up over all workers:")
    for directory, took in seconds.most_common():
        longest, name = slowest[directory]
        print(f"{took:8.1f}  {directory} ({tests[directory]} tests; the longest took {longest:.1f}: {name[:80]})")
    print(f"{seconds.total():8.1f}  in all")


if __name__ == "__main__":
    main(sys.argv[1:])
