"""Putting back where the node is not what it was."""

from dataclasses import dataclass, replace

import pytest
from tests.unit.agent.control.world import MemoryDriver, gpu

from heliotrope_agent.control.restore import Result, put_back_all
from heliotrope_agent.driver.interface import Reading
from heliotrope_agent.errors import DeniedError, DeviceUnknownError, DriverError
from heliotrope_agent.state.records import Knob, Levels, Ownership

GPU = gpu(0, milliwatts_min=100_000, milliwatts_max=350_000)


@dataclass
class BoundedDriver(MemoryDriver):
    """Refuses limits outside the device's bounds, as the real one does."""

    refusal: type[DriverError] = DriverError

    def set_power_limit(self, uuid: str, milliwatts: int) -> None:
        if not 100_000 <= milliwatts <= 350_000 or self.refusal is DeniedError:
            raise self.refusal("Invalid Argument")
        super().set_power_limit(uuid, milliwatts)

    def read(self, uuid: str) -> Reading:
        self._known(uuid)
        return super().read(uuid)

    def reset_sm_clock(self, uuid: str) -> None:
        self._known(uuid)
        super().reset_sm_clock(uuid)

    def _known(self, uuid: str) -> None:
        if uuid not in self.gpus:
            raise DeviceUnknownError(f"{uuid} is not there")


def owned(original: int, boot_id: str = "boot", uuid: str = GPU.uuid) -> Ownership:
    levels = Levels(power_limit_milliwatts=original)
    return Ownership(
        uuid,
        levels,
        Levels(810, None, 200_000),
        frozenset({Knob.SM_CLOCK, Knob.POWER_LIMIT}),
        "n",
        "p",
        "u",
        0.0,
        boot_id,
    )


@pytest.mark.parametrize(("original", "back"), [(400_000, 350_000), (90_000, 100_000), (350_000, 350_000)])
def test_an_original_limit_that_is_allowed_no_more_becomes_the_nearest(
    original: int, back: int, caplog: pytest.LogCaptureFixture
) -> None:
    driver = BoundedDriver([GPU])
    driver.gpus[GPU.uuid] = replace(driver.gpus[GPU.uuid], sm=810, limit=200_000)
    (done,) = put_back_all(driver, [owned(original)], "boot", lambda: None, 0.1)
    assert done.result is Result.RESTORED
    assert (driver.gpus[GPU.uuid].sm, driver.gpus[GPU.uuid].limit) == (None, back)
    assert ("allows no more" in caplog.text) == (original != back)


def test_a_refusal_for_another_reason_is_no_reason_for_another_limit() -> None:
    driver = BoundedDriver([GPU], refusal=DeniedError)
    driver.gpus[GPU.uuid].limit = 200_000
    (done,) = put_back_all(driver, [owned(350_000)], "boot", lambda: None, 0.1)
    assert not done.done
    assert driver.gpus[GPU.uuid].limit == 200_000


def test_a_gpu_that_was_taken_out_is_forgotten_after_the_reboot_and_not_before() -> None:
    driver = BoundedDriver([GPU])
    results = {
        boot_id: put_back_all(driver, [owned(400_000, "boot-1", uuid="GPU-gone")], boot_id, lambda: None, 0.1)[0].result
        for boot_id in ("boot-1", "boot-2")
    }
    assert results == {"boot-1": Result.FAILED, "boot-2": Result.FORGOTTEN}
