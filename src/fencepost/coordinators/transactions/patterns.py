"""Regular expressions from strangers, matched in linear time.

ListTransactions lets any client send a pattern. Python's own matcher backtracks, so a few characters could hold up the
broker for hours. This one compiles the common syntax of RE2, which Kafka uses, to a machine that is in several states
at once: time is the length of the text times the size of the pattern, whatever the pattern. What RE2 does not know
(backreferences, lookaround) or this does not (Unicode classes, word boundaries, multi-line anchors) is refused as
invalid.
"""

from collections.abc import Callable

PATTERN_CHARACTERS_MAX = 1_000
REPEAT_MAX = 1_000
STEPS_MAX = 5_000

Accepts = Callable[[str], bool]

_CLASSES: dict[str, Accepts] = {
    "d": lambda c: "0" <= c <= "9",
    "w": lambda c: c == "_" or (c.isascii() and c.isalnum()),
    "s": lambda c: c in "\t\n\f\r ",
}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "v": "\v"}


def _is(character: str) -> Accepts:
    return lambda c: c == character


def _anything(character: str) -> bool:
    return True


def _all_but_newlines(character: str) -> bool:
    return character != "\n"


class InvalidPattern(Exception):
    """Not a regular expression, or one of a kind that is not supported."""


class _Node:
    """A piece of the pattern; `emit` appends its steps to a program, to go on at the program's end."""

    def emit(self, program: "list[_Step]") -> None:
        raise NotImplementedError


class _Step:
    """Either takes one character, or leads on to others without one, or stands at an anchor."""

    __slots__ = ("accepts", "anchor", "targets")

    def __init__(self, accepts: Accepts | None = None, targets: tuple[int, ...] = (), anchor: str = "") -> None:
        self.accepts = accepts
        self.targets = targets
        self.anchor = anchor


def _add(program: list[_Step], step: _Step) -> _Step:
    if len(program) >= STEPS_MAX:
        raise InvalidPattern("the pattern is too large")
    program.append(step)
    return step


class _One(_Node):
    def __init__(self, accepts: Accepts) -> None:
        self.accepts = accepts

    def emit(self, program: list[_Step]) -> None:
        _add(program, _Step(self.accepts))


class _Anchor(_Node):
    def __init__(self, anchor: str) -> None:
        self.anchor = anchor

    def emit(self, program: list[_Step]) -> None:
        _add(program, _Step(anchor=self.anchor))


class _Sequence(_Node):
    def __init__(self, parts: list[_Node]) -> None:
        self.parts = parts

    def emit(self, program: list[_Step]) -> None:
        for part in self.parts:
            part.emit(program)


class _Choice(_Node):
    def __init__(self, branches: list[_Node]) -> None:
        self.branches = branches

    def emit(self, program: list[_Step]) -> None:
        fork = _add(program, _Step())
        starts, exits = [], []
        for branch in self.branches:
            starts.append(len(program))
            branch.emit(program)
            exits.append(_add(program, _Step()))
        fork.targets = tuple(starts)
        for leave in exits:
            leave.targets = (len(program),)


