"""What a status says of GPUs whose file of originals is gone."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.agent.control.world import READING

from heliotrope.api.v1alpha1.nodepower import GpuSettings, GpuStatus, NodePowerStatus
from heliotrope_agent.control.lost_originals import presumed
from heliotrope_agent.state.records import Knob, Levels, Ownership

SET = GpuSettings(sm_clock_mhz=810, watts=300)
FOUND = GpuSettings(watts=400)


def records(effective: GpuSettings | None, original: GpuSettings | None, **reading: Any) -> tuple[Ownership, ...]:
    status = NodePowerStatus(gpus=(GpuStatus(uuid="GPU-1", effective=effective, original=original),))
    now = replace(READING, **{"power_limit_milliwatts": 300_000} | reading)
    return presumed(status, {"GPU-1": now}, Levels(sm_clock_mhz=1200), "boot", 7.0)


def test_what_was_set_goes_back_to_what_was_before() -> None:
    (found,) = records(SET, FOUND)
    assert found.touched == {Knob.SM_CLOCK, Knob.POWER_LIMIT}
    assert found.original == Levels(sm_clock_mhz=1200, power_limit_milliwatts=400_000)
    assert (found.boot_id, found.pod_uid) == ("boot", "")


@pytest.mark.parametrize("limit", [350_000, 400_000, None])
def test_a_limit_that_is_not_as_it_was_set_is_somebody_elses(limit: int | None) -> None:
    (found,) = records(SET, FOUND, power_limit_milliwatts=limit)
    assert found.touched == {Knob.SM_CLOCK}
    assert records(GpuSettings(watts=300), FOUND, power_limit_milliwatts=limit) == ()


def test_gpus_that_were_not_managed_or_are_gone_are_left_alone() -> None:
    assert records(SET, None) == ()
    assert records(None, FOUND) == ()
    assert records(GpuSettings(watts=400), FOUND, power_limit_milliwatts=400_000) == ()
    status = NodePowerStatus(gpus=(GpuStatus(uuid="GPU-2", effective=SET, original=FOUND),))
    assert presumed(status, {"GPU-1": READING}, Levels(), "boot", 0.0) == ()
    assert presumed(None, {"GPU-1": READING}, Levels(), "boot", 0.0) == ()
