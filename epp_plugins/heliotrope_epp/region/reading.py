"""From an HTTP request to what a window needs of it."""

from heliotrope.decide.asked import parse_deadline
from heliotrope.decide.policy import DecisionPolicy, Override
from heliotrope.decide.resolve import NOT_ALLOWED, policy_for
from heliotrope.errors import InvalidInputError
from heliotrope.predict.length_distribution import LengthContext
from heliotrope.predict.output_length import OutputLengths
from heliotrope_epp.clock import Clock
from heliotrope_epp.datalayer.store import EndpointStore
from heliotrope_epp.director.director import FAIRNESS_HEADERS, MAX_TENANT_LENGTH, REQUEST_ID_HEADER
from heliotrope_epp.director.wishes import DEADLINE_HEADER, REFUSED_HEADER, asked_of
from heliotrope_epp.parsers import openai
from heliotrope_epp.parsers.openai import ParsedBody
from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.plugins.sessions.identity import Named, Scope
from heliotrope_epp.plugins.sessions.tracker import SessionTracker
from heliotrope_epp.region.placed import Waiting
from heliotrope_epp.region.prefixes import RegionPrefixes
from heliotrope_epp.tracing.tracer import RequestTrace
from heliotrope_epp.transport.interface import Request


class Reader:
    """Reads requests by the policy in force."""

    def __init__(
        self,
        store: EndpointStore,
        lengths: OutputLengths,
        sessions: SessionTracker | None,
        prefixes: RegionPrefixes,
        clock: Clock,
    ) -> None:
        self._store = store
        self._lengths = lengths
        self._sessions = sessions
        self._prefixes = prefixes
        self._clock = clock

    def read(self, request: Request, trace: RequestTrace) -> Waiting:
        """The request, ready for a window.

        Raises:
            InvalidInputError: if the body or one of our headers cannot be read; the message names the field.
        """
        now_s, now_unix_s = self._clock.monotonic(), self._clock.unix()
        body = openai.parse(request.path, request.body)
        llm = self._parsed(request, body, now_s)
        policy = self._store.policy()
        # Without a policy nobody asks what is cached where.
        chain = () if policy is None else self._prefixes.chain(body.model, body.cache_salt, body.prompt)
        resolved = None if policy is None else policy_for(policy, llm.asked, now_unix_s)
        refused = [] if resolved is None else [*resolved.provenance.refused]
        deadline_unix_s = _deadline(request, now_unix_s)
        if deadline_unix_s is not None and not _may_wait(policy):
            refused.append((Override.DEADLINE, NOT_ALLOWED))
            deadline_unix_s = None
        text = "; ".join(f"{override.value}: {why}" for override, why in refused)
        told = ((REFUSED_HEADER, text),) if text else ()
        return Waiting(request, llm, resolved, trace, now_s, told, deadline_unix_s, chain, len(body.prompt))

    def _parsed(self, request: Request, body: ParsedBody, now_s: float) -> LlmRequest:
        tenant = _tenant(request)
        asked = asked_of(request, self._store.priority)
        context = LengthContext(
            body.model, tenant, body.prompt_tokens, body.max_output_tokens, body.streaming, body.reasoning
        )
        turn = None
        if self._sessions is not None:
            scope = Scope(tenant, body.model, body.cache_salt)
            turn = self._sessions.turn(Named(request.header, body.session, body.prompt, scope))
        return LlmRequest(
            request_id=request.header(REQUEST_ID_HEADER) or "",
            path=request.path,
            model=body.model,
            prompt=b"",  # hashed above; nothing here needs the text any more
            prompt_tokens=body.prompt_tokens,
            max_output_tokens=body.max_output_tokens,
            expected_output_tokens=self._lengths.predict(context, now_s).mean,
            streaming=body.streaming,
            cache_salt=body.cache_salt,
            ttft_slo_seconds=asked.ttft_slo_seconds,
            tpot_slo_seconds=asked.tpot_slo_seconds,
            tenant=tenant,
            asked=asked,
            reasoning=body.reasoning,
            session=turn,
        )


def length_context(llm: LlmRequest) -> LengthContext:
    """What lengths of answers are learned by."""
    return LengthContext(llm.model, llm.tenant, llm.prompt_tokens, llm.max_output_tokens, llm.streaming, llm.reasoning)


def _may_wait(policy: DecisionPolicy | None) -> bool:
    return policy is not None and policy.enforce and Override.DEADLINE in policy.overrides.allowed


def _deadline(request: Request, now_unix_s: float) -> float | None:
    text = request.header(DEADLINE_HEADER)
    if text is None:
        return None
    try:
        return parse_deadline(text, now_unix_s)
    except InvalidInputError as error:
        raise InvalidInputError(DEADLINE_HEADER, error.problem) from error


def _tenant(request: Request) -> str:
    for name in FAIRNESS_HEADERS:
        text = request.header(name)
        if text:
            return text[:MAX_TENANT_LENGTH]
    return ""