class _Repeat(_Node):
    def __init__(self, part: _Node, least: int, most: int | None) -> None:
        self.part, self.least, self.most = part, least, most

    def emit(self, program: list[_Step]) -> None:
        for _ in range(self.least):
            self.part.emit(program)
        if self.most is None:
            fork = _add(program, _Step())
            start = len(program)
            self.part.emit(program)
            _add(program, _Step(targets=(start - 1,)))
            fork.targets = (start, len(program))
            return
        forks = []
        for _ in range(self.most - self.least):
            forks.append((_add(program, _Step()), len(program)))
            self.part.emit(program)
        for fork, start in forks:
            fork.targets = (start, len(program))


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.folds_case = False
        self.dot_takes_newlines = False

    def one(self, accepts: Accepts) -> _Node:
        if not self.folds_case:
            return _One(accepts)
        return _One(lambda c: accepts(c) or accepts(c.lower()) or accepts(c.upper()))

    def peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def take(self) -> str:
        character = self.peek()
        if not character:
            raise InvalidPattern("the pattern ends too early")
        self.position += 1
        return character

    def take_if(self, token: str) -> bool:
        if not self.text.startswith(token, self.position):
            return False
        self.position += len(token)
        return True

    def choice(self, depth: int = 0) -> _Node:
        if depth > 100:
            raise InvalidPattern("nested too deep")
        branches = [self.sequence(depth)]
        while self.take_if("|"):
            branches.append(self.sequence(depth))
        return branches[0] if len(branches) == 1 else _Choice(branches)

    def sequence(self, depth: int) -> _Node:
        parts: list[_Node] = []
        while self.peek() not in ("", "|", ")"):
            if self.take_if("\\Q"):
                quoted, _, rest = self.text[self.position :].partition("\\E")
                self.position = len(self.text) - len(rest)
                # A repetition after the quotation is one of its last character.
                parts += [self.one(_is(character)) for character in quoted]
                if parts and quoted:
                    parts.append(self.repeated(parts.pop()))
            else:
                parts.append(self.repeated(self.single(depth)))
        return _Sequence(parts)

    def group(self, depth: int) -> _Node:
        """After its opening parenthesis."""
        folds_case, dot_takes_newlines = self.folds_case, self.dot_takes_newlines
        if self.take_if("?"):
            if self.take_if("P<") or self.take_if("<"):
                self.group_name()
            elif self.flags():
                # They hold until the group around them ends.
                return _Sequence([])
        inside = self.choice(depth + 1)
        if not self.take_if(")"):
            raise InvalidPattern("a group is not closed")
        self.folds_case, self.dot_takes_newlines = folds_case, dot_takes_newlines
        return inside

    def group_name(self) -> None:
        name, closing, _ = self.text[self.position :].partition(">")
        if not closing or not name.isascii() or not name.replace("_", "a").isalnum():
            raise InvalidPattern("a bad name of a group")
        self.position += len(name) + 1

    def flags(self) -> bool:
        """Whether they stand alone, as in `(?i)`; else a colon follows them."""
        is_on, is_first = True, True
        while True:
            flag = self.take()
            if flag == ":" or (flag == ")" and not is_first):
                return flag == ")"
            is_first = False
            if flag == "-" and is_on:
                is_on = False
            elif flag == "i":
                self.folds_case = is_on
            elif flag == "s":
                self.dot_takes_newlines = is_on
            elif flag != "U":  # how eagerly it repeats makes no difference
                raise InvalidPattern(f"unsupported group (?{flag}")

    def repeated(self, part: _Node) -> _Node:
        bounds = self.bounds()
        if bounds is None:
            return part
        self.take_if("?")  # how eagerly it repeats makes no difference to whether the whole matches
        if self.bounds() is not None:
            raise InvalidPattern("a repetition of a repetition")
        return _Repeat(part, *bounds)

    def bounds(self) -> tuple[int, int | None] | None:
        for token, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take_if(token):
                return bounds
        end = self.text.find("}", self.position)
        if self.peek() != "{" or end < 0:
            return None
        least, comma, most = self.text[self.position + 1 : end].partition(",")
        if not (least.isascii() and least.isdigit()) or (most and not (most.isascii() and most.isdigit())):
            return None  # a brace that stands for itself
        self.position = end + 1
        low = int(least)
        high = int(most) if most else (None if comma else low)
        if max(low, high or 0) > REPEAT_MAX or (high is not None and high < low):
            raise InvalidPattern("bad repetition")
        return low, high

    def single(self, depth: int) -> _Node:
        character = self.take()
        if character == "(":
            return self.group(depth)
        if character in "*+?":
            raise InvalidPattern("nothing to repeat")
        if character in "^$":
            return _Anchor(character)
        if character == ".":
            return _One(_anything if self.dot_takes_newlines else _all_but_newlines)
        if character == "[":
            return self.one(self.char_class())
        if character == "\\":
            return self.escape()
        return self.one(_is(character))

    def escape(self) -> _Node:
        character = self.take()
        if character in "Az":
            return _Anchor("^" if character == "A" else "$")
        known = self.escaped_class(character)
        if known is not None:
            return _One(known)
        return self.one(_is(self.escaped_literal(character)))

    def escaped_class(self, character: str) -> Accepts | None:
        known = _CLASSES.get(character.lower())
        if known is None or character.islower():
            return known
        return lambda c: not known(c)

    def escaped_literal(self, character: str) -> str:
        if character in _ESCAPES:
            return _ESCAPES[character]
        if character.isalnum():
            raise InvalidPattern(f"unknown escape \\{character}")
        return character

    def char_class(self) -> Accepts:
        is_negated = self.take_if("^")
        members: list[Accepts] = []
        is_first = True
        while is_first or self.peek() != "]":
            is_first = False
            members.append(self.class_member())
        self.take()
        return lambda c: any(member(c) for member in members) != is_negated

    def class_member(self) -> Accepts:
        character = self.take()
        if character == "[" and self.peek() == ":":
            raise InvalidPattern("named classes are not supported")
        if character == "\\":
            character = self.take()
            known = self.escaped_class(character)
            if known is not None:
                return known
            character = self.escaped_literal(character)
        low = high = character
        if self.peek() == "-" and self.text[self.position + 1 : self.position + 2] not in ("", "]"):
            self.take()
            high = self.take()
            if high == "\\":
                high = self.escaped_literal(self.take())
            if high < low:
                raise InvalidPattern("a range that ends before it begins")
        return lambda c: low <= c <= high


class Pattern:
    def __init__(self, program: list[_Step]) -> None:
        self._program = program

    def matches(self, text: str) -> bool:
        """Whether the pattern matches all of the text."""
        end = len(text)
        states = self._closure([0], 0, end)
        for position, character in enumerate(text):
            taken = [state + 1 for state in states if (step := self._accepts(state)) is not None and step(character)]
            states = self._closure(taken, position + 1, end)
            if not states:
                return False
        return len(self._program) in states

    def _accepts(self, state: int) -> Accepts | None:
        return self._program[state].accepts if state < len(self._program) else None

    def _closure(self, states: list[int], position: int, end: int) -> list[int]:
        """All states that can be reached from these without a further character."""
        program = self._program
        reached = dict.fromkeys(states)
        waiting = list(reached)
        while waiting:
            state = waiting.pop()
            if state == len(program) or program[state].accepts is not None:
                continue
            step = program[state]
            targets = step.targets
            if step.anchor:
                targets = (state + 1,) if position == (0 if step.anchor == "^" else end) else ()
            for target in targets:
                if target not in reached:
                    reached[target] = None
                    waiting.append(target)
        return list(reached)


def compile_pattern(text: str) -> Pattern:
    """Raises InvalidPattern."""
    if len(text) > PATTERN_CHARACTERS_MAX:
        raise InvalidPattern("the pattern is too long")
    parser = _Parser(text)
    tree = parser.choice()
    if parser.peek():
        raise InvalidPattern("a group is closed that was not opened")
    program: list[_Step] = []
    tree.emit(program)
    return Pattern(program)
