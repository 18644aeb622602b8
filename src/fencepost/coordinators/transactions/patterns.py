"""Regular expressions from strangers, matched by RE2.

ListTransactions lets any client send a pattern, and Kafka matches it with RE2. RE2 never backtracks, but a large
pattern still takes long for every character of an id: once its automaton has outgrown the memory it may take, each
instruction of its program is looked at. So the program is bounded, and so is its size times an id's length.
"""

import re2

PATTERN_CHARACTERS_MAX = 1_000
PROGRAM_INSTRUCTIONS_MAX = 2_000
# The worst patterns take some nanoseconds for each instruction and byte; all of one id is matched in one go.
STEPS_MAX = 2_000_000
# For the program and its automaton; it also ends the compiling of a large pattern early.
MEMORY_BYTES_MAX = 131_072


class InvalidPattern(Exception):
    """Not a regular expression that RE2 knows, or one that is too large."""


class Pattern:
    def __init__(self, regexp: "re2._Regexp") -> None:
        self._fullmatch = regexp.fullmatch
        self._text_bytes_max = STEPS_MAX // regexp.programsize

    def matches(self, text: str) -> bool:
        """Whether the pattern matches all of the text. Raises InvalidPattern if that is too much work."""
        encoded = text.encode()
        if len(encoded) > self._text_bytes_max:
            raise InvalidPattern("the pattern is too large for an id of this length")
        return self._fullmatch(encoded) is not None


def _options() -> re2.Options:
    options = re2.Options()
    options.log_errors = False  # to standard error
    options.never_capture = True
    options.max_mem = MEMORY_BYTES_MAX
    return options


def compile_pattern(text: str) -> Pattern:
    """Raises InvalidPattern."""
    if len(text) > PATTERN_CHARACTERS_MAX:
        raise InvalidPattern("the pattern is too long")
    try:
        regexp = re2.compile(text, _options())
    except re2.error as error:
        raise InvalidPattern(str(error)) from None
    finally:
        # It would keep the last 128, each with its memory.
        re2.purge()
    if regexp.programsize > PROGRAM_INSTRUCTIONS_MAX:
        raise InvalidPattern("the pattern is too large")
    return Pattern(regexp)
