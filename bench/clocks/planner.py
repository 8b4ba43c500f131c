"""Who sets the clocks of a simulated fleet: the decisions of `heliotrope.power`, asked as the operator asks them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf, nan
from typing import Protocol

import numpy as np
from bench.clocks.setups import Fleet, variant
from numpy.typing import NDArray

from heliotrope.api.v1alpha1.common import Role
from heliotrope.power.clocks import ClockRules, choose_clock
from heliotrope.power.latency import NAN, Observed, Promise, modelled
from heliotrope.power.options import ClockOption, Work, clock_options
from heliotrope.power.plan import Planning, PowerPlan, PowerRules, VariantFacts
from heliotrope.power.pools import PowerPool
from heliotrope.power.split import uniform_cap
from heliotrope.power.turns import NEVER, Recent, Turn, may_lower_clocks
from heliotrope_sim.engine.fixed_point import nanoseconds, seconds
from heliotrope_sim.fleet.settings import Command
from heliotrope_sim.fleet.workload import Workload

CONTROL_SECONDS = 30.0
RATE_SECONDS = 120.0
"""Over which requests are counted."""
WORK_SECONDS = 600.0
"""Over which tokens per request are counted."""
SEEN_SECONDS = 300.0
"""Over which TTFT is measured, where it is."""
QUANTILE = 0.99
LEAST_SEEN = 30
"""Requests without which no quantile is believed."""
HEADROOM = 0.15
"""`sloHeadroomPercent` where a policy does not say."""
RULES = PowerRules(ClockRules(Promise(nan, nan)))
"""The policy's defaults: saturation 85 %, dwell time one minute."""


class Seen(StrEnum):
    """What is known of latency."""

    MODELLED = "modelled"
    """Means, by the step model at the load."""
    MEASURED = "measured"
    """TTFT at the quantile of the promise, as clients had it, as the operator has it; TPOT by the step model."""


class Latencies(Protocol):
    """What the planner sees of the engines; `heliotrope_sim.fleet.view.FleetView` is one."""

    @property
    def first_token_ns(self) -> Callable[[int, int], NDArray[np.int64]]:
        """When the requests from one index to before another had their first token; -1: not yet."""
        ...


