"""From a record to a WorkloadVariant's energy profile."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from heliotrope.api.documents import parse
from heliotrope.api.v1alpha1 import WorkloadVariant
from heliotrope.api.v1alpha1.common import API_VERSION, Role
from heliotrope.api.v1alpha1.workloadvariant import EnergyPoint, Phase
from heliotrope.errors import InvalidInputError
from heliotrope_agent.calibrate.clocks import best_clock, equals, smoothed
from heliotrope_agent.calibrate.errors import CalibrationError
from heliotrope_agent.calibrate.record import Kind, Record, Window
from heliotrope_agent.calibrate.statistics import half_width, mean
from heliotrope_agent.calibrate.sweep import points, usual_batch

_DIGITS = 4


@dataclass(frozen=True, slots=True)
class ProfilePoint:
    """One point of the profile, and what stands behind it."""

    phase: Phase
    mhz: int
    tokens_per_second: float
    joules_per_token: float
    """Along the parabola through the lowest points, where one explains them (`clocks.smoothed`)."""
    measured_joules_per_token: float
    """Mean of the windows as they were."""
    watts: float
    idle_watts: float | None
    seconds_per_token: float | None
    windows: int
    uncertainty_percent: float
    """Half width of the 90 % interval of J/token: Student's t over the windows, and the counters' timing; NaN: one
    window alone."""
    power_capped: bool

    @property
    def joules_per_token_above_idle(self) -> float | None:
        """J/token beyond what the idle GPUs draw in the same time."""
        if self.idle_watts is None:
            return None
        return self.joules_per_token - self.idle_watts / self.tokens_per_second


@dataclass(frozen=True, slots=True)
class PhaseProfile:
    """One phase at its usual batch."""

    phase: Phase
    batch: int
    points: tuple[ProfilePoint, ...]
    """By clock, ascending."""
    best_mhz: int
    equal_mhz: tuple[int, ...]
    """Clocks that the noise does not tell from the best, that one among them."""
    drift_percent: float | None
    """Change of J/token at the first clock from the beginning to the end."""
    left_out_mhz: tuple[int, ...]
    """Clocks without a single window that counts."""


def phase_profiles(record: Record) -> tuple[PhaseProfile, ...]:
    """What was measured, per phase at its usual batch.

    Raises:
        CalibrationError: if a phase has no window that counts.
    """
    return tuple(_phase_profile(record, phase) for phase in record.sweep.phases)


def _phase_profile(record: Record, phase: Phase) -> PhaseProfile:
    batch = usual_batch(record.sweep, record, phase)
    known = points(record, phase, batch)
    if not known:
        marks = sorted({mark for each in record.windows if each.phase is phase for mark in each.measured.marks})
        raise CalibrationError(
            f"no window of {phase.value} counts: {', '.join(marks) or 'none was measured'}; the raw file has "
            "them, and --resume with a higher --max-repeats tries again"
        )
    values = smoothed(known)
    found = tuple(_point(record, phase, batch, point.mhz, values[point.mhz]) for point in known)
    begun = {each.mhz for each in record.windows if each.phase is phase and each.batch == batch}
    return PhaseProfile(
        phase=phase,
        batch=batch,
        points=found,
        best_mhz=best_clock(known),
        equal_mhz=equals(known),
        drift_percent=_drift(record, phase, batch),
        left_out_mhz=tuple(sorted(begun - {point.mhz for point in known})),
    )


def _point(record: Record, phase: Phase, batch: int, mhz: int, joules_per_token: float) -> ProfilePoint:
    windows = [each for each in record.windows_of(phase, batch, mhz) if each.clean]
    per_token = [each.measured.joules_per_token for each in windows]
    rate = mean([each.measured.tokens_per_second for each in windows])
    idle = record.idle_at(mhz)
    seconds = [each.measured.seconds_per_token for each in windows if each.measured.seconds_per_token is not None]
    return ProfilePoint(
        phase=phase,
        mhz=mhz,
        tokens_per_second=rate,
        joules_per_token=joules_per_token,
        measured_joules_per_token=mean(per_token),
        watts=rate * joules_per_token,
        idle_watts=None if idle is None else idle.watts,
        seconds_per_token=mean(seconds) if seconds else None,
        windows=len(windows),
        uncertainty_percent=uncertainty_percent(windows),
        power_capped=any(mark == "PowerCapped" for each in windows for mark in each.measured.marks),
    )


def uncertainty_percent(windows: Sequence[Window]) -> float:
    """Half width of the 90 % interval of J/token in percent; NaN for a single window.

    The scatter of the windows, by Student's t, and what they all may have in common from the counters' timing are added
    linearly, for timing errors of windows under the same load are not independent.
    """
    values = [each.measured.joules_per_token for each in windows]
    timing = mean([each.measured.timing_percent for each in windows])
    return 100.0 * half_width(values) / mean(values) + timing


def _drift(record: Record, phase: Phase, batch: int) -> float | None:
    """How much J/token at the first clock has changed."""
    first = record.sweep.clocks[0]
    before = [each.measured.joules_per_token for each in record.windows_of(phase, batch, first) if each.clean]
    after = [
        each.measured.joules_per_token
        for each in record.windows
        if each.kind is Kind.DRIFT and each.phase is phase and each.batch == batch and each.clean
    ]
    return 100.0 * (mean(after) / mean(before) - 1.0) if before and after else None


def energy_points(profiles: Sequence[PhaseProfile]) -> tuple[EnergyPoint, ...]:
    """The profile as a WorkloadVariant holds it; uncertainty in whole percent, rounded up."""
    return tuple(
        EnergyPoint(
            phase=point.phase,
            sm_clock_mhz=point.mhz,
            tokens_per_second=_rounded(point.tokens_per_second),
            joules_per_token=_rounded(point.joules_per_token, _DIGITS + 2),
            watts=max(1, round(point.watts)),
            uncertainty_percent=_whole_percent(point.uncertainty_percent),
        )
        for each in profiles
        for point in sorted(each.points, key=lambda point: -point.mhz)
    )


def _whole_percent(value: float) -> int | None:
    return None if math.isnan(value) else min(100, max(1, math.ceil(value)))


def _rounded(value: float, digits: int = _DIGITS) -> float:
    """To significant digits, as nobody measures more; decimal strings stay short."""
    return float(f"{value:.{digits}g}")


def patch(profiles: Sequence[PhaseProfile], name: str | None, namespace: str | None) -> str:
    """A merge patch of a WorkloadVariant, as YAML: all of its energy profile and nothing else."""
    metadata = {"name": name, "namespace": namespace}
    document = {
        "apiVersion": API_VERSION,
        "kind": "WorkloadVariant",
        "metadata": {key: value for key, value in metadata.items() if value is not None},
        "spec": {"energyProfile": _documents(energy_points(profiles))},
    }
    return _yaml(document)


def completed(document: Mapping[str, Any], profiles: Sequence[PhaseProfile]) -> str:
    """A whole WorkloadVariant with its energy profile replaced, as YAML.

    Raises:
        InvalidInputError: if it is none, or would be refused by the API server.
    """
    whole = {**document, "spec": {**(document.get("spec") or {}), "energyProfile": _documents(energy_points(profiles))}}
    parse(whole)
    return _yaml(whole)


def read_variant(text: str) -> tuple[Mapping[str, Any], WorkloadVariant]:
    """The one WorkloadVariant of a YAML file.

    Raises:
        InvalidInputError: if there is none, several, or it is not valid.
    """
    try:
        documents = [each for each in yaml.safe_load_all(text) if isinstance(each, dict)]
    except yaml.YAMLError as error:
        raise InvalidInputError("--variant-file", f"is no YAML: {error}") from None
    variants = [each for each in documents if each.get("kind") == "WorkloadVariant"]
    if len(variants) != 1:
        raise InvalidInputError("--variant-file", f"must hold one WorkloadVariant, holds {len(variants)}")
    found = parse(variants[0])
    assert isinstance(found, WorkloadVariant)
    return variants[0], found


def phases_of(role: Role) -> tuple[Phase, ...]:
    """The phases that a role serves."""
    return (Phase.PREFILL, Phase.DECODE) if role is Role.BOTH else (Phase(role.value),)


def _documents(found: Sequence[EnergyPoint]) -> list[dict[str, Any]]:
    return [point.model_dump(by_alias=True, exclude_none=True, mode="json") for point in found]


class _Flow(dict[str, Any]):
    """Written on one line, as a table reads best."""


class _Dumper(yaml.SafeDumper):
    """Knows rows."""


def _row(dumper: yaml.SafeDumper, data: _Flow) -> yaml.Node:
    return dumper.represent_mapping("tag:yaml.org,2002:map", data, flow_style=True)


_Dumper.add_representer(_Flow, _row)


def _yaml(document: Mapping[str, Any]) -> str:
    spec = document["spec"]
    rows = {**document, "spec": {**spec, "energyProfile": [_Flow(each) for each in spec["energyProfile"]]}}
    return yaml.dump(rows, Dumper=_Dumper, sort_keys=False, width=160, allow_unicode=True)
