"""What idle engines and hosts emit (§VI)."""

from heliotrope_sim.reproduce.row import PERCENT, Row
from heliotrope_sim.reproduce.tension.loads import Loads
from heliotrope_sim.reproduce.tension.models import LLAMA, LOADS, MODELS
from heliotrope_sim.reproduce.tension.policies import FACILITY, ROUND_ROBIN

PAPER_FACILITY_IDLE = {"low": 73.0, "moderate": 56.0, "high": 33.0}


def standing_rows(loads: Loads) -> list[Row]:
    """Idle engines and hosts (§VI)."""
    outcomes = {(m.name, load): loads.found[loads.case(m, load, FACILITY)] for m in MODELS for load in LOADS}
    shares = [PERCENT * o.standing_share for o in outcomes.values()]
    idle = {load: PERCENT * outcomes["llama", load].idle_share for load in LOADS}
    blind = PERCENT * max(loads.found[loads.case(LLAMA, load, ROUND_ROBIN)].idle_share for load in LOADS)
    dirty = [PERCENT * o.dirty_standing_share for o in outcomes.values()]
    rows = [
        Row(
            "standing/share",
            f"Idle and host share of the carbon left by {FACILITY}",
            "28 to 81",
            f"{min(shares):.0f} to {max(shares):.0f}",
            "%",
            min(shares) < 50.0 < max(shares),
            "over models and loads; judged: from less than half to more",
        )
    ]
    rows += [
        Row(
            f"standing/idle/{load}",
            f"{FACILITY}: time that Llama's engines are idle, {load} load",
            PAPER_FACILITY_IDLE[load],
            idle[load],
            "%",
            None,
        )
        for load in LOADS
    ]
    rows.append(
        Row(
            "standing/idle/trend",
            "That share falls with the load",
            "falls",
            " > ".join(f"{idle[load]:.0f}" for load in LOADS),
            "%",
            idle["low"] > idle["moderate"] > idle["high"],
            "judged",
        )
    )
    note = "judged: as the paper's"
    rows.append(
        Row("standing/idle/blind", "Round robin: most idle time, Llama", "≤ 10", blind, "%", blind <= 10.0, note)
    )
    note = "least over models and loads; judged: most of it"
    title = "Idle and host carbon from sites with intensity above the median"
    rows.append(Row("standing/dirty", title, "> 85", min(dirty), "%", min(dirty) > 50.0, note))
    return rows
