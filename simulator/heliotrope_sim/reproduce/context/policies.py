"""The paper's policies (§4.1) and ours, CCAR, on the product's functions."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from heliotrope.cache.ccar import may_stay, propose, stays
from heliotrope.cache.gate import OFF, Gate
from heliotrope.cache.gate_features import GateFeatures, Placement, Turn, features_of
from heliotrope_sim.reproduce.context.profiles import MODEL_OF, MODELS, POOL_OF, REGION_OF, REGIONS, Floats
from heliotrope_sim.reproduce.context.replay import Choice, Policy, View
from heliotrope_sim.reproduce.context.workload import Workload

SESSION_AFFINITY = "Session-Affinity"
CARBON_AFFINITY = "Carbon-Affinity"
GAR = "GAR-like"
FAIR_CARBON = "FairCarbon-like"
CCAR = "CCAR"


def session_affinity(workload: Workload, view: View) -> Choice:
    """Keeps a session where it is while that is feasible; else, and at first, any feasible deployment by lot."""
    previous = view.session.previous
    if previous >= 0 and view.feasible[previous]:
        return Choice(previous)
    options = np.flatnonzero(view.feasible)
    if not len(options):
        return Choice(-1)
    return Choice(int(options[int(workload.coin[view.row] * len(options))]))


def carbon_affinity(_: Workload, view: View) -> Choice:
    """Places a session where carbon is least and keeps it while its cache is valid and the deployment feasible."""
    previous = view.session.previous
    if previous >= 0 and view.feasible[previous] and view.cached_tokens[previous] > 0.0:
        return Choice(previous)
    return Choice(propose(view.oblivious_grams, view.feasible))


def gar(workload: Workload, view: View) -> Choice:
    """The least carbon within the session's region, blind to caches; elsewhere only where that region has nothing."""
    inside = view.feasible & (workload.home_region[workload.session[view.row]] == REGION_OF)
    return Choice(propose(view.oblivious_grams, inside if inside.any() else view.feasible))


def fair_carbon(_: Workload, view: View) -> Choice:
    """The least carbon anywhere, blind to caches."""
    return Choice(propose(view.oblivious_grams, view.feasible))


@dataclass(frozen=True, slots=True)
class Ccar:
    """Algorithm 1."""

    gate: Gate = field(default=OFF)
    priced: bool = True
    """False: the proposal and the gate's estimates leave recomputation out (the ablation without pricing)."""

    def __call__(self, workload: Workload, view: View) -> Choice:
        """Propose, ask the gate where it may be asked, and stay or go."""
        grams = view.grams_co2e if self.priced else view.oblivious_grams
        proposal, previous = propose(grams, view.feasible), view.session.previous
        if not self.gate.on or not may_stay(proposal, previous, view.feasible, view.cached_tokens):
            return Choice(proposal)
        there, here, turn = sides(workload, view, grams, proposal)
        return Choice(previous, kept=True) if stays(there, here, turn, self.gate) else Choice(proposal)


POLICIES: Mapping[str, Policy] = {
    SESSION_AFFINITY: session_affinity,
    CARBON_AFFINITY: carbon_affinity,
    GAR: gar,
    FAIR_CARBON: fair_carbon,
}
"""The baselines, by the name in reports."""


def sides(workload: Workload, view: View, grams: Floats, proposal: int) -> tuple[Placement, Placement, Turn]:
    """The proposal, the last placement and the turn, as the gate wants them."""
    row, session = view.row, view.session
    turn = Turn(
        number=int(workload.turn[row]),
        new_tokens=float(workload.new_tokens[row]),
        history_tokens=float(workload.history_tokens[row]),
        expected_output_tokens=float(workload.expected_output_tokens[row]),
        seconds_since_last_turn=view.now_seconds - session.ended_seconds,
        switches=float(session.switches),
        turns_at_previous=float(session.turns_at_previous),
    )
    return _placement(view, grams, proposal), _placement(view, grams, session.previous), turn


def gate_features(workload: Workload, view: View, grams: Floats, proposal: int) -> GateFeatures:
    """The row that a gate would see."""
    return features_of(*sides(workload, view, grams, proposal))


def _placement(view: View, grams: Floats, a: int) -> Placement:
    pool = int(POOL_OF[a])
    return Placement(
        grams_co2e=float(grams[a]),
        cached_tokens=float(view.cached_tokens[a]),
        intensity_g_per_kwh=float(view.intensity_g_per_kwh[a]),
        quality_margin=float(view.quality_margin[MODEL_OF[a]]),
        kv_use=float(view.kv_use[pool]),
        free_share=float(view.free_share[pool]),
        model=MODELS[int(MODEL_OF[a])].name,
        region=REGIONS[int(REGION_OF[a])],
    )
