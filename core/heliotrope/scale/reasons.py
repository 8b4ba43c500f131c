"""What bound the number that the program chose for a variant."""

import numpy as np

from heliotrope.scale.choices import top
from heliotrope.scale.options import Floats, Options, served_together
from heliotrope.scale.plan import Reason
from heliotrope.scale.search import Searched

_ROUNDING = 1e-6


class Reasons:
    """Answers for one plan."""

    def __init__(self, options: Options, searched: Searched) -> None:
        self._options, self._searched = options, searched
        self._left = options.free_now.copy()
        for i in range(len(options.variants)):
            grown = float(searched.replicas[i, 0]) - float(options.current[i])
            for index, weight in options.limits_of[i] if grown > 0.0 else ():
                self._left[index] -= weight * grown

    def why(self, i: int, desired: int) -> Reason:
        """The reason for an option's number, where nothing after the program has changed it."""
        o, bounds, variant = self._options, self._options.reaches[i], self._options.variants[i]
        if bounds is None:
            return Reason.NOT_MANAGED
        if not o.usable[i]:
            return Reason.NOT_ALLOWED
        group, current = o.groups[int(o.group[i])], int(o.current[i])
        if group.facts.held_requests > 0.0 and current == 0 < desired:
            return Reason.WOKEN
        later = float(self._searched.replicas[i, 1:].max(initial=0.0))
        missing = self._searched.short[int(o.group[i])] > _ROUNDING * max(float(group.demand.max()), _ROUNDING)
        wants_more = bool(missing.any()) or later > desired + _ROUNDING
        if desired == top(variant) > variant.min_replicas and (wants_more or self._others_carry(i)):
            return Reason.MAXIMUM
        if wants_more and desired == bounds.high:
            return Reason.DWELL if bounds.up_waits else Reason.STEP_LIMIT
        if desired >= o.ceiling[i]:
            return Reason.HUB_CEILING
        if desired == bounds.low > variant.min_replicas and later < desired < current:
            return Reason.STEP_LIMIT
        full = self._full(i)
        if full is not None and desired < top(variant) and (desired > 0 or wants_more):
            return full
        if desired == variant.min_replicas:
            return Reason.OBJECTIVE if desired == 0 and self._others_carry(i) else Reason.MINIMUM
        if 0 < desired <= group.least and not self._others_carry(i) and o.capacity[i] >= float(group.demand.max()):
            return Reason.MINIMUM
        if self._at_share(i):
            return Reason.REGION_SHARE
        if desired > current and self._enough_now(i) and group.demand[1:].max(initial=0.0) > group.demand[0]:
            return Reason.START_AHEAD
        return Reason.DEMAND_MET

    def _full(self, i: int) -> Reason | None:
        for index, weight in self._options.limits_of[i]:
            if weight > 0.0 and self._left[index] < weight:
                return Reason.REGION_WATTS if self._options.limits[index].accelerator is None else Reason.QUOTA
        return None

    def _others_carry(self, i: int) -> bool:
        rates = self._searched.rates
        members = self._options.groups[int(self._options.group[i])].members
        return bool(rates[members].sum() > rates[i].sum() + _ROUNDING)

    def _at_share(self, i: int) -> bool:
        o = self._options
        group = o.groups[int(o.group[i])]
        share = group.region_shares.get(int(o.region[i]))
        if share is None:
            return False
        here = group.members[(o.region[group.members] == o.region[i]) & o.entry[group.members]]
        carried: Floats = self._searched.rates[here].sum(axis=0)
        return bool((carried >= share * group.demand * (1.0 - _ROUNDING))[group.demand > 0.0].any())

    def _enough_now(self, i: int) -> bool:
        o = self._options
        group = o.groups[int(o.group[i])]
        rates = o.capacity * o.usable * o.current
        share = float(np.max(group.load_share[0]))
        return served_together(o.variants, group.members, rates) * share >= float(group.demand[0])
