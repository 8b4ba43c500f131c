"""`heliotrope demo`: see it work without a cluster."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.console import Console

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
) -> None:
    """Route a real trace over three regions, round robin against Heliotrope, and compare joules, grams and latency.

    Starts a real Envoy (installed into the cache on first use), nine emulated vLLM engines and the endpoint picker;
    plays a recorded day of carbon intensity while a stretch of the Azure LLM trace arrives. Needs no cluster.

    Args:
        output: Folder for summary.json, report.html, configuration and logs.
        arms: Which arms to run; give it twice for both (the default).
        load: Offered requests over what the whole fleet completes when saturated.
        seconds: Length of the arrivals in each arm; by default the scenario's.
        seed: Of prompts and emulated engines.
    """
    with needs("all"):
        from heliotrope_sim.demo.arm import ArmName
        from heliotrope_sim.demo.run import run_demo
        from heliotrope_sim.demo.scenario import Scenario
    scenario = (
        Scenario(load=load, seed=seed) if seconds is None else Scenario(load=load, seed=seed, arrival_seconds=seconds)
    )
    run_demo(scenario, output.resolve(), [ArmName(arm) for arm in arms], Console())
