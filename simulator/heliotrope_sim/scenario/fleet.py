"""Sites, schedulers and the network of a scenario as the simulator takes them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from heliotrope.engine.model import EngineModel
from heliotrope.engine.profiles import available, load
from heliotrope.errors import InvalidInputError
from heliotrope.units import BITS_PER_BYTE
from heliotrope_sim.fleet import topology as fleet
from heliotrope_sim.fleet.network import aws_rtt_seconds
from heliotrope_sim.scenario.files import Files
from heliotrope_sim.scenario.grids import Grid
from heliotrope_sim.scenario.model import Scenario
from heliotrope_sim.scenario.places import Dispatch, PrefillDecode, Site, Where

HOME_ZONE = "home"
_DISPATCH = {Dispatch.ROUND_ROBIN: fleet.Dispatch.ROUND_ROBIN, Dispatch.LEAST_LOADED: fleet.Dispatch.LEAST_LOADED}
BITS_PER_GIGABIT = 1e9
NANOJOULES_PER_JOULE = 1e9


def topology(scenario: Scenario, grids: Sequence[Grid], files: Files) -> fleet.Topology:
    """All of them.

    Raises:
        InvalidInputError: for a region, engine or round trip that is not known, or a site without capacity.
    """
    by_name = {grid.name: grid for grid in grids}
    for i, site in enumerate(scenario.sites):
        if site.region not in by_name:
            raise InvalidInputError(f"sites[{i}].region", _unknown_region(site.region, by_name))
    names = [site.name or site.region for site in scenario.sites]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInputError(
            "sites", f"names must be unique, and a site without one is called like its region: {twice}"
        )
    engines = {grid: sum(s.nodes * s.engines_per_node for s in scenario.sites if s.region == grid) for grid in by_name}
    home = scenario.schedulers.where is Where.HOME
    sites = tuple(
        _site(site, f"sites[{i}]", by_name[site.region], engines[site.region], files, home=home)
        for i, site in enumerate(scenario.sites)
    )
    schedulers, places = _schedulers(scenario, by_name)
    rtt = np.array([[_rtt_seconds(by_name[a], by_name[s.region]) for s in scenario.sites] for a in places])
    return fleet.Topology(sites, schedulers, rtt)


def scheduler_regions(scenario: Scenario) -> tuple[str, ...]:
    """The region of each scheduler, in their order."""
    count = scenario.schedulers.count
    if scenario.schedulers.where is Where.HOME:
        assert scenario.schedulers.home is not None
        return (scenario.schedulers.home,) * count
    regions = dict.fromkeys(site.region for site in scenario.sites)
    return tuple(region for region in regions for _ in range(count))


def engine_model(name: str, path: str, files: Files) -> EngineModel:
    """A shipped profile or a profile file.

    Raises:
        InvalidInputError: if there is none, or the file is not one.
    """
    if not name.endswith(".json"):
        if name not in available():
            raise InvalidInputError(
                path, f"no engine profile {name!r}; shipped are {', '.join(available())}; or name a file (*.json)"
            )
        return load(name)
    try:
        data = json.loads(files.read(name))
    except ValueError as error:
        raise InvalidInputError(name, f"is not JSON: {error}") from error
    if not isinstance(data, Mapping) or "model" not in data:
        raise InvalidInputError(name, "must be an object with the key model (docs/engine-models.md)")
    try:
        return EngineModel.from_mapping(data["model"])
    except InvalidInputError as error:
        raise InvalidInputError(name, f"model.{error}") from error


def _site(site: Site, path: str, grid: Grid, region_engines: int, files: Files, *, home: bool) -> fleet.Site:
    model = engine_model(site.engine, f"{path}.engine", files)
    if site.clock_mhz is not None:
        try:
            model = model.at_clock(site.clock_mhz)
        except InvalidInputError as error:
            raise InvalidInputError(f"{path}.clock_mhz", error.problem) from error
    capacity = model.max_num_seqs if site.batch_capacity is None else site.batch_capacity
    if capacity > model.max_num_seqs:
        raise InvalidInputError(
            f"{path}.batch_capacity", f"{capacity} exceeds the profile's max_num_seqs of {model.max_num_seqs}"
        )
    if grid.max_concurrent_requests is not None:
        capacity = min(capacity, grid.max_concurrent_requests // region_engines)
    if capacity < 1:
        raise InvalidInputError(
            path,
            f"has no capacity: region {grid.name} allows {grid.max_concurrent_requests} requests in flight for "
            f"{region_engines} engines, fewer than one each; raise max_concurrent_requests or take engines away",
        )
    return fleet.Site(
        name=site.name or site.region,
        zone=HOME_ZONE if home else site.region,
        model=replace(model, name=site.engine.removesuffix(".json")),
        nodes=site.nodes,
        engines_per_node=site.engines_per_node,
        carbon=grid.carbon,
        pue=grid.pue,
        host_watts_per_node=site.host_watts_per_node,
        batch_capacity=capacity,
        dispatch=_DISPATCH[site.dispatch],
        prefill_decode=None if site.prefill_decode is None else _split(site.prefill_decode),
    )


def _split(split: PrefillDecode) -> fleet.PrefillDecode:
    return fleet.PrefillDecode(
        prefill_engines=split.prefill_engines,
        link_bytes_per_second=split.link_gigabits_per_second * BITS_PER_GIGABIT / BITS_PER_BYTE,
        link_latency_seconds=split.link_latency_seconds,
        link_joules_per_byte=split.link_nanojoules_per_bit * BITS_PER_BYTE / NANOJOULES_PER_JOULE,
    )


def _schedulers(
    scenario: Scenario, grids: Mapping[str, Grid]
) -> tuple[tuple[fleet.SchedulerSite, ...], tuple[str, ...]]:
    places, home = scheduler_regions(scenario), scenario.schedulers.home
    if home is not None and home not in grids:
        raise InvalidInputError("schedulers.home", _unknown_region(home, grids))
    numbers = [sum(other == place for other in places[:i]) for i, place in enumerate(places)]
    sites = tuple(
        fleet.SchedulerSite(f"{place}-{number}", place if home is None else HOME_ZONE)
        for place, number in zip(places, numbers, strict=True)
    )
    return sites, places


def _rtt_seconds(source: Grid, target: Grid) -> float:
    """As stated in either direction, else as measured between AWS regions."""
    for stated in (source.rtt_seconds.get(target.name), target.rtt_seconds.get(source.name)):
        if stated is not None:
            return stated
    if source.name == target.name:
        return 0.0
    if source.aws_region is not None and target.aws_region is not None:
        return float(aws_rtt_seconds([source.aws_region], [target.aws_region])[0, 0])
    raise InvalidInputError(
        f"regions[{source.name}].rtt_ms",
        f"no round trip to {target.name} is stated in either direction; add it, or aws_region to both",
    )


def _unknown_region(name: str, grids: Mapping[str, Grid]) -> str:
    return f"there is no region {name!r}; there are {', '.join(grids) or 'none: add regions or region_files'}"
