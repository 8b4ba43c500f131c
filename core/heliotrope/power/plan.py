"""Clocks and power limits of all variants of one policy: the least energy within the promise, and within a budget.

First each variant gets the clock of least energy (`clocks`). If what these clocks draw fits in the budget, that is it.
If not, the budget is split for most goodput (`split`) over clocks up to those: a faster clock than the one that keeps
the promise with room to spare has nothing to give.

Power here is what engines draw at a clock while they work without a pause, by their measured profiles. So a budget
holds at any load; measured draw would fall with the load and promise watts that a burst then takes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from heliotrope.api.v1alpha1.common import Role
from heliotrope.api.v1alpha1.workloadvariant import WorkloadVariantSpec
from heliotrope.power.clocks import ClockReason, ClockRules, choose_clock
from heliotrope.power.latency import NAN, Observed, predicted_tpot, utilization
from heliotrope.power.options import (
    ClockOption,
    Work,
    balanced_work,
    clock_options,
    full_option,
    option_at,
    peak_watts,
)
from heliotrope.power.pools import PowerPool
from heliotrope.power.split import Split, Verdict, split
from heliotrope.power.turns import SETTLE_SECONDS, Recent, Turn, may_lower_clocks


@dataclass(frozen=True, slots=True)
class VariantFacts:
    """A variant as it is now."""

    name: str
    """Unique, `namespace/name`."""
    spec: WorkloadVariantSpec
    awake: int
    """Replicas that serve or are about to."""
    resting: int = 0
    resting_watts: float | None = None
    """Of one replica at rest; None: unknown, and the lowest clock's counts."""
    present_mhz: int | None = None
    """The clock that was chosen last; None: the device's own choice."""
    requests_per_second: float = NAN
    """Of all replicas together."""
    ttft_seconds: float = NAN
    tpot_seconds: float = NAN
    work: Work | None = None
    """Its mean request; None: unknown."""
    for_budget: bool = False
    """Whether the present clock was chosen for a budget; without one it goes back even where the load is unknown."""
    recent: Recent = field(default_factory=Recent)


@dataclass(frozen=True, slots=True)
class PowerRules:
    """What a policy says on clocks."""

    clocks: ClockRules
    clock_per_phase: bool = True
    dwell_seconds: float = 60.0
    settle_seconds: float = SETTLE_SECONDS


@dataclass(frozen=True, slots=True)
class Setting:
    """What the accelerators of a variant are to be set to."""

    sm_clock_mhz: int | None
    """None: the device's own choice."""
    watts: int | None
    """Power limit of one accelerator; None: left alone."""
    reason: str
    """One CamelCase word: a `ClockReason` or a `Verdict`."""
    turn: Turn = Turn.FREE
    """What a lower clock waits for."""
    utilization: float = NAN
    """Share of its time that an engine works at this clock; NaN: unknown."""


@dataclass(frozen=True, slots=True)
class PowerPlan:
    """The outcome for one policy."""

    settings: Mapping[str, Setting]
    verdict: Verdict
    projected_watts: float
    """Power of all engines at these settings; NaN where a variant has no profile."""
    full_watts: float
    """The same with every variant left alone."""
    without_profile: tuple[str, ...] = ()
    """Variants whose power is unknown, which no budget can hold."""
    split: Split | None = None
    """None: the budget does not bind."""


def plan_power(
    variants: Sequence[VariantFacts], rules: PowerRules, budget_watts: float, now_unix_s: float
) -> PowerPlan:
    """The settings of a policy's variants.

    Args:
        variants: those that it governs and that have replicas.
        rules: what the policy says.
        budget_watts: the least that holds from now until a setting may change again; inf: no limit.
        now_unix_s: for dwell times and turns.
    """
    return Planning(variants, rules, now_unix_s).within(budget_watts)


