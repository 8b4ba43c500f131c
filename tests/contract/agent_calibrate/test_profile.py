"""The whole of it: what is measured through driver and HTTP is what the emulated engine truly draws."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.contract.agent_calibrate.bench import ENGINE, Bench
from tests.support.zygote import Zygote

from heliotrope.api.documents import parse
from heliotrope.api.v1alpha1 import WorkloadVariant
from heliotrope.api.v1alpha1.workloadvariant import Phase
from heliotrope.power.options import Work, clock_options
from heliotrope_agent.calibrate.profile import phase_profiles
from heliotrope_agent.calibrate.record import Record, load

STEP_MHZ = 15
VARIANT = {
    "apiVersion": "heliotrope.io/v1alpha1",
    "kind": "WorkloadVariant",
    "metadata": {"name": "llama", "namespace": "llm"},
    "spec": {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "endpointSelector": {"matchLabels": {"app": "llama"}},
        "accelerator": {"type": "A100-SXM4-40GB"},
        "clockRange": {"minMhz": 210, "maxMhz": 1410},
    },
}
COMMON = ("--idle-seconds=2", "--settle-seconds=0.5", "--repeats=2", "--max-repeats=3", "--target-percent=10")
SWEEPS = {
    Phase.DECODE: ("--batches=8", "--window-seconds=8", "--min-mhz=570", "--max-mhz=1140", "--clock-count=4"),
    Phase.PREFILL: ("--window-seconds=6", "--clock-count=6", "--refinements=6", "--max-repeats=4"),
}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> Iterator[Bench]:
    found = Bench(tmp_path_factory.mktemp("node"), zygote, time_scale=8.0)
    yield found
    found.close()


def truth(record: Record, phase: Phase, mhz: int) -> float:
    """J/token of the emulated engine under the load that was measured."""
    engine = ENGINE.at_clock(mhz)
    windows = [each for each in record.windows if each.phase is phase and each.mhz == mhz and each.clean]
    sample = (windows or [each for each in record.windows if each.phase is phase])[0]
    if phase is Phase.DECODE:
        context = sample.measured.context_tokens
        assert context is not None
        return float(engine.decode_joules(float(sample.batch), sample.batch * context)) / sample.batch
    step = float(ENGINE.max_num_batched_tokens)
    return float(engine.prefill_joules(step, step * record.sweep.prompt_tokens)) / step


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("phase", [Phase.DECODE, Phase.PREFILL])
def test_the_engines_best_clock_and_joules_are_found(own: Bench, tmp_path: Path, phase: Phase) -> None:
    document: dict[str, Any] = VARIANT | {"spec": VARIANT["spec"] | {"role": phase.value}}  # type: ignore[operator]
    file = tmp_path / "variant.yaml"
    file.write_text(yaml.safe_dump(document))
    own.output, own.raw, own.state = tmp_path / "out", tmp_path / "out" / "raw.json", tmp_path / "state"
    started = own.calibrate(f"--variant-file={file}", *COMMON, *SWEEPS[phase])
    assert started.wait(240.0) == 0, started.text()
    assert own.sm_lock_mhz is None

    record = load(own.raw)
    (found,) = phase_profiles(record)
    best = min(record.sweep.candidates, key=lambda mhz: truth(record, phase, mhz))
    assert abs(found.best_mhz - best) <= STEP_MHZ, started.text()
    inside = []
    for point in found.points:
        off_percent = 100.0 * abs(point.joules_per_token / truth(record, phase, point.mhz) - 1.0)
        # With a single window that counts the uncertainty is unknown.
        bound = 5.0 if math.isnan(point.uncertainty_percent) else point.uncertainty_percent
        inside.append(off_percent <= bound)
        assert off_percent <= 2.0 * bound, f"{point.mhz} MHz is off by {off_percent} %"
        assert point.idle_watts is not None
        assert point.idle_watts == pytest.approx(ENGINE.at_clock(point.mhz).idle_watts, rel=0.25)
    assert sum(inside) >= 0.8 * len(inside), "of intervals of 90 % at most a few are missed, and by little"

    written = own.profile
    assert written["metadata"] == document["metadata"]
    variant = parse(written)
    assert isinstance(variant, WorkloadVariant)
    assert {each.phase for each in variant.spec.energy_profile} == {phase}
    work = Work(1_000.0, 0.0) if phase is Phase.PREFILL else Work(0.0, 200.0)
    chosen = min(clock_options(variant.spec, work), key=lambda option: option.joules_per_request)
    assert abs(chosen.sm_clock_mhz - found.best_mhz) <= STEP_MHZ
    measured = [
        each for each in clock_options(variant.spec, work) if each.sm_clock_mhz in {p.mhz for p in found.points}
    ]
    assert min(measured, key=lambda option: option.joules_per_request).sm_clock_mhz == found.best_mhz
