r"""`ssl.principal.mapping.rules` (KIP-371): from a certificate's subject to a user's name.

Rules are tried in order; the first that matches counts. `DEFAULT` is the subject itself, and
`RULE:^CN=(.*?),OU=.*$/$1/L` takes a part of it, in lower (`L`) or upper (`U`) case if wanted.
"""

import re
from typing import NamedTuple

_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\/|[^/])*)/(?P<name>(?:\\/|[^/])*)/(?P<case>[LU]?))\s*"
)
_REFERENCE = re.compile(r"\$(\d)|\\(.)")


class InvalidRule(ValueError):
    """A rule that makes no sense; the text says which."""


class Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None for DEFAULT."""
    name: str
    case: str

    def apply(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        found = self.pattern.fullmatch(subject)
        if found is None:
            return None
        name = _REFERENCE.sub(lambda mark: mark[2] or found[int(mark[1])] or "", self.name)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


class PrincipalMapping:
    def __init__(self, rules: str) -> None:
        self._rules = _parse(rules)

    def name_of(self, subject: str) -> str | None:
        """None if no rule matches: then the connection is refused."""
        names = (rule.apply(subject) for rule in self._rules)
        return next((name for name in names if name is not None), None)


def _parse(text: str) -> list[Rule]:
    rules, position = [], 0
    while position < len(text.rstrip()):
        found = _RULE.match(text, position)
        ends = found is not None and (found.end() == len(text) or text[found.end()] in ",\n")
        if found is None or not ends:
            raise InvalidRule(
                f"ssl.principal.mapping.rules: {text[position:]!r} begins neither with DEFAULT "
                "nor with RULE:pattern/name/[LU]"
            )
        rules.append(_rule(found))
        position = found.end() + 1
    return rules or [Rule(None, "", "")]


def _rule(found: re.Match[str]) -> Rule:
    if found["default"]:
        return Rule(None, "", "")
    try:
        pattern = re.compile(found["pattern"].replace("\\/", "/"))
    except re.error as error:
        raise InvalidRule(f"ssl.principal.mapping.rules: {found['pattern']!r} is no pattern: {error}") from None
    wanted = [int(mark[1]) for mark in _REFERENCE.finditer(found["name"]) if mark[1]]
    if any(number > pattern.groups for number in wanted):
        raise InvalidRule(f"ssl.principal.mapping.rules: {found['name']!r} names a group that the pattern has not")
    return Rule(pattern, found["name"].replace("\\/", "/"), found["case"])
