import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from prometheus_client.parser import text_string_to_metric_families

from heliotrope.api.v1alpha1.common import Role
from heliotrope.api.v1alpha1.nodepower import IntentPod, PowerIntent
from heliotrope_agent.driver.interface import Device, Reading
from heliotrope_agent.errors import DeviceGoneError, DriverMissingError, PodsUnknownError
from heliotrope_agent.pods.claims import Claim, PodName
from heliotrope_agent.telemetry.telemetry import Telemetry
from heliotrope_epp.datalayer.metrics_text import VLLM, engine_metrics
from heliotrope_epp.datalayer.node_energy import Accelerator, node_reading

A, B = "GPU-a", "GPU-b"
FULL = Reading(
    sm_clock_mhz=1410,
    memory_clock_mhz=1593,
    power_limit_milliwatts=400_000,
    power_milliwatts=251_250,
    utilization_percent=87,
    temperature_celsius=61,
    clock_event_reasons=0x4,
    power_violation_nanoseconds=1_500_000_000,
    thermal_violation_nanoseconds=0,
)
ENGINE = Claim(PodName("team", "engine-0"), "vllm", A)


@dataclass
class World:
    """A node of two GPUs, as its driver and its kubelet tell of it."""

    energy: dict[str, int | None] = field(default_factory=lambda: {A: 18446744073709000000, B: 0})
    readings: dict[str, Reading] = field(default_factory=lambda: {A: FULL, B: Reading()})
    claimed: Mapping[str, tuple[Claim, ...]] | None = field(default_factory=lambda: {A: (ENGINE,)})
    intents: tuple[PowerIntent, ...] = (
        PowerIntent(
            namespace="team",
            variant="llama",
            role=Role.DECODE,
            pods=(IntentPod(name="engine-0", uid="u"),),
            sm_clock_mhz=1200,
        ),
    )
    now_s: float = 100.0
    unloaded: bool = False
    lost: bool = False
    mig: bool = False

    def devices(self) -> tuple[Device, ...]:
        if self.unloaded:
            raise DriverMissingError("no driver")
        return () if self.lost else (Device(A, 0, "NVIDIA A100", mig=self.mig), Device(B, 1, 'Odd "GPU"\\'))

    def read(self, uuid: str) -> Reading:
        if uuid not in self.readings:
            raise DeviceGoneError("gone")
        return self.readings[uuid]

    def energy_millijoules(self, uuid: str) -> int | None:
        if uuid not in self.energy:
            raise DeviceGoneError("gone")
        return self.energy[uuid]

    def claims(self) -> Mapping[str, tuple[Claim, ...]]:
        if self.claimed is None:
            raise PodsUnknownError("silence")
        return self.claimed

    def second(self, telemetry: Telemetry, *, millijoules: int = 300_000) -> None:
        """One passes, in which every GPU draws this."""
        self.now_s += 1.0
        self.energy = {uuid: None if v is None else v + millijoules for uuid, v in self.energy.items()}
        telemetry.sample()
        telemetry.look()


@pytest.fixture
def world() -> World:
    return World()


def started(world: World, *, dcgm_names: bool = True) -> Telemetry:
    telemetry = Telemetry(
        world,  # type: ignore[arg-type]
        world.claims,
        lambda: world.intents,
        node_name="node-1",
        dcgm_names=dcgm_names,
        clock=lambda: world.now_s,
        unix_clock=lambda: 1.8e9 + world.now_s,
    )
    telemetry.sample()
    telemetry.look()
    return telemetry


