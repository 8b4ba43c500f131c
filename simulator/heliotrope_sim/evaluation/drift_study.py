"""Two changes of the world, and how soon the models hold again."""

from collections.abc import Callable, Mapping, Sequence

from heliotrope.predict.targets import REQUESTS
from heliotrope_sim.evaluation.drift import ROLLING, recovery
from heliotrope_sim.evaluation.fleet import SweptEndpoint
from heliotrope_sim.evaluation.generate import generate, plans
from heliotrope_sim.evaluation.lengths import halves, load_lengths
from heliotrope_sim.evaluation.report import Cell, Section
from heliotrope_sim.evaluation.rows import Requests, requests_of
from heliotrope_sim.evaluation.view import ViewFactory

LIGHT_LOAD = 0.4
"""Models of the second change have seen loads up to here only."""
LIGHT_STREAM = 0.3
HEAVY_STREAM = 0.75


def drift_study(
    training: Requests,
    endpoints: Sequence[SweptEndpoint],
    capacity: Mapping[str, float],
    view: ViewFactory,
    seed: int,
    count: int,
    done: Callable[[], None],
) -> tuple[Section, dict[str, float]]:
    """An accelerator that no sample came from, and a load that none was seen at; on the last profiled endpoint.

    Args:
        training: what models are trained on before, apart from what is new.
        endpoints: all.
        capacity: of each, by name.
        view: the picker's bookkeeping.
        seed: of arrivals and models.
        count: requests after the change.
        done: called after each change.
    """
    endpoint = next(e for e in reversed(endpoints) if e.believed is not None and "/" not in e.name)
    accelerator = endpoint.hardware.accelerator
    changes = (
        ("new hardware", training.where(training.hardware != accelerator), LIGHT_STREAM),
        ("new load", training.where(training.utilisation <= LIGHT_LOAD), HEAVY_STREAM),
    )
    rows: list[tuple[Cell, ...]] = []
    under: list[float] = []
    settled: list[float] = []
    _, unseen = halves(load_lengths())
    for i, (name, before, load) in enumerate(changes):
        if not len(before):
            continue
        planned = plans([endpoint], dict(capacity), [load], count=count, seed=seed, stream=2 + i)
        after = requests_of(generate(planned, unseen, view, lambda: None))
        for target, found in recovery(before, after, seed).items():
            rows.append(
                (
                    f"{name}: {target}",
                    found.first_error,
                    found.steady_error,
                    found.under_10_percent if found.under_10_percent is not None else "never",
                    found.near_steady if found.near_steady is not None else "never",
                    found.trainings,
                )
            )
            under.append(float("inf") if found.under_10_percent is None else found.under_10_percent)
            settled.append(float("inf") if found.near_steady is None else found.near_steady)
        done()
    section = Section(
        "drift",
        f"Recovery after a change, on {endpoint.name} (errors over {ROLLING} requests)",
        (
            "change: target",
            "first error",
            "settled error",
            "requests until ≤ 10 %",
            "requests until settled",
            "trainings",
        ),
        tuple(rows),
        f"{len(REQUESTS.targets)} targets; the analytic estimate answers until a model has been promoted.",
    )
    worst = float("nan")
    return section, {"drift_requests": max(under, default=worst), "drift_settled_requests": max(settled, default=worst)}
