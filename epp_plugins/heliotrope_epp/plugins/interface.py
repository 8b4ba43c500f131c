"""What the pipeline asks of each kind of plugin. All calls come on the loop's thread and must not block."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from heliotrope.decide.asked import NOTHING_ASKED, Asked
from heliotrope.decide.candidates import FloatColumn
from heliotrope.decide.decision import Decision
from heliotrope.media.attachment import Attachment
from heliotrope.predict.reasoning import UNSAID, Reasoning
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.options import Beliefs as Beliefs
from heliotrope_epp.plugins.options import Option as Option
from heliotrope_epp.plugins.options import Options as Options
from heliotrope_epp.plugins.sessions.turn import SessionTurn


@dataclass(frozen=True, slots=True)
class LlmRequest:
    """A parsed request. `prompt` is for hashing and counting only: it never reaches a log, span or metric."""

    request_id: str
    path: str
    model: str
    """As the client named it."""
    prompt: bytes = field(repr=False)
    prompt_tokens: int
    max_output_tokens: int | None
    expected_output_tokens: float
    streaming: bool
    cache_salt: str = field(default="", repr=False)
    """Keeps tenants' prefixes apart."""
    ttft_slo_seconds: float | None = None
    tpot_slo_seconds: float | None = None
    tenant: str = ""
    """The fairness id that came with the request; empty without one."""
    asked: Asked = NOTHING_ASKED
    """What its headers ask for beside."""
    reasoning: Reasoning = UNSAID
    token_ids: bool = False
    """The prompt came as numbers of tokens; `prompt` holds 4 bytes of each, least significant first."""
    session: SessionTurn | None = None
    """None: nobody follows sessions, or nothing tells which one it belongs to."""
    media: tuple[Attachment, ...] = ()
    """What it holds beside text, each once; the tokens that are known are part of the prompt's."""
    answering: str | None = None
    """The model that was chosen for it; None: the one that it names."""
    held_seconds: float = 0.0
    """How long it waited for an engine to start or wake."""

    @property
    def answering_model(self) -> str:
        """The model that its engine is asked for."""
        return self.answering or self.model


@dataclass(frozen=True, slots=True)
class Pick:
    """What a picker chose: the endpoint, then fallbacks in order. `decision` if it was a carbon decision."""

    options: tuple[Option, ...]
    """Empty: nothing may be chosen; `reason` says why and the client gets a 503."""
    reason: str = ""
    decision: Decision | None = None
    prefill: Option | None = None
    """Where the prompt is prefilled; None: at the first of the options, where it decodes."""
    encoders: tuple[Option, ...] = ()
    """Where its images are encoded, in turn; empty: where the prompt is prefilled."""


class Filter(Protocol):
    """Keeps the options that may be used."""

    def filter(self, request: LlmRequest, options: Options) -> Sequence[Option]:
        """A subsequence of `options`, in their order."""
        ...


class Scorer(Protocol):
    """Rates options."""

    def score(self, request: LlmRequest, options: Options) -> FloatColumn:
        """One value per option, higher is better; the pipeline clamps to [0, 1] and multiplies by the weight.

        An option whose inputs are unknown gets 0, the worst: still eligible, after the known ones.
        """
        ...


class Picker(Protocol):
    """Chooses from the scored options."""

    def pick(self, request: LlmRequest, options: Options, scores: FloatColumn, now_unix_s: float) -> Pick:
        """Choose; `options` is not empty and `scores` are the weighted sums, in the same order."""
        ...


class Producer(Protocol):
    """Learns something per request that scorers and the carbon picker use, and follows requests to keep it true."""

    def cached_tokens(self, request: LlmRequest, states: Sequence[EndpointState]) -> Sequence[float]:
        """Believed cached prompt tokens per endpoint, in order."""
        ...

    def routed(self, request: LlmRequest, state: EndpointState) -> None:
        """The request was sent to this endpoint."""
        ...

    def forget(self, endpoint_key: str) -> None:
        """The endpoint is gone or lost its cache."""
        ...


@runtime_checkable
class BelievingProducer(Producer, Protocol):
    """A producer that knows how far it is to be believed, and learns it from answers."""

    def beliefs(self, request: LlmRequest, states: Sequence[EndpointState]) -> Beliefs:
        """What each endpoint is expected to cache; in place of `cached_tokens`."""
        ...

    def routed(self, request: LlmRequest, state: EndpointState, *, fetched: bool = False) -> None:
        """The request was sent to this endpoint; `fetched`: with blocks brought there from elsewhere."""
        ...

    def answered(self, request: LlmRequest, cached_tokens: int | None, prompt_tokens: int | None) -> None:
        """The request, the same object as in `routed`, ended; the engine's counts, None where it gave none."""
        ...


class ProfileHandler(Protocol):
    """Says which scheduling profiles run for a request and which result is used."""

    def profiles(self, request: LlmRequest, names: Sequence[str]) -> Sequence[str]:
        """The profiles to run, in order."""
        ...

    def primary(self, picks: Mapping[str, Pick]) -> str:
        """The name of the profile whose pick is the destination."""
        ...


class PrefillDecider(Protocol):
    """Says whether a prompt is prefilled at another endpoint than the one that decodes."""

    def prefills_elsewhere(self, request: LlmRequest, decode: Option) -> bool:
        """`decode` is where it will be decoded."""
        ...


@runtime_checkable
class EncodeDecider(Protocol):
    """Says whether the images of a request are encoded at another endpoint than the one that prefills."""

    def encodes_elsewhere(self, request: LlmRequest) -> bool:
        """Whether the profile for encoders is to run."""
        ...


@runtime_checkable
class DisaggregatingHandler(ProfileHandler, PrefillDecider, Protocol):
    """A profile handler with a profile for prefill beside the one for decode."""

    decode_profile: str
    prefill_profile: str | None
    """None: every prompt is prefilled where it is decoded."""


@runtime_checkable
class EncodingHandler(ProfileHandler, EncodeDecider, Protocol):
    """A profile handler with a profile for encoders."""

    decode_profile: str
    encode_profile: str | None
    """None: images are encoded where the prompt is prefilled."""
