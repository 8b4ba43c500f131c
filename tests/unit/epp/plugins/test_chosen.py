"""The features of an endpoint that was chosen without a decision."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.epp.plugins.builders import NOW_UNIX_S, Carbon, metrics, option, region, request, state

from heliotrope.decide.policy import DecisionPolicy
from heliotrope.predict.features import FEATURE_COUNT, FEATURES, Group, column_of
from heliotrope_epp.datalayer.endpoint import Traits
from heliotrope_epp.plugins.options import Options
from heliotrope_epp.plugins.pickers.carbon import CarbonPicker
from heliotrope_epp.plugins.pickers.chosen import ChosenRows
from heliotrope_epp.plugins.pickers.ranking import PickerParameters

POLICY = DecisionPolicy("p", ttft_slo_seconds=10.0, tpot_slo_seconds=1.0)
REGIONS = {"r": region("r", 100.0)}
SHARED = [column_of("analytic_request_joules")]


def decided(carbon: Carbon) -> CarbonPicker:
    return CarbonPicker(PickerParameters(), carbon, Random(1))


LOADS = st.builds(
    metrics,
    running=st.none() | st.integers(0, 300).map(float),
    waiting=st.none() | st.integers(0, 50).map(float),
    kv_usage=st.none() | st.floats(0.0, 1.0),
    age_s=st.sampled_from([0.1, 60.0]),
)


@given(load=LOADS, cached=st.integers(0, 1_000).map(float), bytes_=st.integers(1, 20_000), profiled=st.booleans())
def test_it_is_the_row_of_a_decision_about_this_endpoint_alone(
    load: object, cached: float, bytes_: int, profiled: bool
) -> None:
    traits = None if profiled else Traits(region="r")
    chosen = option(state("e", metrics=load, region="r", traits=traits), cached)  # type: ignore[arg-type]
    asked = request(b"x" * bytes_)
    decision = decided(Carbon(POLICY, r=100.0)).evaluate(asked, Options.of([chosen]), np.zeros(1), NOW_UNIX_S)
    assert decision is not None
    row = ChosenRows().row(asked, chosen, REGIONS, NOW_UNIX_S)
    assert row.shape == (FEATURE_COUNT,)
    assert not np.isinf(row).any()
    np.testing.assert_array_equal(row, decision.estimates.features[0])


def test_among_others_only_the_consolidated_energy_differs() -> None:
    options = [option(state(f"e{i}", metrics=metrics(running=5.0 + i), region="r"), 8.0) for i in range(4)]
    decision = decided(Carbon(POLICY, r=100.0)).evaluate(request(), Options.of(options), np.zeros(4), NOW_UNIX_S)
    assert decision is not None
    row, among_others = ChosenRows().row(request(), options[2], REGIONS, NOW_UNIX_S), decision.estimates.features[2]
    differ = np.flatnonzero(~((row == among_others) | (np.isnan(row) & np.isnan(among_others))))
    assert differ.tolist() == SHARED
    assert row[SHARED] > among_others[SHARED], "a larger batch shares each step among more"


@pytest.mark.parametrize("group", [Group.STATE, Group.ANALYTIC])
def test_what_is_unknown_of_the_endpoint_is_not_zero(group: Group) -> None:
    row = ChosenRows().row(request(), option(state("e", metrics=None, traits=Traits())), {}, NOW_UNIX_S)
    columns = [i for i, feature in enumerate(FEATURES) if feature.group is group]
    assert np.isnan(row[columns]).all()
    assert row[column_of("prompt_tokens")] == 1_000.0


def test_what_is_kept_between_rows_follows_the_resources_and_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliotrope_epp.plugins.pickers.chosen.MAX_ENDPOINTS", 2)
    rows = ChosenRows()
    states = [state(f"e{i}", metrics=metrics(), region="r") for i in range(5)]
    joules = column_of("analytic_request_joules")
    for _ in range(2):
        for each in states:
            assert np.isfinite(rows.row(request(), option(each), REGIONS, NOW_UNIX_S)[joules])
    assert len(rows._fixed) <= 2
    states[4].traits = Traits(region="r")
    assert np.isnan(rows.row(request(), option(states[4]), REGIONS, NOW_UNIX_S)[joules]), "its profile is gone"
