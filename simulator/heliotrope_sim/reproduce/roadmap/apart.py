"""Plans that always prefill elsewhere, as in a fixed disaggregation."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from heliotrope.decide.candidates import Candidates
from heliotrope.decide.phases import with_pair
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.request import RequestProfile

ALONE, PAIRED, FLOOR = 0.0, 1.0, 0.5


def always_apart(
    alone: Candidates,
    decodes: Sequence[int],
    prefills: Sequence[int],
    pairs: Sequence[tuple[int, int]],
    planes: NDArray[np.float64],
    request: RequestProfile,
    policy: DecisionPolicy,
) -> tuple[Candidates, DecisionPolicy]:
    """The pairs and nothing else: plans without a prefiller are put out by a floor of quality, which never yields.

    Args:
        alone: the endpoints.
        decodes: rows of those that decode.
        prefills: rows of those that prefill.
        pairs: positions in these two.
        planes: what KV takes, shape (`heliotrope.decide.phase_kernel.PLANES`, decodes, prefills).
        request: its prompt and expected output.
        policy: whose floor of quality is replaced; all endpoints serve one model.
    """
    prefillers, plans = _taken(alone, prefills), _taken(alone, decodes)
    for d, p in pairs:
        plans = with_pair(plans, prefillers, planes[:, d, p], request, d, p, certainty=policy.certainty)
    paired = np.arange(len(plans)) >= plans.aggregated_count
    return replace(plans, quality=np.where(paired, PAIRED, ALONE)), replace(policy, quality_floor=FLOOR)


def _taken(candidates: Candidates, rows: Sequence[int]) -> Candidates:
    """Some endpoints, each alone."""
    index = np.array(rows, dtype=np.intp)
    n = len(candidates)
    changes: dict[str, object] = {}
    for name in Candidates.__slots__:
        value = getattr(candidates, name)
        if name in ("region_names", "region_views"):
            continue
        if isinstance(value, np.ndarray):
            changes[name] = value[index]
        elif isinstance(value, tuple) and len(value) == n:
            changes[name] = tuple(value[i] for i in rows)
    return replace(candidates, endpoint_count=len(rows), **changes)  # type: ignore[arg-type]
