"""Two answers side by side: only the leaves in which they differ, each with its path."""

from collections.abc import Iterator
from typing import Any

NOTHING = "(nothing)"


def differences(expected: Any, found: Any, path: str = "") -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in [*expected, *(key for key in found if key not in expected)]:
            yield from differences(
                expected.get(key, NOTHING), found.get(key, NOTHING), f"{path}.{key}" if path else str(key)
            )
    elif isinstance(expected, list | tuple) and isinstance(found, list | tuple) and len(expected) == len(found):
        for index, (left, right) in enumerate(zip(expected, found, strict=True)):
            yield from differences(left, right, f"{path}[{index}]")
    elif _are_named(expected) and _are_named(found):
        yield from differences({each["Name"]: each for each in expected}, {each["Name"]: each for each in found}, path)
    elif expected != found:
        yield f"{path or 'answer'}: apache {expected!r}, fencepost {found!r}"


def _are_named(answer: Any) -> bool:
    return (
        isinstance(answer, list) and bool(answer) and all(isinstance(each, dict) and "Name" in each for each in answer)
    )
