"""The simulator's engines without its region tier: every request goes to the one site there is when it comes."""

import numpy as np

from heliotrope_sim.engine.fixed_point import nanoseconds, seconds
from heliotrope_sim.fleet.accounts import Accounts
from heliotrope_sim.fleet.collect import Placed, collect
from heliotrope_sim.fleet.machines import Machines
from heliotrope_sim.fleet.results import Results
from heliotrope_sim.fleet.settings import Controller, RunSettings
from heliotrope_sim.fleet.topology import Topology
from heliotrope_sim.fleet.view import FleetView
from heliotrope_sim.fleet.workload import Workload

DRAIN_SECONDS = 1.0


def _nobody(*_: object) -> object:
    raise AssertionError("the only site takes every request; nobody is asked")


def run_day(
    topology: Topology,
    workload: Workload,
    controller: Controller | None,
    *,
    control_seconds: float,
    interval_seconds: float,
) -> Results:
    """Run a workload on one site; deterministic. The controller is called at 0 and every `control_seconds`."""
    machines = Machines(topology, workload)
    accounts = Accounts(machines)
    everything = np.arange(len(workload))
    machines.plan_transfers(everything, 0)
    machines.send(everything, np.zeros(len(workload), dtype=np.int64), workload.arrival_ns)
    control_ns, interval_ns = nanoseconds(control_seconds), nanoseconds(interval_seconds)
    end_ns, now_ns = workload.duration_ns, 0
    while now_ns < end_ns:
        machines.run_until(now_ns)
        accounts.read(now_ns)
        if now_ns and now_ns % interval_ns == 0:
            accounts.close(now_ns)
        if controller is not None and now_ns % control_ns == 0:
            view = FleetView(
                topology, (machines.view(0, now_ns),), np.zeros(1, dtype=np.int64), machines.first_token_ns
            )
            for command in controller(seconds(now_ns), view):
                machines.command(command, now_ns)
        now_ns = min((now_ns // each + 1) * each for each in (control_ns, interval_ns))
    now_ns = end_ns
    machines.run_until(now_ns)
    accounts.close(now_ns)
    while machines.busy:
        now_ns += nanoseconds(DRAIN_SECONDS)
        machines.run_until(now_ns)
        accounts.read(now_ns)
    accounts.close(now_ns)
    placed = Placed.none(len(workload))
    placed.site[:] = 0
    placed.sent_ns[:] = placed.closed_ns[:] = workload.arrival_ns
    # `_nobody` is never called, so it need not take what a picker is given.
    settings = RunSettings(picker=_nobody, carbon_step_seconds=interval_seconds)  # type: ignore[arg-type]
    return collect(machines, accounts, placed, np.zeros((1, 1), dtype=np.int64), settings)