@dataclass(slots=True)
class Planner:
    """A controller as `heliotrope_sim.fleet` has them. It remembers what it has set and when."""

    fleet: Fleet
    work: Work
    promise: Promise
    workload: Workload
    seen: Seen = Seen.MODELLED
    shared: bool = False
    """One clock for both phases."""
    budget_watts: float = inf
    capped: bool = False
    """Under the budget one cap for every GPU, whatever its phase."""
    saves: bool = True
    """False: clocks move for the budget alone (`clockPerPhase: false`)."""
    headroom: float = HEADROOM
    pace: float = 1.0
    """Factor on every time that it waits or looks back, for days that are over sooner."""
    changes: int = 0
    history: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    _set: dict[Role, int | None] = field(default_factory=dict)
    _since: dict[Role, float] = field(default_factory=dict)
    _for_budget: dict[Role, bool] = field(default_factory=dict)

    def __call__(self, now: float, view: Latencies) -> Sequence[Command]:
        """Set clocks, where others are better than those there are."""
        facts = [self._facts(role, now, view) for role in self.fleet.roles]
        if self.capped:
            wanted = self._cap(facts)
        elif self.shared:
            wanted = self._one_clock(facts, now)
        else:
            plan = Planning(facts, self._rules, now).within(self.budget_watts)
            wanted = {role: plan.settings[role.value].sm_clock_mhz for role in self.fleet.roles}
            self._for_budget = dict.fromkeys(self.fleet.roles, plan.split is not None)
        return self._tell(wanted, now)

    @property
    def _rules(self) -> PowerRules:
        clocks = replace(RULES.clocks, promise=self.promise, slo_headroom=self.headroom)
        dwell = self.pace * RULES.dwell_seconds
        return replace(RULES, clocks=clocks, clock_per_phase=self.saves, dwell_seconds=dwell)

    @property
    def clocks_mhz(self) -> dict[Role, int | None]:
        """What it has set last, by role; None: left alone."""
        return {role: self._set.get(role) for role in self.fleet.roles}

    def _tell(self, wanted: dict[Role, int | None], now: float) -> list[Command]:
        highest = self.fleet.model.clock.max_mhz
        commands = []
        for role, mhz in wanted.items():
            if mhz == self._set.get(role):
                continue
            self._set[role], self._since[role] = mhz, now
            self.changes += 1
            commands.append(Command(0, self.fleet.roles[role], clock_mhz=highest if mhz is None else mhz))
        if commands:
            self.history.append((now, {role.value: self._set.get(role) or highest for role in self.fleet.roles}))
        return commands

    def _facts(self, role: Role, now: float, view: Latencies) -> VariantFacts:
        arrival_ns = self.workload.arrival_ns
        end = int(np.searchsorted(arrival_ns, nanoseconds(now)))
        counted = self.pace * RATE_SECONDS
        begin = int(np.searchsorted(arrival_ns, nanoseconds(max(now - counted, 0.0))))
        rate = (end - begin) / min(now, counted) if now > 0.0 else NAN
        work = self._seen_work(now, end)
        engine, count = self.fleet.model, len(self.fleet.roles[role])
        present = self._set.get(role)
        at = engine if present is None else engine.at_clock(present)
        observed = modelled(at, role, work, rate / count)
        if self.seen is Seen.MEASURED:
            observed = self._measured(role, observed, now, view)
        return VariantFacts(
            name=role.value,
            spec=variant(self.fleet, role, self.work, self.promise),
            awake=count,
            present_mhz=present,
            requests_per_second=rate,
            ttft_seconds=observed.ttft_seconds,
            tpot_seconds=observed.tpot_seconds,
            work=work,
            for_budget=self._for_budget.get(role, False),
            recent=Recent(clocks_changed_unix_s=self._since.get(role, NEVER)),
        )

    def _seen_work(self, now: float, end: int) -> Work:
        """The mean request of late; the part of it that was before the day had typical ones."""
        window = self.pace * WORK_SECONDS
        lately = slice(int(np.searchsorted(self.workload.arrival_ns, nanoseconds(max(now - window, 0.0)))), end)
        if lately.start == end:
            return self.work
        share = min(now / window, 1.0)
        prompts, outputs = self.workload.prompt_tokens[lately].mean(), self.workload.output_tokens[lately].mean()
        return Work(
            share * float(prompts) + (1.0 - share) * self.work.prompt_tokens,
            share * float(outputs) + (1.0 - share) * self.work.output_tokens,
        )

    def _measured(self, role: Role, expected: Observed, now: float, view: Latencies) -> Observed:
        """What clients had since clocks last changed, and at most lately; who still waits has waited until now."""
        if role is Role.DECODE:
            return expected
        arrival_ns, now_ns = self.workload.arrival_ns, nanoseconds(now)
        since = max(now - self.pace * SEEN_SECONDS, self._since.get(role, 0.0), 0.0)
        begin, end = np.searchsorted(arrival_ns, (nanoseconds(since), now_ns))
        first_ns = view.first_token_ns(int(begin), int(end))
        waited = np.where((first_ns < 0) | (first_ns > now_ns), now_ns, first_ns) - arrival_ns[begin:end]
        if len(waited) < LEAST_SEEN:
            return replace(expected, ttft_seconds=NAN)
        return replace(expected, ttft_seconds=seconds(int(np.quantile(waited, QUANTILE))))

    def _one_clock(self, facts: Sequence[VariantFacts], now: float) -> dict[Role, int | None]:
        """The clock of least energy of both phases together at which both keep the promise.

        Both phases choose from the same clocks with the energy of both; the faster answer suits both, as whoever keeps
        the promise at a clock keeps it at a faster one.
        """
        options = [_options(each) for each in facts]
        if not all(options):
            return {role: self._set.get(role) for role in self.fleet.roles}
        together = {
            same[0].sm_clock_mhz: sum(each.joules_per_request for each in same) for same in zip(*options, strict=True)
        }
        answers = []
        for each, own in zip(facts, options, strict=True):
            rate = each.requests_per_second / each.awake
            turn = may_lower_clocks(each.recent, now, dwell_seconds=self._rules.dwell_seconds)
            choice = choose_clock(
                [replace(option, joules_per_request=together[option.sm_clock_mhz]) for option in own],
                each.present_mhz,
                Observed(rate, each.ttft_seconds, each.tpot_seconds),
                self._rules.clocks,
                may_lower=turn is Turn.FREE,
            )
            answers.append(choice.sm_clock_mhz)
        fastest = None if None in answers else max(mhz for mhz in answers if mhz is not None)
        return dict.fromkeys(self.fleet.roles, fastest)

    def _cap(self, facts: Sequence[VariantFacts]) -> dict[Role, int | None]:
        """What operators do without phases; it knows the clocks' watts as well as the split does."""
        pools = [PowerPool(each.name, each.spec.model, each.spec.role, each.awake, _options(each)) for each in facts]
        capped = uniform_cap(pools, {}, self.budget_watts, self.promise)
        return {role: capped.shares[role.value].sm_clock_mhz for role in self.fleet.roles}


def _options(facts: VariantFacts) -> tuple[ClockOption, ...]:
    return () if facts.work is None else clock_options(facts.spec, facts.work)


def full_watts(fleet: Fleet, work: Work, promise: Promise) -> float:
    """What the fleet draws at most with its clocks left alone, as budgets count it."""
    facts = [
        VariantFacts(role.value, variant(fleet, role, work, promise), len(engines), work=work)
        for role, engines in fleet.roles.items()
    ]
    plan: PowerPlan = Planning(facts, replace(RULES, clocks=replace(RULES.clocks, promise=promise)), 0.0).within(inf)
    return plan.full_watts
