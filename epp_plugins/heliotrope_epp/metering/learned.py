"""What a unit of work draws, learned by kind of engine."""

from collections.abc import Iterable

from heliotrope.engine.encoder import DEFAULT_ENCODER
from heliotrope.engine.model import EngineModel
from heliotrope.engine.work_weights import OnlineWeights, WeightsPrior, encoder_prior, generic_prior, profile_prior
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.metering.timeline import Timeline, encodes_only


class LearnedWeights:
    """Engines of one kind learn together; a kind outlives its last engine until a new one comes."""

    def __init__(self) -> None:
        self._of_kind: dict[tuple[EngineModel | str, bool], OnlineWeights] = {}
        """By kind of engine, and whether it only encodes."""

    def of(self, state: EndpointState, timelines: Iterable[Timeline]) -> OnlineWeights:
        """Those of an endpoint's kind; `timelines` are all there are, and use theirs."""
        traits = state.traits
        kind = (traits.engine or traits.variant or state.endpoint.key, encodes_only(state))
        known = self._of_kind.get(kind)
        if known is None:
            known = OnlineWeights(_prior(state))
            used = {timeline.learned for timeline in timelines}
            self._of_kind = {other: learned for other, learned in self._of_kind.items() if learned in used}
            self._of_kind[kind] = known
        return known


def accelerators_of(state: EndpointState) -> int | None:
    """How many an endpoint has, as far as its variant tells."""
    traits = state.traits
    if traits.engine is not None:
        return traits.engine.tensor_parallel
    return None if traits.hardware is None else traits.hardware.accelerators


def _prior(state: EndpointState) -> WeightsPrior:
    engine = state.traits.engine
    prior = generic_prior(accelerators_of(state) or 1) if engine is None else profile_prior(engine)
    return encoder_prior(DEFAULT_ENCODER, prior) if encodes_only(state) else prior
