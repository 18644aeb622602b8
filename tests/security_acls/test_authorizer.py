"""The authorizer against the plainest reading of the rules, and how much work one question is."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.broker.handler import Handler
from fencepost.broker.handlers import all_handlers
from fencepost.broker.rights import with_rights
from fencepost.broker.security.access import VERDICTS_MAX, Access
from fencepost.broker.security.authorizer import Authorizer
from fencepost.broker.security.principal import Principal
from fencepost.wire.acls import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from fencepost.wire.catalog import API_VERSIONS, ApiKey

OP, ALLOW, DENY = AclOperation, AclPermissionType.ALLOW, AclPermissionType.DENY
TOPIC, LITERAL, PREFIXED = ResourceType.TOPIC, PatternType.LITERAL, PatternType.PREFIXED
ALICE, BOB, ROOT = Principal("User", "alice"), Principal("User", "bob"), Principal("User", "root")
HOSTS = ("10.0.0.1", "10.0.0.2")
OPERATIONS = [operation for operation in OP if operation >= OP.ALL]
NAMES = ("a", "ab", "abc", "b", "*", "hardcode")


def bindings() -> st.SearchStrategy[AclBinding]:
    return st.builds(
        AclBinding,
        st.builds(
            ResourcePattern,
            st.sampled_from((TOPIC, ResourceType.GROUP)),
            st.sampled_from(NAMES),
            st.sampled_from((LITERAL, PREFIXED)),
        ),
        st.sampled_from(("User:alice", "User:bob", "User:*")),
        st.sampled_from((*HOSTS, "*")),
        st.sampled_from(OPERATIONS),
        st.sampled_from((ALLOW, DENY)),
    )


def applies(pattern: ResourcePattern, kind: ResourceType, name: str) -> bool:
    if pattern.resource_type is not kind:
        return False
    return name.startswith(pattern.name) if pattern.pattern_type is PREFIXED else pattern.name in (name, "*")


def grants(binding: AclBinding, principal: Principal, host: str, operation: AclOperation) -> bool:
    if binding.principal not in (str(principal), "User:*") or binding.host not in (host, "*"):
        return False
    if binding.operation in (operation, OP.ALL):
        return True
    if binding.permission_type is DENY:
        return False
    implied = {OP.DESCRIBE: (OP.READ, OP.WRITE, OP.DELETE, OP.ALTER), OP.DESCRIBE_CONFIGS: (OP.ALTER_CONFIGS,)}
    return binding.operation in implied.get(operation, ())


def naive(
    rules: set[AclBinding],
    allow_if_no_acl: bool,
    principal: Principal,
    host: str,
    operation: AclOperation,
    kind: ResourceType,
    name: str,
) -> bool:
    if principal == ROOT:
        return True
    about = [rule for rule in rules if applies(rule.pattern, kind, name)]
    if not about:
        return allow_if_no_acl
    verdicts = {rule.permission_type for rule in about if grants(rule, principal, host, operation)}
    return ALLOW in verdicts and DENY not in verdicts


changes = st.lists(st.tuples(st.booleans(), bindings()), max_size=12)


@settings(max_examples=300, deadline=None)
@given(changes, st.booleans())
def test_every_question_is_answered_as_the_rules_read(
    made: list[tuple[bool, AclBinding]], allow_if_no_acl: bool
) -> None:
    authorizer = Authorizer([ROOT], allow_if_no_acl=allow_if_no_acl)
    rules: set[AclBinding] = set()
    for adds, binding in made:
        if adds:
            authorizer.add([binding])
            rules.add(binding)
        else:
            authorizer.remove([binding])
            rules.discard(binding)
    for principal in (ALICE, BOB, ROOT):
        for host in HOSTS:
            for operation in OPERATIONS[1:]:
                for kind in (TOPIC, ResourceType.GROUP):
                    for name in ("a", "abcd", "b", "c", "*"):
                        asked = (principal, host, operation, kind, name)
                        assert authorizer.authorize(*asked) is naive(rules, allow_if_no_acl, *asked), asked


@settings(max_examples=300, deadline=None)
@given(st.sets(bindings(), max_size=10))
def test_a_right_to_some_resource_is_found_if_and_only_if_there_is_one(rules: set[AclBinding]) -> None:
    authorizer = Authorizer([ROOT])
    authorizer.add(rules)
    # Every name that a rule speaks of, and one that only its prefix reaches.
    names = {name for rule in rules for name in (rule.pattern.name, f"{rule.pattern.name}~~")} | {"~~"}
    for principal in (ALICE, BOB, ROOT):
        there_is = any(naive(rules, False, principal, HOSTS[0], OP.WRITE, TOPIC, name) for name in names)
        assert authorizer.authorize_by_resource_type(principal, HOSTS[0], OP.WRITE, TOPIC) is there_is


@given(st.sets(bindings(), max_size=10), st.randoms(use_true_random=False))
def test_rules_that_were_all_removed_leave_nothing_behind(rules: set[AclBinding], random: Any) -> None:
    authorizer = Authorizer(allow_if_no_acl=True)
    authorizer.add(rules)
    order = sorted(rules)
    random.shuffle(order)
    authorizer.remove(order)
    assert all(authorizer.authorize(BOB, HOSTS[0], OP.WRITE, TOPIC, name) for name in NAMES)


def steps_of(work: Callable[[], object]) -> int:
    """Lines of the authorizer that run."""
    steps = 0
    place = sys.modules[Authorizer.__module__].__file__

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        steps += event == "line" and frame.f_code.co_filename == place
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps


def rule(name: str, user: str = "alice", pattern: PatternType = LITERAL, host: str = "*") -> AclBinding:
    return AclBinding(ResourcePattern(TOPIC, name, pattern), f"User:{user}", host, OP.READ, ALLOW)


@pytest.mark.parametrize(
    "more",
    [
        [rule(f"topic-{n}") for n in range(10_000)],
        [rule(f"topic-{n:05}-", pattern=PREFIXED) for n in range(10_000)],
        [rule("purchases", f"user-{n}") for n in range(10_000)],
        [rule("purchases", host=f"10.1.{n // 250}.{n % 250}") for n in range(10_000)],
    ],
    ids=["topics", "prefixes", "users", "hosts"],
)
def test_ten_thousand_rules_do_not_make_a_question_longer(more: list[AclBinding]) -> None:
    few, many = Authorizer(), Authorizer()
    for authorizer in (few, many):
        # One of the same form, so that both have the same ways to go.
        authorizer.add([rule("purchases"), rule("purch", pattern=PREFIXED), more[0]])
    many.add(more)

    def question(authorizer: Authorizer) -> Callable[[], object]:
        return lambda: authorizer.authorize(ALICE, HOSTS[0], OP.READ, TOPIC, "purchases")

    for authorizer in (few, many):
        assert question(authorizer)()
    assert steps_of(question(many)) == steps_of(question(few))


def test_one_address_has_many_spellings() -> None:
    authorizer = Authorizer()
    authorizer.add([rule("a", host="0:0:0:0:0:0:0:1"), rule("b", host="10.0.0.1")])
    assert authorizer.authorize(ALICE, "::1", OP.READ, TOPIC, "a")
    assert authorizer.authorize(ALICE, "::ffff:10.0.0.1", OP.READ, TOPIC, "b")
    assert not authorizer.authorize(ALICE, "::2", OP.READ, TOPIC, "a")


def test_verdicts_are_remembered_until_the_rules_change_and_refusals_told_once() -> None:
    authorizer, told = Authorizer(), []
    access = Access(authorizer, ALICE, HOSTS[0], told.append)
    for _ in range(3):
        assert not access.may(OP.READ, TOPIC, "a")
        assert not access.could(OP.WRITE, TOPIC, "a")
    assert [(event.principal, event.operation, event.resource_name) for event in told] == [("User:alice", "READ", "a")]
    authorizer.add([rule("a")])
    assert access.may(OP.READ, TOPIC, "a")
    authorizer.remove([rule("a")])
    assert not access.may(OP.READ, TOPIC, "a")
    assert len(told) == 2


def test_a_connection_that_names_ever_new_topics_is_not_remembered_for_it() -> None:
    access = Access(Authorizer(), ALICE, HOSTS[0], lambda event: None)
    for n in range(2 * VERDICTS_MAX):
        access.may(OP.READ, TOPIC, f"topic-{n}")
    assert len(access._verdicts) <= VERDICTS_MAX
    assert len(access._reported) <= VERDICTS_MAX


def test_every_api_declares_its_rights() -> None:
    assert with_rights(all_handlers(), Authorizer()).keys() == API_VERSIONS.keys()


def test_an_api_that_declares_no_rights_is_not_served() -> None:
    undeclared = Handler(lambda node, call, request: None)
    with pytest.raises(AssertionError, match="no rights are declared for Produce"):
        with_rights({ApiKey.PRODUCE: undeclared}, Authorizer())


def test_filters_find_what_they_say() -> None:
    literal, prefixed, everything = rule("orders"), rule("ord", pattern=PREFIXED), rule("*")
    rules = [literal, prefixed, everything]

    def found(**parts: Any) -> list[AclBinding]:
        return [each for each in rules if AclBindingFilter(**parts).matches(each)]

    assert found() == rules
    assert found(name="orders") == [literal]
    assert found(name="orders", pattern_type=PatternType.MATCH) == rules
    assert found(name="other", pattern_type=PatternType.MATCH) == [everything]
    assert found(name="ord", pattern_type=PREFIXED) == [prefixed]
    assert found(resource_type=ResourceType.GROUP) == []
    assert found(operation=OP.WRITE) == []
