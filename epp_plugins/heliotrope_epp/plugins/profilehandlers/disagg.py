"""`disagg-profile-handler`: one profile chooses where to decode, others where to prefill and encode some requests."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from heliotrope_epp.plugins.interface import EncodeDecider, LlmRequest, Option, Pick, PrefillDecider
from heliotrope_epp.plugins.kinds import PluginKind
from heliotrope_epp.plugins.parameters import Reference, StrictModel

DISAGG_PROFILE_HANDLER = "disagg-profile-handler"
DISAGG_HEADERS_HANDLER = "disagg-headers-handler"
PREFILL_HEADER_HANDLER = "prefill-header-handler"


class StageOrder(StrEnum):
    """Which profile runs first."""

    DECODE_FIRST = "decode-first"
    """A decider sees where the request will decode."""
    PREFILL_FIRST = "prefill-first"
    """Every prompt is prefilled elsewhere."""


class DisaggProfiles(StrictModel):
    """Names of profiles."""

    unsupported: ClassVar[frozenset[str]] = frozenset({"fallback"})
    decode: str = "decode"
    prefill: str = "prefill"
    encode: str = "encode"


class DisaggDeciders(StrictModel):
    """Names of deciders."""

    prefill: Annotated[str | None, Reference(PluginKind.DECIDER)] = None
    encode: Annotated[str | None, Reference(PluginKind.ENCODE_DECIDER)] = None


class DisaggProfileHandlerParameters(StrictModel):
    """llm-d's parameters of the type."""

    stage_order: str = Field(default="decode-first", pattern="^(decode-first|prefill-first)$")
    profiles: DisaggProfiles | None = None
    deciders: DisaggDeciders | None = None

    @model_validator(mode="after")
    def _no_decider_without_a_decode_endpoint(self) -> Self:
        if self.prefill_first and self.decider:
            raise ValueError("deciders.prefill is not used in prefill-first order; remove one of them")
        return self

    @property
    def prefill_first(self) -> bool:
        """Whether every prompt is prefilled elsewhere."""
        return self.stage_order == StageOrder.PREFILL_FIRST

    @property
    def decider(self) -> str | None:
        """The name of the decider; None or empty: there is none."""
        return None if self.deciders is None else self.deciders.prefill

    @property
    def decode_profile(self) -> str:
        """The profile that chooses where to decode."""
        return (self.profiles or DisaggProfiles()).decode

    @property
    def prefill_profile(self) -> str | None:
        """The profile that chooses where to prefill; None where no prompt is prefilled elsewhere."""
        return (self.profiles or DisaggProfiles()).prefill if self.prefill_first or self.decider else None

    @property
    def encode_decider(self) -> str | None:
        """The name of the decider about encoders; None or empty: there is none."""
        return None if self.deciders is None else self.deciders.encode

    @property
    def encode_profile(self) -> str | None:
        """The profile that chooses encoders; None where images are encoded with the prefill."""
        return (self.profiles or DisaggProfiles()).encode if self.encode_decider else None


class DisaggProfileHandler:
    """Implements `DisaggregatingHandler` and `EncodingHandler`."""

    def __init__(
        self,
        parameters: DisaggProfileHandlerParameters,
        deciders: Mapping[str, PrefillDecider],
        encode_deciders: Mapping[str, EncodeDecider] | None = None,
    ) -> None:
        """Both kinds of deciders are those of the configuration, by name."""
        self.decode_profile = parameters.decode_profile
        self.prefill_profile = parameters.prefill_profile
        self.encode_profile = parameters.encode_profile
        encode = parameters.encode_decider
        self._encode_decider = (encode_deciders or {})[encode] if encode else None
        self._always = parameters.prefill_first
        self._decider = deciders[parameters.decider] if parameters.decider else None

    def profiles(self, request: LlmRequest, names: Sequence[str]) -> Sequence[str]:  # noqa: ARG002
        """The profile that chooses where to decode; the other one runs when a request is to be prefilled elsewhere."""
        return [name for name in names if name == self.decode_profile]

    def primary(self, picks: Mapping[str, Pick]) -> str:  # noqa: ARG002
        """The endpoint that decodes gets the request."""
        return self.decode_profile

    def prefills_elsewhere(self, request: LlmRequest, decode: Option) -> bool:
        """Whether the profile for prefill runs, where no policy decides."""
        return self._always or (self._decider is not None and self._decider.prefills_elsewhere(request, decode))

    def encodes_elsewhere(self, request: LlmRequest) -> bool:
        """Whether the profile for encoders runs, where no policy decides."""
        return self._encode_decider is not None and self._encode_decider.encodes_elsewhere(request)


class NoEffect:
    """A deprecated type that llm-d's configurations still declare: the profile handler does what it did."""