class Planning:
    """A plan in two steps, as a budget may be a share of what would be drawn without it."""

    def __init__(self, variants: Sequence[VariantFacts], rules: PowerRules, now_unix_s: float) -> None:
        """Choose clocks whatever the budget; arguments as for `plan_power`."""
        self._rules = rules
        self._now_unix_s = now_unix_s
        self._seen = [_variant(facts, variants) for facts in variants]
        self._free = {each.facts.name: _efficient(each, rules, now_unix_s) for each in self._seen}

    @property
    def free_watts(self) -> float:
        """Power of all engines without a budget; NaN where a variant has no profile."""
        if any(each.full is None for each in self._seen):
            return NAN
        return self._drawn(self._free)

    def within(self, budget_watts: float) -> PowerPlan:
        """The plan; inf is no budget."""
        known = [each for each in self._seen if each.full is not None]
        chosen, projected = dict(self._free), self._drawn(self._free)
        verdict, parts = Verdict.UNLIMITED, None
        if projected > budget_watts:
            pools = [each.pool(chosen[each.facts.name].setting) for each in known]
            parts = split(pools, _asked(known), budget_watts, self._rules.clocks.promise)
            verdict = parts.verdict
            for each in known:
                if each.options:
                    chosen[each.facts.name] = _within_budget(each, parts, self._rules, self._now_unix_s)
            projected = self._drawn(chosen)
        missing = tuple(each.facts.name for each in self._seen if each.full is None)
        return PowerPlan(
            settings={each.facts.name: each.reported(chosen[each.facts.name]) for each in self._seen},
            verdict=verdict,
            projected_watts=NAN if missing else projected,
            full_watts=NAN if missing else sum(each.drawn(each.full) for each in known),
            without_profile=missing,
            split=parts,
        )

    def _drawn(self, chosen: Mapping[str, "_Chosen"]) -> float:
        return sum(each.drawn(chosen[each.facts.name].option) for each in self._seen if each.full is not None)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A setting, and the option that it comes to; None without a profile."""

    setting: Setting
    option: ClockOption | None


@dataclass(frozen=True, slots=True)
class _Variant:
    """A variant with the clocks that it may have."""

    facts: VariantFacts
    options: tuple[ClockOption, ...]
    """Clocks that may be set, or that a power limit may bring about."""
    full: ClockOption | None
    """What it does when it is left alone; None without a profile."""
    observed: Observed
    work: Work

    def drawn(self, option: ClockOption | None) -> float:
        """Power of all its replicas in watts, at an option."""
        return 0.0 if option is None else self.facts.awake * option.watts + self.standing

    @property
    def standing(self) -> float:
        """Power of its replicas at rest in watts."""
        each = self.facts.resting_watts
        if each is None:
            each = min((option.watts for option in (*self.options, self.full) if option is not None), default=0.0)
        return self.facts.resting * each

    def reported(self, chosen: _Chosen) -> Setting:
        """The setting, with the share of its time that an engine works at it; NaN if unknown."""
        option = chosen.option
        busy = NAN if option is None else utilization(option, self.observed.requests_per_second)
        return replace(chosen.setting, utilization=busy)

    def pool(self, wanted: Setting) -> PowerPool:
        """For the split: clocks up to the one of least energy, where that one is known to keep the promise."""
        assert self.full is not None, "asked of variants with a profile only"
        options = self.options or (self.full,)
        if wanted.sm_clock_mhz is not None and wanted.reason in (ClockReason.EFFICIENT, ClockReason.HELD):
            options = tuple(each for each in options if each.sm_clock_mhz <= wanted.sm_clock_mhz) or options[:1]
        present = option_at(self.options, self.facts.present_mhz) or self.full
        return PowerPool(
            name=self.facts.name,
            model=self.facts.spec.model,
            role=self.facts.spec.role,
            replicas=self.facts.awake,
            options=options,
            tpot_seconds=tuple(predicted_tpot(each, present, self.observed) for each in options),
            standing_watts=self.standing,
            slots=self._slots(present),
            present_mhz=self.facts.present_mhz,
        )

    def _slots(self, present: ClockOption) -> float:
        """Requests that a decode engine works on at once, by Little's law with the TPOT that is seen."""
        if self.facts.spec.role is not Role.DECODE:
            return 1.0
        return self.work.output_tokens * self.observed.tpot_seconds / present.output_seconds


