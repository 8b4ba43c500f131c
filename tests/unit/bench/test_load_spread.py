"""The spread of loads that a split of watts allows for is what the trace has."""

import pytest
from bench.load_spread import spread

from heliotrope.api.v1alpha1.common import Role
from heliotrope.power.lateness import LOAD_SPREAD


def test_the_split_allows_for_what_the_trace_has() -> None:
    found = spread()
    assert LOAD_SPREAD[Role.PREFILL] == LOAD_SPREAD[Role.BOTH] == pytest.approx(found["prompt_tokens"], abs=0.01)
    assert found["output_tokens"] <= LOAD_SPREAD[Role.DECODE] < found["output_tokens"] + 0.02
    assert abs(found["correlation_of_tokens"]) < 0.1, "phases are spread on their own"
