"""Sessions as the picker follows them: turns, forged names, shared prefixes, endpoints that go."""

from dataclasses import replace

import pytest
from tests.unit.epp.plugins.builders import request

from heliotrope.cache.session_key import IdentitySource, SessionKeys
from heliotrope.cache.session_rules import SessionRules
from heliotrope.cache.sessions import Sessions
from heliotrope_epp.clock import Clock
from heliotrope_epp.parsers.session_hints import SessionHints
from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.plugins.sessions import tracker as module
from heliotrope_epp.plugins.sessions.identity import Named, Scope
from heliotrope_epp.plugins.sessions.tracker import SessionTracker, history_of
from heliotrope_epp.transport.interface import Cause, Report

PROMPT = b"user\n" + b"Rome " * 500
RULES = SessionRules(forget_after_seconds=600.0)
RESPONSE = b'{"id":"resp_1","object":"response"}'


class Bench:
    def __init__(self, rules: SessionRules | None = RULES) -> None:
        self.now_s = 100.0
        self.rules = rules
        self.tracker = SessionTracker(
            Sessions(100), SessionKeys(b"secret"), lambda: self.rules, Clock(monotonic=lambda: self.now_s)
        )

    def ask(
        self, name: str | None = None, prompt: bytes = PROMPT, *, tenant: str = "", before: int = 0, **hints: str
    ) -> LlmRequest:
        headers = {} if name is None else {"x-session-id": name}
        named = Named(headers.get, SessionHints(previous_prompt_bytes=before, **hints), prompt, Scope(tenant, "m"))
        return replace(request(prompt), tenant=tenant, session=self.tracker.turn(named))

    def serve(self, asked: LlmRequest, endpoint: str, tokens: int | None = 700, tail: bytes = b"") -> None:
        self.tracker.routed(asked, endpoint)
        self.now_s += 2.0
        self.tracker.ended(asked, tokens, tail)
        self.now_s += 10.0


def previous(asked: LlmRequest) -> str | None:
    assert asked.session is not None
    return None if asked.session.view is None else asked.session.view.previous_endpoint


def test_a_named_session_is_found_at_its_next_turn() -> None:
    bench = Bench()
    first = bench.ask("s")
    assert previous(first) is None
    bench.serve(first, "a")
    second = bench.ask("s", b"user\nsomething else")
    assert second.session is not None
    view = second.session.view
    assert view is not None
    assert (view.turns, view.previous_endpoint, view.history_tokens, view.idle_seconds) == (1, "a", 700, 10.0)


def test_an_unnamed_chat_is_followed_by_its_history() -> None:
    bench = Bench()
    bench.serve(bench.ask(prompt=PROMPT), "a")
    longer = PROMPT + b"\nassistant\nForum.\nuser\nMore."
    second = bench.ask(prompt=longer, before=len(PROMPT))
    assert previous(second) == "a"
    bench.serve(second, "b")
    third = bench.ask(prompt=longer + b"\nassistant\nYes.\nuser\nThanks.", before=len(longer))
    assert third.session is not None
    assert third.session.view is not None
    assert (third.session.view.turns, third.session.view.switches) == (2, 1)
    assert bench.tracker.counts().sessions.sessions == 1, "the session took its new key and left the old one"


def test_strangers_whose_first_prompts_are_equal_are_no_session() -> None:
    bench = Bench()
    for endpoint in ("a", "b", "c"):
        first = bench.ask()
        assert previous(first) is None
        bench.serve(first, endpoint)
    second = bench.ask(prompt=PROMPT + b"\nassistant\nYes.\nuser\nMore.", before=len(PROMPT))
    assert second.session is not None
    assert second.session.view is not None
    assert (second.session.view.turns, second.session.view.previous_endpoint) == (1, "c")


def test_two_chats_that_begin_alike_are_two_sessions() -> None:
    bench = Bench()
    bench.serve(bench.ask("one"), "a")
    bench.serve(bench.ask("two"), "b")
    assert previous(bench.ask("one")) == "a"
    assert previous(bench.ask("two")) == "b"


