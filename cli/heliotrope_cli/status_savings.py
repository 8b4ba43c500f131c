"""Savings so far, from a picker's counters: what both arms of its requests drew since it started."""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from heliotrope.carbon.arms import Arm
from heliotrope.carbon.savings import MIN_REQUESTS, evidence, wording
from heliotrope_cli.status_read import PickerText

_LINE = re.compile(r"^(heliotrope_\w+_total)\{(.*)\} (\S+)(?: \S+)?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
MOST_UNPRICED = 0.01
"""Share of the energy without grams from which grams are unknown."""
INTERVALS = "chance is not ruled out, for intervals and classes see `heliotrope savings LEDGER`"


@dataclass(slots=True)
class ArmSums:
    """What a picker counted of one arm."""

    requests: float = 0.0
    unmeasured: float = 0.0
    joules: float = 0.0
    unpriced_joules: float = 0.0
    grams: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    """By the signal's type and emission factor, which are never added."""

    @property
    def measured(self) -> float:
        """Requests whose energy a counter saw."""
        return max(self.requests - self.unmeasured, 0.0)

    def per_request(self, signal: tuple[str, str] | None = None) -> float | None:
        """Joules, or grams by one signal; None: unknown."""
        if self.measured <= 0.0:
            return None
        if signal is None:
            return self.joules / self.measured if self.joules > 0.0 else None
        if self.unpriced_joules > MOST_UNPRICED * self.joules or signal not in self.grams:
            return None
        return self.grams[signal] / self.measured


@dataclass(frozen=True, slots=True)
class Counted:
    """A picker's counters, as far as savings go."""

    arms: dict[str, ArmSums]
    compared: dict[tuple[str, str], float]
    """Estimates of requests whose policy was not followed, by quantity (`joules`, `grams`) and plan."""


def read(text: str) -> Counted:
    """From a picker's `/metrics`; lines of others are passed over."""
    arms: dict[str, ArmSums] = defaultdict(ArmSums)
    compared: dict[tuple[str, str], float] = defaultdict(float)
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        name, labels = found[1], dict(_LABEL.findall(found[2]))
        try:
            value = float(found[3])
        except ValueError:
            continue
        if not isfinite(value) or "arm" not in labels:
            continue
        arm = arms[labels["arm"]]
        match name:
            case "heliotrope_arm_requests_total":
                arm.requests += value
            case "heliotrope_unmeasured_requests_total":
                arm.unmeasured += value
            case "heliotrope_energy_joules_total" if labels.get("line") == "request":
                arm.joules += value
            case "heliotrope_unpriced_energy_joules_total" if labels.get("line") == "request":
                arm.unpriced_joules += value
            case "heliotrope_grams_co2e_total" if labels.get("line") == "request":
                arm.grams[labels.get("signal_type", ""), labels.get("emission_factor", "")] += value
            case "heliotrope_compared_joules_total":
                compared["joules", labels.get("plan", "")] += value
            case "heliotrope_compared_grams_co2e_total":
                compared["grams", labels.get("plan", "")] += value
    return Counted(dict(arms), dict(compared))


def of_picker(picker: PickerText) -> dict[str, Any]:
    """What may be said of one picker's savings; unknown is None, and `says` has why."""
    row: dict[str, Any] = {
        "of": picker.where,
        "evidence": None,
        "requests": None,
        "joules_change": None,
        "grams_change": None,
        "signal": None,
        "other_pickers": picker.others,
    }
    if picker.text is None:
        return row | {"says": f"unknown: {picker.problem}"}
    counted = read(picker.text)
    steered = counted.arms.get(Arm.STEERED.value, ArmSums())
    held = counted.arms.get(Arm.HOLDOUT.value, ArmSums())
    row["requests"] = {Arm.STEERED.value: int(steered.requests), Arm.HOLDOUT.value: int(held.requests)}
    alone = f"; one of {picker.others + 1} pickers, the others were not asked" if picker.others else ""
    if held.requests <= 0.0:
        row |= _modelled(counted, steered)
        return row | {"says": row["says"] + alone}
    row["evidence"] = evidence(holdout=True).value
    if min(steered.measured, held.measured) < MIN_REQUESTS:
        says = (
            f"not enough to compare: it takes {MIN_REQUESTS} requests of known energy in each arm (there are "
            f"{held.measured:,.0f} held out and {steered.measured:,.0f} steered)"
        )
        return row | {"says": says + alone}
    signals = steered.grams.keys() | held.grams.keys()
    signal = next(iter(signals)) if len(signals) == 1 else None
    row["joules_change"] = _change(steered.per_request(), held.per_request())
    if signal is not None:
        row["grams_change"] = _change(steered.per_request(signal), held.per_request(signal))
        row["signal"] = " ".join(signal)
    grams = _said(row["grams_change"], f"emissions ({row['signal']})") if signal is not None else None
    if grams is None:
        reason = "signals of several kinds" if len(signals) > 1 else "much energy had no fresh signal"
        grams = f"emissions unknown ({reason})"
    energy = _said(row["joules_change"], "energy") or "energy unknown"
    return row | {"says": f"{energy}, {grams} per request, {wording(holdout=True)}; {INTERVALS}{alone}"}


def _modelled(counted: Counted, steered: ArmSums) -> dict[str, Any]:
    found: dict[str, Any] = {"evidence": evidence(holdout=False).value}
    ran, advised = (counted.compared.get(("joules", plan), 0.0) for plan in ("ran", "advised"))
    grams_ran, grams_advised = (counted.compared.get(("grams", plan), 0.0) for plan in ("ran", "advised"))
    if ran > 0.0:
        found["joules_change"] = _change(advised, ran)
        found["grams_change"] = _change(grams_advised, grams_ran)
        said = [_said(found["joules_change"], "energy"), _said(found["grams_change"], "emissions")]
        because = "plans that were advised against those that ran, in one estimate"
        parts = ", ".join(each for each in said if each is not None) or "nothing is known"
        return found | {"says": f"{parts} by what the policy advises, {wording(holdout=False, because=because)}"}
    if steered.requests > 0.0:
        return found | {"says": f"savings are {wording(holdout=False)}; set spec.holdoutPercent to measure them"}
    return found | {"evidence": None, "says": "no policy has decided on a request since this picker's start"}


def _change(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None or before <= 0.0 else now / before - 1.0


def _said(change: float | None, what: str) -> str | None:
    if change is None:
        return None
    return f"{abs(change):.1%} {'less' if change <= 0.0 else 'more'} {what}"
