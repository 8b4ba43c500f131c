"""Which field becomes what, for every mode and everything else that may scale a target."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.api.v1alpha1.controls import Actuation
from heliotrope_operator.actuation.authority import UNGOVERNED, Authority, Verdict
from heliotrope_operator.actuation.decide import Decision, Scaler, decide
from heliotrope_operator.actuation.outcome import ConflictReason, Reason
from heliotrope_operator.actuation.wanted import REWORDED_S, Wanted, WantedReplicas
from heliotrope_operator.kinds.autoscalers import Autoscaler
from heliotrope_operator.kinds.targets import ScaleTarget, actuated_target, actuation_key
from heliotrope_operator.resources import Key, Kind

VARIANT = Key(Kind.WORKLOAD_VARIANT, "ns", "v")
TARGET = ScaleTarget("ns", "apps", "Deployment", "engine")
HPA = (Key(Kind.HORIZONTAL_POD_AUTOSCALER, "ns", "own"), Autoscaler(TARGET, 1, 10))
KEDAS = (Key(Kind.HORIZONTAL_POD_AUTOSCALER, "ns", "keda-hpa-so"), Autoscaler(TARGET, 1, 10, keda="so"))
SO = (Key(Kind.SCALED_OBJECT, "ns", "so"), Autoscaler(TARGET))
VA = (Key(Kind.VARIANT_AUTOSCALING, "ns", "va"), Autoscaler(TARGET, llmd=True))


def allowed(mode: Actuation) -> Authority:
    return Authority(Verdict.ACT, mode)


def wanted(replicas: int | None = 4, *, act: bool = True) -> Wanted:
    return Wanted(replicas, Actuation.SCALE, act, "Planned", "why", 0.0)


def conflict(decision: Decision) -> ConflictReason | None:
    found = None if decision.outcome is None else decision.outcome.conflict
    return None if found is None else found.reason


def test_without_anything_else_the_target_itself_is_scaled() -> None:
    assert decide(VARIANT, TARGET, allowed(Actuation.SCALE), wanted(), []) == Decision(VARIANT, 4)


@pytest.mark.parametrize(
    ("scalers", "reason", "named"),
    [
        ([HPA], ConflictReason.HPA, "HorizontalPodAutoscaler own"),
        ([KEDAS, SO], ConflictReason.SCALED_OBJECT, "ScaledObject so"),
        ([KEDAS], ConflictReason.HPA, "keda-hpa-so"),
        ([VA], ConflictReason.LLMD_AUTOSCALER, "VariantAutoscaling va"),
        ([(HPA[0], Autoscaler(TARGET, llmd=True))], ConflictReason.LLMD_AUTOSCALER, "own"),
        ([(SO[0], Autoscaler(TARGET, paused="autoscaling.keda.sh/paused"))], ConflictReason.SCALED_OBJECT, "so"),
    ],
)
def test_scale_yields_to_whatever_else_scales(scalers: list[Scaler], reason: ConflictReason, named: str) -> None:
    for order in itertools.permutations(scalers):
        decision = decide(VARIANT, TARGET, allowed(Actuation.SCALE), wanted(), order)
        assert (decision.hold, decision.replicas, conflict(decision)) == (VARIANT, None, reason)
        assert decision.outcome is not None
        assert named in decision.outcome.message


@pytest.mark.parametrize(
    ("scalers", "held"),
    [([HPA], HPA[0]), ([SO], SO[0]), ([KEDAS, SO], SO[0]), ([HPA, VA], HPA[0])],
)
def test_a_ceiling_moves_what_the_user_made(scalers: list[Scaler], held: Key) -> None:
    assert decide(VARIANT, TARGET, allowed(Actuation.CEILING), wanted(), scalers) == Decision(held, 4)


@pytest.mark.parametrize(
    ("scalers", "reason"),
    [
        ([], Reason.NO_AUTOSCALER),
        ([KEDAS], Reason.NO_AUTOSCALER),
        ([VA], Reason.NO_AUTOSCALER),
        ([HPA, SO], Reason.CONFLICTED),
        ([(HPA[0], Autoscaler(TARGET, llmd=True))], Reason.CONFLICTED),
        ([(SO[0], Autoscaler(TARGET, paused="autoscaling.keda.sh/paused-replicas"))], Reason.AUTOSCALER_PAUSED),
    ],
)
def test_no_ceiling_moves_that_is_not_there_or_not_ours(scalers: list[Scaler], reason: Reason) -> None:
    decision = decide(VARIANT, TARGET, allowed(Actuation.CEILING), wanted(), scalers)
    assert decision.replicas is None
    assert decision.outcome is not None
    assert decision.outcome.reason is reason


@pytest.mark.parametrize("mode", [Actuation.SCALE, Actuation.CEILING])
@pytest.mark.parametrize("decided", [None, wanted(None), wanted(4, act=False)])
def test_what_is_not_known_is_held(mode: Actuation, decided: Wanted | None) -> None:
    scalers = [HPA] if mode is Actuation.CEILING else []
    decision = decide(VARIANT, TARGET, allowed(mode), decided, scalers)
    assert decision.hold == (HPA[0] if scalers else VARIANT)
    assert decision.replicas is None
    assert decision.outcome is not None
    assert decision.outcome.reason is Reason.PENDING


scalers = st.lists(st.sampled_from([HPA, KEDAS, SO, VA]), unique=True)
authorities = st.sampled_from(
    [
        UNGOVERNED,
        Authority(Verdict.HOLD, Actuation.SCALE, Reason.NAMESPACE_UNKNOWN, "unknown"),
        Authority(Verdict.RETURN, Actuation.METRICS_ONLY, Reason.METRICS_ONLY, "metrics"),
        allowed(Actuation.SCALE),
        allowed(Actuation.CEILING),
    ]
)


@given(authorities, st.none() | st.builds(wanted, st.none() | st.integers(0, 50)), scalers)
def test_nothing_is_written_unless_it_may_be_and_nobody_else_does(
    may: Authority, decided: Wanted | None, others: list[Scaler]
) -> None:
    decision = decide(VARIANT, TARGET, may, decided, others)
    assert decision.keep_all == (may.verdict is Verdict.HOLD) or conflict(decision) is not None
    if decision.replicas is None:
        return
    assert may.act
    assert decided is not None
    assert decision.replicas == decided.replicas
    assert decision.hold == VARIANT if may.mode is Actuation.SCALE else decision.hold != VARIANT
    if may.mode is Actuation.SCALE:
        assert others == []


@pytest.mark.parametrize("target", [TARGET, ScaleTarget("ns", "", "ReplicationController", "a.b-c")])
def test_a_target_is_its_key_s(target: ScaleTarget) -> None:
    assert actuated_target(actuation_key(target)) == target


def test_a_decision_that_says_the_same_is_no_news_and_other_words_seldom_are() -> None:
    def decided(replicas: int, words: str, at_s: float) -> Wanted:
        return Wanted(replicas, Actuation.SCALE, True, "Planned", words, at_s)

    table = WantedReplicas()
    assert table.put(VARIANT, decided(4, "a", 0))
    assert not table.put(VARIANT, decided(4, "a", REWORDED_S))
    assert table.put(VARIANT, decided(4, "b", REWORDED_S))
    assert not table.put(VARIANT, decided(4, "c", 2 * REWORDED_S - 1))
    assert table.put(VARIANT, decided(5, "c", 2 * REWORDED_S - 1))
    newest = table.get(VARIANT)
    assert newest is not None
    assert newest.message == "c"
    assert table.put(VARIANT, None)
    assert not table.put(VARIANT, None)
    assert len(table) == 0
