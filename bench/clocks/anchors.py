"""How the clock model relates to the two published best clocks (`data/mertside-dvfs`)."""

import json
from typing import Any

from heliotrope.engine.model import EngineModel
from heliotrope.engine.profiles import load
from heliotrope_sim.data import data_file

FILE = "mertside-dvfs/edp_optimization_results.json"
PROFILES = {"A100": "llama-3.1-8b-a100-40gb", "H100": "llama-3.1-8b-h100"}
CONTEXT = 600.0
BATCHES = (1.0, 64.0)
PROMPT = 1_155.0


def anchors() -> list[dict[str, Any]]:
    """Measured best clock and saving, and the model's at that clock and at its own best one, per phase."""
    measured = json.loads(data_file(FILE).read_text(encoding="utf-8"))
    rows = []
    for gpu, profile in PROFILES.items():
        (record,) = [each for each in measured if each["gpu"] == gpu and each["workload"] == "llama"]
        engine = load(profile)
        # The runs' highest clock may differ from the profile's (H100: PCIe and SXM).
        clock = round(record["optimal_frequency_edp_mhz"] / record["max_frequency_mhz"] * engine.clock.max_mhz)
        rows.append(
            {
                "gpu": gpu,
                "measured_mhz": record["optimal_frequency_edp_mhz"],
                "of_mhz": record["max_frequency_mhz"],
                "measured_saving_percent": record["energy_savings_edp_percent"],
                "clock_in_model_mhz": clock,
                "model": {
                    **{f"decode of {batch:.0f}": _work(engine, clock, batch) for batch in BATCHES},
                    "prefill": _work(engine, clock, None),
                },
            }
        )
    return rows


def _work(engine: EngineModel, clock: int, batch: float | None) -> dict[str, float]:
    def joules(mhz: int) -> float:
        at = engine.at_clock(mhz)
        return float(at.prefill_joules(PROMPT) if batch is None else at.decode_joules(batch, batch * CONTEXT))

    def saved(mhz: int) -> float:
        return round(100.0 * (1.0 - joules(mhz) / joules(engine.clock.max_mhz)), 2)

    def slower(mhz: int) -> float:
        at = engine.at_clock(mhz)
        if batch is None:
            return float(at.prefill_seconds(PROMPT) / engine.prefill_seconds(PROMPT))
        return float(at.decode_seconds(batch, batch * CONTEXT) / engine.decode_seconds(batch, batch * CONTEXT))

    steps = range(engine.clock.min_mhz, engine.clock.max_mhz + 1, engine.clock.step_mhz)
    best = min(steps, key=joules)
    return {
        "saving_percent": saved(clock),
        "more_time_percent": round(100.0 * (slower(clock) - 1.0), 2),
        "best_mhz": best,
        "best_saving_percent": saved(best),
        "best_more_time_percent": round(100.0 * (slower(best) - 1.0), 2),
    }
