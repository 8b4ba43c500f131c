"""Follows sessions from turn to turn on the loop's thread; nothing of what names them leaves it."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from heliotrope.cache.session_key import SessionKeys
from heliotrope.cache.session_rules import SessionRules
from heliotrope.cache.sessions import SessionCounts, Sessions
from heliotrope_epp.clock import Clock
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.parsers.session_hints import response_id_of
from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.plugins.sessions.identity import Named, Scope, identify
from heliotrope_epp.plugins.sessions.turn import SessionTurn
from heliotrope_epp.transport.interface import Report

MAX_RESPONSES = 65_536
"""Responses whose ids are remembered; the oldest go."""


@dataclass(frozen=True, slots=True)
class TrackerCounts:
    """Counts alone."""

    sessions: SessionCounts
    turns_total: Mapping[str, int]
    """By what named the session, `none` where nothing did."""
    refused_names_total: int
    """Names of clients that were too long or no visible ASCII."""
    responses: int
    forgotten_responses_total: int


class SessionTracker:
    """Also a listener of the endpoint store, from which it learns that caches are gone."""

    def __init__(self, sessions: Sessions, keys: SessionKeys, rules: Callable[[], SessionRules | None], clock: Clock):
        """`rules` gives the policy's rules of the moment; without a policy nothing is followed."""
        self._sessions = sessions
        self._keys = keys
        self._rules = rules
        self._clock = clock
        self._responses: OrderedDict[bytes, bytes] = OrderedDict()
        self._turns: Counter[str] = Counter()
        self._refused = 0
        self._forgotten = 0

    def turn(self, named: Named) -> SessionTurn | None:
        """The session that a request belongs to; None without a policy, or where nothing tells."""
        rules = self._rules()
        if rules is None:
            return None
        identity, refused = identify(named, self._keys, self._responses.get)
        self._refused += refused
        self._turns["none" if identity is None else identity.source.value] += 1
        if identity is None:
            return None
        if identity.begins:
            return SessionTurn(identity)
        now_s = self._clock.monotonic()
        view = self._sessions.find(identity.key, now_s, rules.forget_after_seconds)
        if view is None and identity.known_as is not None:
            view = self._sessions.find(identity.known_as, now_s, rules.forget_after_seconds)
        return SessionTurn(identity, view)

    def routed(self, request: LlmRequest, endpoint: str) -> None:
        """A request was sent to this endpoint."""
        rules, turn = self._rules(), request.session
        if rules is not None and turn is not None:
            i, now_s = turn.identity, self._clock.monotonic()
            self._sessions.routed(i.key, endpoint, now_s, rules.forget_after_seconds, i.known_as, begins=i.begins)

    def ended(self, request: LlmRequest, history_tokens: int | None, tail: bytes) -> None:
        """A request ended.

        Args:
            request: what was served.
            history_tokens: tokens of prompt and answer; None where it failed.
            tail: the end of the response's body, for its id.
        """
        turn = request.session
        if turn is None:
            return
        self._sessions.ended(turn.identity.key, self._clock.monotonic(), history_tokens)
        response_id = None if history_tokens is None else response_id_of(tail)
        if response_id is not None:
            scope = Scope(request.tenant, request.model, request.cache_salt)
            self._responses[scope.response_key(self._keys, response_id)] = turn.identity.key
            if len(self._responses) > MAX_RESPONSES:
                self._responses.popitem(last=False)
                self._forgotten += 1

    def added(self, state: EndpointState) -> None:
        """Nothing is cached there yet."""

    def removed(self, key: str) -> None:
        """The endpoint is gone."""
        self._sessions.removed(key)

    def cache_lost(self, key: str) -> None:
        """Nothing: what is cached is the prefix index's to know, and a session keeps its place."""

    def counts(self) -> TrackerCounts:
        """Sizes now and totals since start."""
        return TrackerCounts(
            sessions=self._sessions.counts(),
            turns_total=dict(self._turns),
            refused_names_total=self._refused,
            responses=len(self._responses),
            forgotten_responses_total=self._forgotten,
        )


def history_of(request: LlmRequest, report: Report, output_tokens: int | None) -> int | None:
    """Tokens of a session's history once a turn has ended; None if nothing of it was computed.

    Prompts count as the picker counts them, so that the next turn's can be compared. A prompt is cached as soon as an
    answer begins, and the answer's own tokens once it is complete.
    """
    if report.status != 200 or report.first_s is None:
        return None
    if not report.complete:
        return request.prompt_tokens
    expected = request.expected_output_tokens if output_tokens is None else output_tokens
    return request.prompt_tokens + int(max(expected, 0.0))
