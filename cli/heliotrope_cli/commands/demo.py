"""`heliotrope demo`: see it work without a cluster."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.console import Console

from heliotrope.errors import InvalidInputError
from heliotrope_cli.commands.extras import needs


def demo(
    *,
    output: Path = Path("build/demo"),
    arms: Annotated[tuple[Literal["round_robin", "heliotrope"], ...], Parameter(name="--arm", negative_iterable="")] = (
        "round_robin",
        "heliotrope",
    ),
    load: float = 0.55,
    seconds: float | None = None,
    seed: int = 7,
    ablations: str | None = None,
) -> None:
    """Route a real trace over three regions, round robin against Heliotrope, and compare joules, grams and latency.

    Starts a real Envoy (installed into the cache on first use), nine emulated vLLM engines and the endpoint picker;
    plays a recorded day of carbon intensity while a stretch of the Azure LLM trace and conversations of the Mooncake
    trace arrive. Then Heliotrope runs again without each of its levers, which tells what each one is worth. Needs no
    cluster.

    Args:
        output: Folder for summary.json, report.html, configuration and logs.
        arms: Which arms to run; give it twice for both (the default).
        load: Offered requests over what the whole fleet completes when saturated.
        seconds: Length of the arrivals in each arm; by default the scenario's.
        seed: Of prompts and emulated engines.
        ablations: Levers to do without, one further run each: all, none, or some of carbon, kv, sessions,
            consolidation, nothing (a second run of the whole policy, for the noise) with commas between them. By
            default all if both arms run, else none.
    """
    with needs("all"):
        from heliotrope_sim.demo import levers
        from heliotrope_sim.demo.arm import ArmName
        from heliotrope_sim.demo.run import run_demo
        from heliotrope_sim.demo.scenario import Scenario
    scenario = (
        Scenario(load=load, seed=seed) if seconds is None else Scenario(load=load, seed=seed, arrival_seconds=seconds)
    )
    names = list(dict.fromkeys(ArmName(arm) for arm in arms))
    both = len(names) == len(ArmName)
    chosen = levers.parse(ablations or ("all" if both else "none"))
    if chosen and not both:
        raise InvalidInputError("ablations", "are compared with both arms; leave --arm out")
    run_demo(scenario, output.resolve(), names, Console(), chosen)