def series(page: bytes) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """By name and sorted labels."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def only(page: bytes, name: str, **labels: str) -> float:
    (value,) = (v for key, v in series(page)[name].items() if labels.items() <= dict(key).items())
    return value


def test_the_page_has_dcgms_names_units_and_labels(world: World) -> None:
    page = started(world).page().decode()
    labels = (
        '{gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA A100",Hostname="node-1",'
        'container="vllm",namespace="team",pod="engine-0"}'
    )
    for line in (
        f"DCGM_FI_DEV_SM_CLOCK{labels} 1410",
        f"DCGM_FI_DEV_MEM_CLOCK{labels} 1593",
        f"DCGM_FI_DEV_GPU_TEMP{labels} 61",
        f"DCGM_FI_DEV_POWER_USAGE{labels} 251.25",
        f"DCGM_FI_DEV_POWER_MGMT_LIMIT{labels} 400.0",
        f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{labels} 18446744073709000000",
        "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter",
        f"DCGM_FI_DEV_GPU_UTIL{labels} 87",
        f"DCGM_FI_DEV_CLOCKS_EVENT_REASONS{labels} 4",
        f"DCGM_FI_DEV_POWER_VIOLATION{labels} 1500000000",
        f"DCGM_FI_DEV_THERMAL_VIOLATION{labels} 0",
    ):
        assert line in page.splitlines()


def test_what_is_unknown_is_absent(world: World) -> None:
    world.energy[B] = None
    page = started(world).page()
    gpus = {dict(key)["UUID"] for name, each in series(page).items() if name.startswith("DCGM_") for key in each}
    assert gpus == {A}
    assert "NaN" not in page.decode()
    del world.energy[A], world.readings[A]
    telemetry = started(world)
    assert telemetry.dcgm_page() == b""
    assert only(telemetry.page(), "heliotrope_agent_sample_errors_total", source="energy") == 1
    assert only(telemetry.page(), "heliotrope_agent_sample_errors_total", source="readings") == 1


def test_the_pickers_readers_take_the_page_as_it_is(world: World) -> None:
    world.claimed = {A: (ENGINE,), B: (Claim(ENGINE.pod, "vllm", f"{B}::0"), Claim(PodName("x", "y"), "c", f"{B}::1"))}
    telemetry = started(world)
    for page in (telemetry.page(), telemetry.dcgm_page()):
        assert node_reading(page, 1.0).accelerators == {
            A: Accelerator(18446744073709000000, frozenset({("team", "engine-0")})),
            B: Accelerator(0, frozenset({("team", "engine-0"), ("x", "y")})),
        }
        read = engine_metrics(page, VLLM, 1.0)
        assert (read.power_watts, read.power_limit_watts, read.sm_clock_mhz) == (251.25, 400.0, 1410.0)
        assert read.throttled
    world.claimed = {}
    telemetry.look()
    assert node_reading(telemetry.page(), 1.0).accelerators[A].pods == frozenset()


def test_several_shares_of_one_container_are_one_series(world: World) -> None:
    world.claimed = {A: (Claim(ENGINE.pod, "vllm", f"{A}::0"), Claim(ENGINE.pod, "vllm", f"{A}::1"))}
    assert len(series(started(world).dcgm_page())["DCGM_FI_DEV_SM_CLOCK"]) == 1


def test_joules_by_pod_variant_and_role_add_up_to_the_gpus(world: World) -> None:
    telemetry = started(world)
    for _ in range(3):
        world.second(telemetry, millijoules=123_457)
    page = telemetry.page()
    assert only(page, "heliotrope_agent_pod_energy_joules_total") == 370.371
    labels = {"namespace": "team", "pod": "engine-0", "variant": "llama", "role": "decode"}
    assert only(page, "heliotrope_agent_pod_energy_joules_total", **labels) == 370.371
    assert only(page, "heliotrope_agent_unattributed_energy_joules_total", uuid=B, reason="free") == 370.371
    assert only(page, "heliotrope_agent_gpu_energy_joules_total", uuid=A) == 370.371
    assert only(page, "heliotrope_agent_ended_pods_energy_joules_total") == 0.0


def test_a_pod_of_no_intent_has_no_variant(world: World) -> None:
    world.intents = ()
    assert '_pod_energy_joules_total{namespace="team",pod="engine-0"} 0.0' in started(world).page().decode()


def test_power_between_changes(world: World) -> None:
    telemetry = started(world)
    for millijoules in (300_000, 90_000):
        world.second(telemetry, millijoules=millijoules)
    page = telemetry.page()
    assert only(page, "heliotrope_agent_gpu_power_watts_sum", uuid=A) == pytest.approx(390.0)
    assert only(page, "heliotrope_agent_gpu_power_watts_count", uuid=A) == 2
    assert only(page, "heliotrope_agent_gpu_power_watts_bucket", uuid=A, le="100") == 1


def test_dcgms_names_may_be_left_to_a_dcgm_exporter(world: World) -> None:
    telemetry = started(world, dcgm_names=False)
    assert not any(name.startswith("DCGM_") for name in series(telemetry.page()))
    assert "heliotrope_agent_gpu_energy_joules_total" in series(telemetry.page())
    assert node_reading(telemetry.dcgm_page(), 0.0).accelerators.keys() == {A, B}


def test_old_readings_are_not_shown(world: World) -> None:
    telemetry = started(world)
    assert telemetry.problem() is None
    world.now_s += 5.5
    assert telemetry.dcgm_page() == b""
    assert telemetry.problem() == "no GPU was sampled for 6 s"
    # What was counted stays, and so does the time of the last sample.
    assert only(telemetry.page(), "heliotrope_agent_sample_timestamp_seconds") == 1.8e9 + 100.0
    assert "heliotrope_agent_gpu_energy_joules_total" in series(telemetry.page())
    world.second(telemetry)
    assert telemetry.problem() is None


def test_a_silent_kubelet_takes_the_labels_only_after_a_while(world: World) -> None:
    telemetry = started(world)
    world.claimed = None
    for _ in range(30):
        world.second(telemetry)
    page = telemetry.page()
    assert only(page, "DCGM_FI_DEV_SM_CLOCK", pod="engine-0") == 1410
    assert only(page, "heliotrope_agent_pods_known") == 0
    assert only(page, "heliotrope_agent_sample_errors_total", source="pods") == 30
    world.second(telemetry)
    page = telemetry.page()
    assert node_reading(page, 0.0).accelerators[A].pods == frozenset()
    assert only(page, "heliotrope_agent_unattributed_energy_joules_total", uuid=A, reason="unknown") == 31 * 300


def test_a_driver_that_is_gone_is_told(world: World) -> None:
    world.unloaded = True
    telemetry = started(world)
    assert telemetry.problem() == "no GPU was sampled yet"
    assert only(telemetry.page(), "heliotrope_agent_sample_errors_total", source="devices") == 2
    assert "heliotrope_agent_sample_timestamp_seconds" not in series(telemetry.page())


def test_a_driver_without_gpus_is_no_problem(world: World) -> None:
    world.lost = True
    telemetry = started(world)
    assert telemetry.problem() is None
    assert telemetry.dcgm_page() == b""
    world.lost = False
    world.second(telemetry)
    assert node_reading(telemetry.dcgm_page(), 0.0).accelerators.keys() == {A, B}


def test_gpus_are_named(world: World) -> None:
    world.mig = True
    page = started(world).page()
    assert only(page, "heliotrope_agent_gpu_info", uuid=A, gpu="0", vendor="nvidia", mig="true") == 1
    assert only(page, "heliotrope_agent_gpu_info", uuid=B, product='Odd "GPU"\\', mig="false") == 1


def test_it_samples_by_itself(world: World) -> None:
    telemetry = Telemetry(world, world.claims, lambda: world.intents, node_name="n", period_s=0.1)  # type: ignore[arg-type]
    telemetry.start()
    deadline = time.monotonic() + 20
    while series(telemetry.page())["heliotrope_agent_samples_total"][()] < 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    telemetry.stop()
    assert node_reading(telemetry.page(), 0.0).accelerators[A].pods == {("team", "engine-0")}
    assert only(telemetry.page(), "heliotrope_agent_sample_period_seconds") == 0.1
