"""Past intensity for settlement: files as grid operators and APIs give them, and what RegionProfiles name."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import median

from heliotrope.api.v1alpha1.regionprofile import RegionProfile
from heliotrope.carbon.series import Point, Series
from heliotrope.carbon.settlement import RegionSignal, SignalKind
from heliotrope.carbon.signal import EmissionFactor, SignalType
from heliotrope.errors import InvalidInputError
from heliotrope.providers.json_rows import rows_of, series_of
from heliotrope.providers.recorded import Recorded
from heliotrope.providers.table import MAX_BYTES, Columns, decompressed, read_table
from heliotrope.units import g_per_kwh_from_lb_per_mwh

TIME_NAMES = ("datetime_utc", "datetime", "point_time", "time", "timestamp", "from")
VALUE_NAMES = ("carbonIntensity", "carbon_intensity", "intensity_g_per_kwh", "intensity", "value")
ESTIMATED_NAMES = ("estimated", "isEstimated")
STEPS_HELD = 2.0
"""A value holds for this many of the series' usual steps; a longer gap is a gap."""


class Unit(StrEnum):
    """Units of intensity."""

    GRAMS_PER_KWH = "g/kWh"
    POUNDS_PER_MWH = "lb/MWh"
    """WattTime's."""


@dataclass(frozen=True, slots=True)
class Names:
    """Columns or keys to read; None takes the first well-known name that is there."""

    time: str | None = None
    value: str | None = None
    estimated: str | None = None


def read_history(path: Path, names: Names, unit: Unit = Unit.GRAMS_PER_KWH) -> Series:
    """The series of a CSV file (`.csv`, `.csv.gz`) or a JSON file (`.json`, `.json.gz`).

    JSON is a list of objects, or an object with such a list under one of its keys, as Electricity Maps (`history`) and
    WattTime (`data`) answer. Rows without a value are gaps. A value holds for at most two of the usual steps.

    Raises:
        InvalidInputError: if the file cannot be read; the path names it, and the row where one is at fault.
    """
    try:
        data = _content(path)
        as_json = ".json" in path.suffixes
        series = _read_json(data, names) if as_json else read_table(data, _columns(data, names))
    except OSError as error:
        raise InvalidInputError(str(path), f"cannot be read: {error.strerror or error}") from error
    except InvalidInputError as error:
        raise InvalidInputError(str(path), str(error)) from error
    if unit is Unit.POUNDS_PER_MWH:
        series = replace(
            series, values_g_per_kwh=tuple(g_per_kwh_from_lb_per_mwh(value) for value in series.values_g_per_kwh)
        )
    return with_gaps(series)


def with_gaps(series: Series) -> Series:
    """The series with each value held for at most two of its usual steps."""
    times = series.times_unix_s
    steps = [after - before for before, after in pairwise(times)]
    return replace(series, longest_hold_s=STEPS_HELD * median(steps)) if steps else series


def settlement_signal(profile: RegionProfile, folder: Path, curtailment_credit: float | None = None) -> RegionSignal:
    """The series that a RegionProfile's file or static source gives for the past, replays included.

    Args:
        profile: of the region.
        folder: where relative paths of files start.
        curtailment_credit: takes the place of the profile's own; None leaves that.

    Raises:
        InvalidInputError: if the source has no past that could be read here.
    """
    name, spec = f"RegionProfile {profile.metadata.name}", profile.spec
    if curtailment_credit is not None:
        spec = spec.model_copy(update={"curtailment_credit": curtailment_credit})
    kind = SignalKind(SignalType(spec.signal.type.value), EmissionFactor(spec.signal.emission_factor.value))
    if spec.source.static is not None:
        point = Point(0.0, spec.source.static.intensity_grams_per_kwh, estimated=None)
        return RegionSignal(Series.from_points([point], last_holds_s=inf), kind, "static")
    source = spec.source.file
    if source is None:
        raise InvalidInputError(name, "its source has no file to settle with; give one with --signal")
    if source.replay is not None and source.replay.wall_start is None:
        raise InvalidInputError(
            name, "its replay began whenever the picker did; state spec.source.file.replay.wallStart"
        )
    path = folder / source.path
    columns = Columns.of(source)
    series = read_history(path, Names(columns.time, columns.value, columns.estimated))
    try:
        recorded = Recorded.of(series, spec, source.replay, started_unix_s=0.0)
    except InvalidInputError as error:
        raise InvalidInputError(name, str(error)) from error
    credit = f" (α = {spec.curtailment_credit:g})" if kind.signal_type is SignalType.MARGINAL else ""
    return RegionSignal(recorded.series, kind, f"{recorded.source} {path.name}{credit}")


def _content(path: Path) -> bytes:
    if path.stat().st_size > MAX_BYTES:
        raise InvalidInputError("", f"is larger than {MAX_BYTES} bytes")
    data = path.read_bytes()
    return decompressed(data) if path.suffix == ".gz" else data


def _columns(data: bytes, names: Names) -> Columns:
    first = data.split(b"\n", 1)[0].decode("utf-8-sig", errors="replace")
    header = [name.strip() for name in next(csv.reader(io.StringIO(first)), [])]
    return Columns(
        time=names.time or _known(header, TIME_NAMES, "time"),
        value=names.value or _known(header, VALUE_NAMES, "value"),
        estimated=names.estimated or next((name for name in ESTIMATED_NAMES if name in header), None),
    )


def _known(present: Sequence[str], known: Sequence[str], what: str) -> str:
    for name in known:
        if name in present:
            return name
    raise InvalidInputError(
        "", f"which column is the {what}? It has {', '.join(present) or 'none'}; name it with --{what}-column"
    )


def _read_json(data: bytes, names: Names) -> Series:
    rows = rows_of(data)
    present = list(rows[0])
    columns = Columns(
        time=names.time or _known(present, TIME_NAMES, "time"),
        value=names.value or _known(present, VALUE_NAMES, "value"),
        estimated=names.estimated or next((name for name in ESTIMATED_NAMES if name in present), None),
    )
    return series_of(rows, columns)
