"""Who a request belongs to, from what clients send and from what they forge."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from heliotrope.cache.session_key import IdentitySource, SessionKeys
from heliotrope_epp.parsers.session_hints import SessionHints
from heliotrope_epp.plugins.sessions.identity import Identity, Named, Scope, identify

KEYS = SessionKeys(b"secret")
TURN_1 = b"user\nPlan three days in Rome."
TURN_2 = TURN_1 + b"\nassistant\nThe forum.\nuser\nAdd two museums."


def named(
    prompt: bytes = TURN_1,
    headers: Mapping[str, str] | None = None,
    *,
    tenant: str = "t",
    model: str = "m",
    salt: str = "",
    before: int = 0,
    **hints: str,
) -> Named:
    return Named(
        header=(headers or {}).get,
        hints=SessionHints(previous_prompt_bytes=before, **hints),
        prompt=prompt,
        scope=Scope(tenant, model, salt),
    )


def of(request: Named, responses: Mapping[bytes, bytes] | None = None) -> Identity:
    identity, _ = identify(request, KEYS, (responses or {}).get)
    assert identity is not None
    return identity


def test_the_best_name_wins() -> None:
    everything = named(
        headers={"x-session-id": "s", "x-claude-code-session-id": "c"},
        prompt_cache_key="k",
        previous_response_id="resp_1",
        user="u",
    )
    assert of(everything) == of(named(b"another prompt", {"x-session-id": "s"}))
    assert of(everything).source is IdentitySource.HEADER
    less = replace(everything, header={"x-claude-code-session-id": "c"}.get)
    assert of(less) == of(named(headers={"x-claude-code-session-id": "c"}))
    less = replace(everything, header={}.get)
    assert of(less).source is IdentitySource.PROMPT_CACHE_KEY
    less = replace(less, hints=replace(less.hints, prompt_cache_key=""))
    assert of(less).source is IdentitySource.PREVIOUS_RESPONSE
    less = replace(less, hints=replace(less.hints, previous_response_id=""))
    assert of(less).source is IdentitySource.USER_AND_PREFIX
    less = replace(less, hints=replace(less.hints, user=""))
    assert of(less).source is IdentitySource.PREFIX


def test_a_name_means_something_within_tenant_model_and_salt_only() -> None:
    for headers in ({"x-session-id": "s"}, None):
        keys = {
            of(named(headers=headers)).key,
            of(named(headers=headers, tenant="forger")).key,
            of(named(headers=headers, model="other")).key,
            of(named(headers=headers, salt="other")).key,
        }
        assert len(keys) == 4


def test_equal_names_of_different_kind_are_different_sessions() -> None:
    assert of(named(headers={"x-session-id": "s"})).key != of(named(prompt_cache_key="s")).key


def test_two_sessions_with_the_same_prefix_stay_apart_when_their_names_differ() -> None:
    one, other = named(headers={"x-session-id": "1"}), named(headers={"x-session-id": "2"})
    assert of(one).key != of(other).key
    assert of(named(user="anna")).key != of(named(user="ben")).key


def test_a_resent_history_leads_back_to_the_turn_before() -> None:
    for user in ("", "anna"):
        first = of(named(TURN_1, user=user))
        second = of(named(TURN_2, user=user, before=len(TURN_1)))
        assert first.known_as is None
        assert (first.begins, second.begins) == (True, False)
        assert second.known_as == first.key
        assert second.key != first.key
    assert of(named(TURN_2, user="ben", before=len(TURN_1))).known_as != of(named(TURN_1, user="anna")).key


def test_one_user_may_hold_several_chats() -> None:
    assert of(named(b"user\nRome", user="anna")).key != of(named(b"user\nOslo", user="anna")).key


def test_a_response_id_leads_to_the_session_of_the_response() -> None:
    asked = named(previous_response_id="resp_1")
    known = {asked.scope.response_key(KEYS, "resp_1"): b"s" * 16}
    assert of(asked, known).key == b"s" * 16
    assert of(named(previous_response_id="resp_2"), known).key != b"s" * 16
    assert of(named(previous_response_id="resp_1", tenant="forger"), known).key != b"s" * 16


@pytest.mark.parametrize("bad", ["x" * 257, "two words", "tab\t", "Rom\u00e9", "\udc80"])
def test_a_name_that_cannot_be_one_is_passed_over_and_counted(bad: str) -> None:
    identity, refused = identify(named(headers={"x-session-id": bad}, prompt_cache_key="k"), KEYS, {}.get)
    assert identity == of(named(prompt_cache_key="k"))
    assert refused == 1
    identity, refused = identify(named(user=bad, prompt_cache_key=bad), KEYS, {}.get)
    assert identity == of(named())
    assert refused == 2


def test_without_a_text_and_a_name_nothing_tells() -> None:
    assert identify(named(b""), KEYS, {}.get) == (None, 0)


def test_names_and_keys_are_not_written() -> None:
    request = named(headers={"x-session-id": "secret-name"}, user="secret-name", salt="secret-name")
    assert "secret-name" not in repr(request)
    assert repr(of(request)) == "Identity(source=<IdentitySource.HEADER: 'header'>, begins=False)"
