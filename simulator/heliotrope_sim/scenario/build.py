"""A scenario with its files as what the simulator runs; everything is checked here, before anything runs."""

from collections.abc import Iterator
from dataclasses import dataclass

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.place.registry import shipped
from heliotrope.units import SECONDS_PER_HOUR
from heliotrope_sim.fleet.topology import Topology
from heliotrope_sim.fleet.workload import RequestClass, Workload
from heliotrope_sim.scenario.arms import Arm, arms, judged_classes
from heliotrope_sim.scenario.files import Files
from heliotrope_sim.scenario.fleet import scheduler_regions, topology
from heliotrope_sim.scenario.grids import Grid, grids, resources
from heliotrope_sim.scenario.model import Scenario
from heliotrope_sim.scenario.reading import file_names
from heliotrope_sim.scenario.series import beside
from heliotrope_sim.scenario.workloads import QUICK_SHARE, first_part, workload


@dataclass(frozen=True, slots=True)
class Built:
    """Ready to run."""

    topology: Topology
    workload: Workload
    judged: tuple[RequestClass, ...]
    """What violations are counted by, for every arm."""
    arms: tuple[Arm, ...]
    grids: tuple[Grid, ...]


def build(scenario: Scenario, files: Files, *, quick: bool = False) -> Built:
    """Everything that a scenario says.

    Args:
        scenario: a checked one.
        files: that it names.
        quick: only the first tenth of the workload's time.

    Raises:
        InvalidInputError: names the key, or file and line, and says what to do.
    """
    registry = shipped()
    judged = judged_classes(scenario, files)
    # Series are checked once the workload's length is known; sites and requests do not depend on their values.
    known = grids(scenario, files, 0.0)
    place = topology(scenario, known, files)
    made = workload(scenario.workload, judged, place, scheduler_regions(scenario), files, scenario.seed)
    if quick:
        made = first_part(made, QUICK_SHARE)
    known = grids(scenario, files, made.duration_seconds + SECONDS_PER_HOUR)
    return Built(
        topology=topology(scenario, known, files),
        workload=made,
        judged=judged,
        arms=tuple(arms(scenario, known, len(place.schedulers), files, registry)),
        grids=known,
    )


def all_files(scenario: Scenario, files: Files) -> Files:
    """The contents of every file that a run needs, those that RegionProfiles name among them."""
    return files.with_all(_names(scenario, files))


def _names(scenario: Scenario, files: Files) -> Iterator[str]:
    yield from file_names(scenario)
    replaced = {region.name for region in scenario.regions if region.intensity is not None}
    for name in scenario.region_files:
        for resource in resources(files, name):
            if not isinstance(resource, RegionProfile) or resource.metadata.name in replaced:
                continue
            if resource.spec.source.file is not None:
                yield beside(name, resource.spec.source.file.path)
