"""Windows and regions for tests: plain ones by keyword, and strategies with whatever may be unknown."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from heliotrope.engine.coefficients import coefficients, unknown_coefficients
from heliotrope.engine.model import EngineModel
from heliotrope.engine.profiles import load
from heliotrope.place.regions import Regions
from heliotrope.place.window import NO_HOME, Window

NOW = 1_700_000_000.0
NAN = float("nan")
ENGINE: EngineModel = load("llama-3.1-8b-a100-40gb")
ROWS = [unknown_coefficients(), coefficients(ENGINE), coefficients(load("llama-3.1-8b-h100"))]


def column(value: Any, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array(np.broadcast_to(np.asarray(value, dtype=np.float64), (count,)))


def regions(count: int, engine: EngineModel | None = ENGINE, **columns: Any) -> Regions:
    """Idle regions of 32 engines with 40 slots each; a keyword gives a column, or its value everywhere."""
    row = unknown_coefficients() if engine is None else coefficients(engine)
    defaults: dict[str, Any] = {
        "engine_rows": np.tile(row, (count, 1)),
        "engines": 32.0,
        "batch_capacity": 40.0,
        "running": 0.0,
        "waiting": 0.0,
        "waiting_tokens": 0.0,
        "kv_tokens": 0.0,
        "prefill_duty": 0.0,
        "idle_engines": 32.0,
        "intensity_g_per_kwh": np.linspace(100.0, 500.0, count),
        "pue": 1.1,
        "rtt_seconds": 0.0,
        "dispatch_seconds": 0.0,
        "age_seconds": 0.0,
        "largest_share": 1.0,
        "recent_share": NAN,
    }
    values = defaults | columns
    return Regions(
        names=tuple(f"r{i}" for i in range(count)),
        engine_rows=np.asarray(values.pop("engine_rows")),
        **{name: column(value, count) for name, value in values.items()},
    )


def window(count: int, places: int, **columns: Any) -> Window:
    """Requests of 841 and 71 tokens with the paper's SLOs, allowed everywhere."""
    values = {
        "prompt_tokens": 841.0,
        "output_tokens": 71.0,
        "waited_seconds": 0.0,
        "ttft_slo_seconds": 3.0,
        "tpot_slo_seconds": 0.1,
    } | {name: value for name, value in columns.items() if name not in ("cached_tokens", "allowed", "home")}
    return Window(
        cached_tokens=np.array(np.broadcast_to(np.asarray(columns.get("cached_tokens", 0.0)), (count, places))) * 1.0,
        allowed=np.array(np.broadcast_to(np.asarray(columns.get("allowed", True)), (count, places))),
        home=np.array(np.broadcast_to(np.asarray(columns.get("home", NO_HOME)), (count,))),
        **{name: column(value, count) for name, value in values.items()},
    )


@st.composite
def cases(draw: st.DrawFn, *, unknowns: bool = True, requests: int = 5, places: int = 3) -> tuple[Window, Regions]:
    """A window and regions of any load, with or without unknown values; two engine models among the regions.

    Values come from a seeded generator: hypothesis drawing them one by one takes longer than what is tested.
    """
    n, d = draw(st.integers(1, requests)), draw(st.integers(1, places))
    unknown_share = draw(st.sampled_from([0.0, 0.05, 0.2])) if unknowns else 0.0
    zero_share = draw(st.sampled_from([0.0, 0.3]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def known(low: float, high: float, *shape: int) -> np.ndarray[Any, Any]:
        return np.where(rng.random(shape) < zero_share, low, rng.uniform(low, high, shape))

    def maybe(low: float, high: float, *shape: int) -> np.ndarray[Any, Any]:
        return np.where(rng.random(shape) < unknown_share, NAN, known(low, high, *shape))

    rows = [ROWS[k] for k in np.where(rng.random(d) < unknown_share, 0, rng.integers(1, len(ROWS), d))]
    waiting = maybe(0.0, 3.0, d)
    found = regions(
        d,
        engine_rows=np.array(rows),
        engines=np.where(rng.random(d) < unknown_share, NAN, rng.choice([0.0, 1.0, 2.0, 4.0], d)),
        batch_capacity=maybe(0.0, 6.0, d),
        running=maybe(0.0, 6.0, d),
        waiting=waiting,
        waiting_tokens=waiting * 800.0,
        kv_tokens=maybe(0.0, 20_000.0, d),
        prefill_duty=maybe(0.0, 0.99, d),
        idle_engines=maybe(0.0, 4.0, d),
        intensity_g_per_kwh=maybe(0.0, 900.0, d),
        pue=maybe(1.0, 1.6, d),
        rtt_seconds=maybe(0.0, 0.3, d),
        dispatch_seconds=maybe(0.0, 0.2, d),
    )
    asked = window(
        n,
        d,
        prompt_tokens=rng.integers(1, 6_000, n) * 1.0,
        output_tokens=maybe(1.0, 600.0, n),
        waited_seconds=known(0.0, 0.2, n),
        ttft_slo_seconds=rng.choice([0.3, 1.0, 3.0, np.inf], n),
        tpot_slo_seconds=rng.choice([0.02, 0.03, 0.1, np.inf], n),
        cached_tokens=maybe(0.0, 6_000.0, n, d),
        allowed=rng.random((n, d)) < draw(st.sampled_from([1.0, 0.7])),
        home=rng.integers(NO_HOME, d, n),
    )
    return asked, found