def _variant(facts: VariantFacts, variants: Sequence[VariantFacts]) -> _Variant:
    counted = facts.work is not None and facts.work.known
    if facts.work is not None and counted:
        work = facts.work
    else:
        same = [each for each in variants if each.spec.model == facts.spec.model]
        work = balanced_work([each.spec for each in same], [each.awake for each in same])
    options, limits = clock_options(facts.spec, work), facts.spec.watt_range
    if facts.spec.clock_range is None and limits is not None:
        count = facts.spec.accelerator.count
        options = tuple(
            each
            for each in clock_options(facts.spec, work, full_range=True)
            if limits.min_watts <= each.watts / count <= limits.max_watts
        )
    rate = facts.requests_per_second / facts.awake if counted and facts.awake > 0 else NAN
    return _Variant(
        facts,
        options,
        full_option(facts.spec, work),
        Observed(rate, facts.ttft_seconds, facts.tpot_seconds),
        work,
    )


def _efficient(variant: _Variant, rules: PowerRules, now_unix_s: float) -> _Chosen:
    """The clock of least energy within the promise, whatever the budget."""
    facts = variant.facts
    reason = None
    if variant.full is None:
        reason = ClockReason.NO_PROFILE
    elif facts.spec.clock_range is None:
        reason = ClockReason.NO_RANGE
    elif not variant.options:
        reason = ClockReason.NO_PROFILE
    elif not rules.clock_per_phase:
        reason = ClockReason.NOT_ASKED
    if reason is not None:
        return _Chosen(Setting(None, None, reason.value), variant.full)
    turn = may_lower_clocks(
        facts.recent, now_unix_s, dwell_seconds=rules.dwell_seconds, settle_seconds=rules.settle_seconds
    )
    choice = choose_clock(
        variant.options, facts.present_mhz, variant.observed, rules.clocks, may_lower=turn is Turn.FREE
    )
    mhz = choice.sm_clock_mhz
    if choice.reason is ClockReason.LOAD_UNKNOWN and facts.for_budget:
        mhz = None
    setting = Setting(mhz, None, choice.reason.value, turn if choice.reason is ClockReason.HELD else Turn.FREE)
    return _Chosen(setting, variant.full if mhz is None else option_at(variant.options, mhz))


def _within_budget(variant: _Variant, parts: Split, rules: PowerRules, now_unix_s: float) -> _Chosen:
    """The setting of a variant under a budget that binds: down at once, up only after the dwell time."""
    facts, spec = variant.facts, variant.facts.spec
    option, turn = option_at(variant.options, parts.shares[facts.name].sm_clock_mhz), Turn.FREE
    present = option_at(variant.options, facts.present_mhz)
    assert option is not None, "asked of variants with options only"
    assert present is not None, "asked of variants with options only"
    dwells = now_unix_s - facts.recent.clocks_changed_unix_s < rules.dwell_seconds
    if facts.present_mhz is not None and option.sm_clock_mhz > present.sm_clock_mhz and dwells:
        option, turn = present, Turn.DWELL
    watts = None
    if spec.watt_range is not None:
        # Where clocks are left alone, the limit is what brings the clock about.
        peak = peak_watts(spec, option.sm_clock_mhz) if spec.clock_range is not None else option.watts
        each = math.ceil(peak / spec.accelerator.count - _ROUNDING)
        watts = min(max(each, spec.watt_range.min_watts), spec.watt_range.max_watts)
    mhz = None if spec.clock_range is None else option.sm_clock_mhz
    return _Chosen(Setting(mhz, watts, parts.verdict.value, turn), option)


_ROUNDING = 1e-6
"""Watts by which a limit may be exceeded by the arithmetic alone."""


def _asked(variants: Sequence[_Variant]) -> dict[str, float]:
    """Requests per second by model; without an entry where it is unknown for a variant of the model.

    Prefill and decode engines see the same requests, so the larger of the two counts beside mixed ones.
    """
    asked: dict[str, float] = {}
    for model in {each.facts.spec.model for each in variants}:
        rates = dict.fromkeys(Role, 0.0)
        for each in variants:
            if each.facts.spec.model == model:
                rates[each.facts.spec.role] += each.observed.requests_per_second * each.facts.awake
        if all(math.isfinite(rate) for rate in rates.values()):
            asked[model] = rates[Role.BOTH] + max(rates[Role.PREFILL], rates[Role.DECODE])
    return asked