def test_a_forged_name_of_another_tenant_finds_nothing_and_changes_nothing() -> None:
    bench = Bench()
    bench.serve(bench.ask("s", tenant="owner"), "a")
    forged = bench.ask("s", tenant="forger")
    assert previous(forged) is None
    bench.serve(forged, "b")
    assert previous(bench.ask("s", tenant="owner")) == "a"


def test_a_session_whose_endpoint_goes_is_known_and_has_no_place() -> None:
    bench = Bench()
    bench.serve(bench.ask("s"), "a")
    bench.tracker.removed("a")
    found = bench.ask("s")
    assert found.session is not None
    assert found.session.view is not None
    assert found.session.view.turns == 1
    assert found.session.view.previous_endpoint is None


def test_a_session_whose_endpoint_lost_its_cache_still_has_its_place() -> None:
    bench = Bench()
    bench.serve(bench.ask("s"), "a")
    bench.tracker.cache_lost("a")
    found = bench.ask("s")
    assert previous(found) == "a"
    assert found.session is not None
    assert found.session.view is not None
    assert found.session.view.history_tokens == 700


def test_a_turn_that_failed_adds_no_history() -> None:
    bench = Bench()
    bench.serve(bench.ask("s"), "a", tokens=None)
    found = bench.ask("s")
    assert previous(found) == "a"
    assert found.session is not None
    assert found.session.view is not None
    assert found.session.view.history_tokens == 0


def test_a_response_leads_to_its_session() -> None:
    bench = Bench()
    bench.serve(bench.ask(prompt=b"user\nhello"), "a", tail=RESPONSE)
    found = bench.ask(prompt=b"user\nand then?", previous_response_id="resp_1")
    assert previous(found) == "a"
    assert previous(bench.ask(prompt=b"user\nand then?", previous_response_id="resp_2")) is None
    assert previous(bench.ask(prompt=b"user\nand?", previous_response_id="resp_1", tenant="forger")) is None
    assert bench.tracker.counts().responses == 1


def test_responses_are_bounded() -> None:
    bench = Bench()
    asked = bench.ask("s")
    bench.tracker.routed(asked, "a")
    for i in range(module.MAX_RESPONSES + 3):
        bench.tracker.ended(asked, 1, b'{"id":"resp_%d"}' % i)
    counts = bench.tracker.counts()
    assert (counts.responses, counts.forgotten_responses_total) == (module.MAX_RESPONSES, 3)


def test_silence_ends_a_session() -> None:
    bench = Bench()
    bench.serve(bench.ask("s"), "a")
    bench.now_s += 601.0
    assert previous(bench.ask("s")) is None


def test_without_a_policy_nothing_is_followed() -> None:
    bench = Bench(rules=None)
    asked = bench.ask("s")
    assert asked.session is None
    bench.serve(asked, "a")
    assert bench.tracker.counts().sessions.sessions == 0


def test_a_policy_that_goes_while_a_turn_is_served_does_no_harm() -> None:
    bench = Bench()
    asked = bench.ask("s")
    bench.rules = None
    bench.serve(asked, "a")
    assert bench.tracker.counts().sessions.sessions == 0


def test_what_named_turns_is_counted_and_names_are_not_kept() -> None:
    bench = Bench()
    bench.ask("s")
    bench.ask("not a name")
    bench.ask(prompt=b"")
    counts = bench.tracker.counts()
    assert counts.turns_total == {IdentitySource.HEADER: 1, IdentitySource.PREFIX: 1, "none": 1}
    assert counts.refused_names_total == 1
    assert "'s'" not in repr(bench.ask("s"))


def ended(status: int | None = 200, *, first_s: float | None = 1.0, cause: Cause = Cause.COMPLETE) -> Report:
    return Report(status, {}, None, 1, 10, 0.0, 0.1, first_s, first_s, 2.0, b"", cause)


@pytest.mark.parametrize(
    ("report", "output_tokens", "cached"),
    [
        (ended(), 30, 1030),
        (ended(), None, 1200),
        (ended(cause=Cause.DISCONNECTED), None, 1000),
        (ended(first_s=None), None, None),
        (ended(500), None, None),
        (ended(None, first_s=None, cause=Cause.DISCONNECTED), None, None),
    ],
)
def test_what_a_turn_leaves_in_the_cache(report: Report, output_tokens: int | None, cached: int | None) -> None:
    assert history_of(request(), report, output_tokens) == cached
