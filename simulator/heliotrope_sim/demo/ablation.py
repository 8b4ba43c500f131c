"""What each lever is worth: an arm without it, beside the arm that has them all."""

from collections.abc import Mapping
from typing import Any

from heliotrope_sim.demo.levers import ABLATIONS, Lever

_KEPT = (
    "failed",
    "slo_violations",
    "joules",
    "grams_co2e",
    "ttft_p50_ms",
    "ttft_p95_ms",
    "cache_hit_share",
    "recomputed_prompt_tokens",
    "later_turns_elsewhere",
)
CAVEAT = (
    "One run of each arm. Levers interact: what one saves depends on the others, so the parts need not add up to the "
    "whole, and a lever may even cost grams that another one saves."
)


def attribution(
    base: Mapping[str, Any], ours: Mapping[str, Any], without: Mapping[Lever, Mapping[str, Any]]
) -> dict[str, Any]:
    """Grams and joules lost with each lever, also as a share of the whole saving; see `docs/demo.md` for each key.

    Args:
        base: figures of round robin.
        ours: of Heliotrope.
        without: of Heliotrope without each lever.
    """
    saved = {key: base[key] - ours[key] for key in ("joules", "grams_co2e")}
    levers = {
        lever.value: {
            "title": ABLATIONS[lever].title,
            "how": ABLATIONS[lever].how,
            "grams_lost": arm["grams_co2e"] - ours["grams_co2e"],
            "joules_lost": arm["joules"] - ours["joules"],
            "share_of_grams_saved": _share(arm["grams_co2e"] - ours["grams_co2e"], saved["grams_co2e"]),
            "share_of_joules_saved": _share(arm["joules"] - ours["joules"], saved["joules"]),
            **{key: arm[key] for key in _KEPT},
        }
        for lever, arm in without.items()
    }
    again = levers.pop(Lever.NOTHING.value, None)
    return {
        "grams_saved": saved["grams_co2e"],
        "joules_saved": saved["joules"],
        "levers": levers,
        "run_to_run": None
        if again is None
        else {
            "runs": 2,
            "grams_difference": abs(again["grams_lost"]),
            "joules_difference": abs(again["joules_lost"]),
            "second_run": again,
        },
        "caveat": CAVEAT,
    }


def _share(part: float, whole: float) -> float | None:
    """None where there is nothing to share out."""
    return part / whole if whole > 0.0 else None
