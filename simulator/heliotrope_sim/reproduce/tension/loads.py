"""Every policy at every load (§V-C, figure 4): the runs, and a table of all of them."""

from heliotrope.units import milliseconds_from_seconds
from heliotrope_sim.reproduce.report import Sheet
from heliotrope_sim.reproduce.row import PERCENT
from heliotrope_sim.reproduce.tension.case import Case
from heliotrope_sim.reproduce.tension.models import LLAMA, LOADS, MODELS, Served
from heliotrope_sim.reproduce.tension.plan import Found, Plan
from heliotrope_sim.reproduce.tension.policies import COMPARED, MOER


def cases(plan: Plan) -> list[Case]:
    """All."""
    found = [plan.case(m, m.rate(load), policy) for m in MODELS for load in LOADS for policy in COMPARED]
    return [*found, plan.case(LLAMA, LLAMA.rate("moderate"), MOER)]


class Loads:
    """The runs of figure 4 by model, load and policy."""

    def __init__(self, plan: Plan, found: Found) -> None:
        self.plan = plan
        self.found = found

    def case(self, model: Served, load: str, policy: str) -> Case:
        """One of them."""
        return self.plan.case(model, model.rate(load), policy)

    def saving(self, model: Served, load: str, policy: str) -> float:
        """Percent."""
        return self.found.saving(self.case(model, load, policy))

    def violation(self, model: Served, load: str, policy: str) -> float:
        """Percent."""
        return self.found.violation(self.case(model, load, policy))

    def ttft(self, model: Served, policy: str, load: str = "high") -> tuple[float, float, float]:
        """p50, p90, p99 in seconds."""
        return self.found[self.case(model, load, policy)].ttft_seconds


def load_sheet(loads: Loads) -> Sheet:
    """Every run."""
    rows = []
    for m in MODELS:
        for load in LOADS:
            for policy in COMPARED:
                o = loads.found[loads.case(m, load, policy)]
                rows.append(
                    (
                        f"{m.title}, {load}, {policy}",
                        f"{loads.saving(m, load, policy):.1f}",
                        f"{PERCENT * o.violation:.2f}",
                        f"{PERCENT * o.ttft_violation:.2f}",
                        f"{PERCENT * o.tpot_violation:.2f}",
                        *(f"{value:.2f}" for value in o.ttft_seconds),
                        f"{milliseconds_from_seconds(o.mean_tpot_seconds):.1f}",
                        f"{PERCENT * o.idle_share:.0f}",
                        f"{PERCENT * o.batch_share:.0f}",
                        f"{PERCENT * o.standing_share:.0f}",
                    )
                )
    columns = (
        "run",
        "CO2 saved, %",
        "violation, %",
        "of TTFT",
        "of TPOT",
        "TTFT p50, s",
        "p90",
        "p99",
        "mean TPOT, ms",
        "idle time, %",
        "batch / capacity, %",
        "idle + host carbon, %",
    )
    note = "The paper's regimes: under round robin low is below 15 % of the batch capacity, high above 40 %."
    return Sheet("Every policy at every load", columns, tuple(rows), note, id="load/all")
