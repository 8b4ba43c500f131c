"""One engine, one request and pools of endpoints in regions, for tests of decisions."""

from collections.abc import Mapping, Sequence

import numpy as np

from heliotrope.cache.action import KvAction
from heliotrope.carbon.signal import ABSENT, CarbonSignal, EmissionFactor, Reading, SignalType
from heliotrope.decide.candidates import Candidates, Hardware, RegionView, region_index
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.request import RequestProfile
from heliotrope.decide.rows import describe
from heliotrope.engine.coefficients import coefficients, unknown_coefficients
from heliotrope.engine.model import (
    ClockResponse,
    DecodeTime,
    EngineModel,
    ModelError,
    PrefillTime,
    StepEnergy,
)
from heliotrope.predict.features import hardware_matrix

NOW = 1000.0
ENGINE = EngineModel(
    name="test-engine",
    model="m",
    accelerator="test",
    tensor_parallel=1,
    prefill=PrefillTime(400, 1e-5, 6e-5, 0.01, 0.001, 1e-10),
    decode=DecodeTime((0.010, 2e-4, 0.0), (0.0, 3e-8, 0.0)),
    energy=StepEnergy(5.0, 0.02, 1e-7, 3.0, 0.05, 1e-6),
    clock=ClockResponse(210, 1410, 15, 1.0, 0.1, 800, 2.0, 2.0),
    error=ModelError(0.05, 0.05, 0.05),
    idle_watts=72.0,
    sleep_watts=60.0,
    host_watts=37.5,
    kv_bytes_per_token=131072,
    kv_capacity_tokens=160_000,
    block_size=16,
    max_num_seqs=32,
    max_num_batched_tokens=8192,
    clock_mhz=1410,
)
HARDWARE = Hardware("test", 1, "m", "both")
REQUEST = RequestProfile("r-1", "m", prompt_tokens=1000, expected_output_tokens=200.0, streaming=True)
POLICY = DecisionPolicy("p", ttft_slo_seconds=3.0, tpot_slo_seconds=0.1)


def region(
    name: str, intensity: float | None, *, age_s: float = 0.0, kind: SignalType = SignalType.AVERAGE, pue: float = 1.2
) -> RegionView:
    if intensity is None:
        return RegionView(name, ABSENT, pue)
    reading = Reading(intensity, NOW - age_s, "test", kind, EmissionFactor.LIFECYCLE)
    return RegionView(name, CarbonSignal(reading, stale_after_s=60.0), pue)


def pool(
    regions: Sequence[str | None],
    views: Mapping[str, RegionView],
    *,
    running: Sequence[float] | float = 4.0,
    engines: Sequence[EngineModel | None] | None = None,
    **columns: Sequence[float] | float,
) -> Candidates:
    n = len(regions)

    def column(name: str, default: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array(np.broadcast_to(np.asarray(columns.get(name, default), dtype=np.float64), (n,)))

    batch = np.array(np.broadcast_to(np.asarray(running, dtype=np.float64), (n,)))
    models = tuple(engines) if engines is not None else (ENGINE,) * n
    names, codes = region_index(regions)
    return Candidates(
        endpoints=tuple(f"e{i}" for i in range(n)),
        endpoint_count=n,
        regions=tuple(regions),
        region_names=names,
        region_codes=codes,
        engine_rows=np.stack([unknown_coefficients() if e is None else coefficients(e) for e in models]),
        running=batch,
        waiting=column("waiting", 0.0),
        waiting_tokens=column("waiting_tokens", 0.0),
        oldest_waiting_seconds=column("oldest_waiting_seconds", 0.0),
        kv_tokens=column("kv_tokens", 0.0) + np.nan_to_num(batch) * 1100.0,
        prefill_duty=column("prefill_duty", 0.1),
        cached_tokens=column("cached_tokens", 0.0),
        quality=column("quality", 1.0),
        price_per_hour=column("price_per_hour", 4.0),
        base_score=column("base_score", 0.5),
        embodied_grams=column("embodied_grams", 164_000.0),
        embodied_lifetime_seconds=column("embodied_lifetime_seconds", 4 * 365 * 86400.0),
        region_views=views,
        hardware_rows=hardware_matrix([describe(HARDWARE, engine).row() for engine in models]),
        prefill_tokens_in_flight=column("prefill_tokens_in_flight", 0.0),
        decode_tokens_in_flight=column("decode_tokens_in_flight", 0.0),
        kv_capacity_tokens=column("kv_capacity_tokens", 160_000.0),
        power_watts=column("power_watts", np.nan),
        sm_clock_mhz=column("sm_clock_mhz", np.nan),
        seconds_since_piece=column("seconds_since_piece", np.nan),
        recent_running=column("recent_running", np.nan),
        recent_prompt_tokens_per_second=column("recent_prompt_tokens_per_second", np.nan),
        waiting_squared_tokens=column("waiting_squared_tokens", np.nan),
        step_seconds=column("step_seconds", np.nan),
        step_prefills=column("step_prefills", np.nan),
        kv_actions=(KvAction.RECOMPUTE,) * n,
        kv_sources=(None,) * n,
        transfer_seconds=column("transfer_seconds", 0.0),
        transfer_joules=column("transfer_joules", 0.0),
    )


THREE = {"a": region("a", 20.0), "b": region("b", 150.0), "c": region("c", 300.0)}
