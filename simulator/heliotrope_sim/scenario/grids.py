"""Grids of a scenario: RegionProfiles and regions of its own, with series that cover the run."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf
from typing import Any

import yaml

from heliotrope.api.documents import AnyResource, parse
from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.api.v1alpha1.common import GROUP
from heliotrope.carbon.series import Series
from heliotrope.carbon.signal import EmissionFactor, SignalType
from heliotrope.errors import InvalidInputError
from heliotrope.units import seconds_from_milliseconds
from heliotrope_sim.scenario.files import Files
from heliotrope_sim.scenario.model import Gaps, Scenario
from heliotrope_sim.scenario.places import Intensity, Region
from heliotrope_sim.scenario.series import FOREVER_S, beside, constant, first_gap, place_of, recorded, series_of


@dataclass(frozen=True, slots=True)
class Grid:
    """One region as the simulation takes it."""

    name: str
    carbon: Series | None
    """In Unix time; None: unknown."""
    source: str
    """In words."""
    signal_type: SignalType
    emission_factor: EmissionFactor
    pue: float
    rtt_seconds: Mapping[str, float]
    aws_region: str | None
    largest_share: float
    max_concurrent_requests: int | None


def resources(files: Files, name: str) -> list[AnyResource]:
    """Our resources in a YAML file of one or more documents; other kinds of documents are passed over.

    Raises:
        InvalidInputError: names the file, the document's number and the path of the bad field.
    """
    found: list[AnyResource] = []
    try:
        documents: list[Any] = list(yaml.safe_load_all(files.read(name)))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = name if mark is None else f"{name}:{mark.line + 1}"
        raise InvalidInputError(where, f"is not YAML: {getattr(error, 'problem', error)}") from error
    for number, document in enumerate(documents, start=1):
        if not isinstance(document, Mapping) or not str(document.get("apiVersion", "")).startswith(f"{GROUP}/"):
            continue
        try:
            found.append(parse(document))
        except InvalidInputError as error:
            raise InvalidInputError(f"{name}: document {number}", str(error)) from error
    return found


def grids(scenario: Scenario, files: Files, covered_s: float) -> tuple[Grid, ...]:
    """All regions by name, those of files first.

    Args:
        scenario: says which.
        files: that it names.
        covered_s: seconds from its start in which every series must have values.

    Raises:
        InvalidInputError: for an unknown zone, a series that cannot be read or has gaps, or kinds of intensities that
            must not be compared.
    """
    start = scenario.start.timestamp()
    profiles: dict[str, tuple[str, RegionProfile]] = {}
    for file in scenario.region_files:
        for resource in resources(files, file):
            if isinstance(resource, RegionProfile):
                if resource.metadata.name in profiles:
                    raise InvalidInputError(file, f"there is a RegionProfile {resource.metadata.name!r} already")
                profiles[resource.metadata.name] = (file, resource)
    own = {region.name: (f"regions[{i}]", region) for i, region in enumerate(scenario.regions)}
    found = []
    for name in [*profiles, *(name for name in own if name not in profiles)]:
        stated = own.get(name)
        if name not in profiles:
            assert stated is not None
            grid = _of_region(stated[1], stated[0], files)
        else:
            grid = _of_profile(*profiles[name], files, start, None if stated is None else stated[1].intensity)
            if stated is not None:
                grid = _replaced(grid, _of_region(stated[1], stated[0], files), stated[1])
        found.append(replace(grid, carbon=_checked(grid, scenario.gaps, start, start + covered_s, files)))
    kinds = {(grid.signal_type, grid.emission_factor) for grid in found if grid.carbon is not None}
    if len(kinds) > 1:
        words = "; ".join(f"{g.name}: {g.signal_type} {g.emission_factor}" for g in found if g.carbon is not None)
        raise InvalidInputError("regions", f"intensities of different kinds are never compared: {words}")
    return tuple(found)


def _of_region(region: Region, path: str, files: Files) -> Grid:
    carbon, source = None, "unknown"
    if region.intensity is not None:
        carbon, source = series_of(region.intensity, region.emission_factor, f"{path}.intensity", files)
    return Grid(
        name=region.name,
        carbon=carbon,
        source=source,
        signal_type=region.signal_type,
        emission_factor=region.emission_factor,
        pue=region.pue,
        rtt_seconds={name: seconds_from_milliseconds(ms) for name, ms in region.rtt_ms.items()},
        aws_region=region.aws_region,
        largest_share=region.largest_share_percent / 100.0,
        max_concurrent_requests=region.max_concurrent_requests,
    )


def _of_profile(
    file: str, profile: RegionProfile, files: Files, start_unix_s: float, replaced: Intensity | None
) -> Grid:
    spec, name = profile.spec, profile.metadata.name
    path = f"{file}: RegionProfile {name}"
    carbon: Series | None = None
    source = "replaced"
    if replaced is not None:
        pass
    elif spec.source.static is not None:
        carbon, source = constant(spec.source.static.intensity_grams_per_kwh), "static"
    elif spec.source.file is not None:
        name_of_file = beside(file, spec.source.file.path)
        carbon = recorded(name_of_file, spec.source.file, profile, path, files, start_unix_s)
        # A replayed time is in no line of the file.
        source = name_of_file if spec.source.file.replay is None else f"{name_of_file} (replayed)"
    else:
        raise InvalidInputError(
            f"{path}.spec.source",
            f"a live source has no past; add regions: [{{name: {name}, intensity: …}}] with a zone or a csv",
        )
    return Grid(
        name=name,
        carbon=carbon,
        source=source,
        signal_type=SignalType(spec.signal.type.value),
        emission_factor=EmissionFactor(spec.signal.emission_factor.value),
        pue=spec.pue,
        rtt_seconds={
            each.region: float(seconds_from_milliseconds(float(each.milliseconds))) for each in spec.round_trip_times
        },
        aws_region=None,
        largest_share=spec.largest_share_percent / 100.0,
        max_concurrent_requests=spec.capacity.max_concurrent_requests,
    )


def _replaced(grid: Grid, by: Grid, region: Region) -> Grid:
    """What a region of the scenario states instead of the RegionProfile of its name."""
    stated = region.model_fields_set
    return Grid(
        name=grid.name,
        carbon=by.carbon if "intensity" in stated else grid.carbon,
        source=by.source if "intensity" in stated else grid.source,
        signal_type=by.signal_type if "signal_type" in stated else grid.signal_type,
        emission_factor=by.emission_factor if "emission_factor" in stated else grid.emission_factor,
        pue=by.pue if "pue" in stated else grid.pue,
        rtt_seconds={**grid.rtt_seconds, **by.rtt_seconds},
        aws_region=by.aws_region,
        largest_share=by.largest_share if "largest_share_percent" in stated else grid.largest_share,
        max_concurrent_requests=by.max_concurrent_requests
        if "max_concurrent_requests" in stated
        else grid.max_concurrent_requests,
    )


def _checked(grid: Grid, gaps: Gaps, start: float, end: float, files: Files) -> Series | None:
    series = grid.carbon
    if series is None:
        return None
    if gaps is Gaps.HOLD:
        series = replace(series, longest_hold_s=inf, last_holds_s=2.0 * FOREVER_S)
    missing = first_gap(series, start, end)
    if missing is None or gaps is Gaps.UNKNOWN:
        return series
    where = (
        grid.source if grid.source not in files.contents else place_of(files.read(grid.source), missing, grid.source)
    )
    moment = datetime.fromtimestamp(missing, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    raise InvalidInputError(
        where,
        f"region {grid.name} has no intensity at {moment}, which the run needs (with an hour after the last arrival); "
        "fill it, choose another start, or set gaps: unknown or gaps: hold",
    )
