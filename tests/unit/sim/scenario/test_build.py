"""Everything that names something else: files, regions, engines, series, traces."""

from typing import Any

import numpy as np
import pytest
from tests.unit.sim.scenario.conftest import Changed

from heliotrope.errors import InvalidInputError
from heliotrope_sim.scenario.places import Where

ENGINE = "llama-3.1-8b-a100-40gb"
POISSON = {"kind": "poisson", "rate_per_second": 5.0, "duration_seconds": 4.0}
HOURS = "time,value\n2022-06-01T09:00:00Z,100\n2022-06-01T10:00:00Z,110\n{row}2022-06-01T12:00:00Z,130\n"
POLICY = """
apiVersion: heliotrope.io/v1alpha1
kind: CarbonPolicy
metadata: {name: %s}
spec:
  targetRefs: [{name: pool}]
  slo: {ttft: 700ms, tpot: 60ms}
  classes:
    - {name: batch, slo: {ttft: 60s, tpot: 500ms}}
  placement:
    scheduler: IterativeILP
    window: 50ms
    windowRequests: 17
    solverDeadline: 40ms
    greedyLatencyWeight: "0.25"
    largestRegionSharePercent: 60
    allowedRegions: [norway, spain, elsewhere]
"""
PROFILE = """
apiVersion: heliotrope.io/v1alpha1
kind: RegionProfile
metadata: {name: norway}
spec:
  zone: "NO"
  source: %s
  pue: "1.3"
  largestSharePercent: 40
  roundTripTimes: [{region: spain, milliseconds: 62}]
  capacity: {maxConcurrentRequests: 50}
"""


def refused(changed: Changed, **changes: Any) -> str:
    with pytest.raises(InvalidInputError) as error:
        changed.study(**changes)
    return str(error.value)


def series(changed: Changed, row: str, **more: Any) -> dict[str, Any]:
    changed.file("es.csv", HOURS.format(row=row))
    intensity = {"csv": "es.csv", "time_column": "time", "value_column": "value"}
    regions = [{"name": "norway", "intensity": {"grams_per_kwh": 30}}, {"name": "spain", "intensity": intensity}]
    regions[0]["rtt_ms"] = {"spain": 60}
    return {"regions": regions} | more


def test_unknown_names_are_told_with_those_there_are(changed: Changed) -> None:
    site = {"region": "france", "engine": ENGINE}
    assert refused(changed, sites=[site]) == "sites[0].region: there is no region 'france'; there are norway, spain"
    says = refused(changed, sites=[{"region": "spain", "engine": "gpt"}])
    assert says.startswith("sites[0].engine: no engine profile 'gpt'; shipped are ")
    assert "a.json: cannot be read" in refused(changed, sites=[{"region": "spain", "engine": "a.json"}])
    says = refused(changed, policies=[{"name": "p", "scheduler": "Fastest"}])
    assert says.startswith("policies[0].scheduler: there is no scheduler 'Fastest'; there are RoundRobin")
    assert refused(changed, schedulers={"where": "home", "home": "mars"}).startswith(
        "schedulers.home: there is no region"
    )
    assert "sites: names must be unique" in refused(changed, sites=[{"region": "spain", "engine": ENGINE}] * 2)


def test_an_unknown_zone_lists_the_shipped_ones(changed: Changed) -> None:
    says = refused(changed, regions=[{"name": "spain", "intensity": {"zone": "XX"}}], sites=[site("spain")])
    assert says.startswith(
        "regions[0].intensity.zone: 'XX' does not ship with lifecycle emissions; these do: AT, BE, BR"
    )
    direct = {"name": "spain", "intensity": {"zone": "AT"}, "emission_factor": "direct"}
    assert "these do: BR, ES, NO, US-CAL-CISO" in refused(changed, regions=[direct], sites=[site("spain")])


def site(region: str, **more: Any) -> dict[str, Any]:
    return {"region": region, "engine": ENGINE, "engines_per_node": 2} | more


def test_missing_and_nan_hours_are_refused_with_file_and_line(changed: Changed) -> None:
    says = refused(changed, **series(changed, ""))
    assert says.startswith("es.csv:3: region spain has no intensity at 2022-06-01T11:00:00Z, which the run needs")
    says = refused(changed, **series(changed, "2022-06-01T11:00:00Z,NaN\n"))
    assert says.startswith("es.csv:4: region spain has no intensity at 2022-06-01T11:00:00Z")
    assert refused(changed, **series(changed, "2022-06-01T11:00:00Z,much\n")).startswith(
        "es.csv:4: 'much' is not a number"
    )
    assert "es.csv: intensity -5.0 g/kWh" in refused(changed, **series(changed, "2022-06-01T11:00:00Z,-5\n"))
    assert "no value" not in str(changed.study(**series(changed, "2022-06-01T11:00:00Z,120\n")).built.grids)


def test_a_run_outside_a_series_is_refused(changed: Changed) -> None:
    assert "spain has no intensity at 2024-01-01T00:00:00Z" in refused(changed, start="2024-01-01T00:00:00Z")


def test_gaps_are_unknown_or_held_where_the_scenario_says_so(changed: Changed) -> None:
    at = 1654081200.0
    unknown = changed.study(**series(changed, "", gaps="unknown")).built.grids[1].carbon
    held = changed.study(**series(changed, "", gaps="hold")).built.grids[1].carbon
    assert unknown is not None
    assert held is not None
    assert unknown.at(at + 10.0) is None
    point = held.at(at + 10.0)
    assert point is not None
    assert point.intensity_g_per_kwh == 110.0


def test_five_minute_series_are_five_minutes_long(changed: Changed) -> None:
    rows = "".join(f"2022-06-01T{9 + i // 12:02d}:{i % 12 * 5:02d}:00Z,{100 + i}\n" for i in range(40))
    changed.file("es.csv", "time,value\n" + rows)
    intensity = {"csv": "es.csv", "time_column": "time", "value_column": "value"}
    study = changed.study(regions=[{"name": "spain", "intensity": intensity}], sites=[site("spain")])
    assert study.built.grids[0].carbon is not None
    assert study.built.grids[0].carbon.longest_hold_s == 300.0


def test_kinds_of_intensity_are_never_compared(changed: Changed) -> None:
    regions = changed.data()["regions"]
    regions[0]["signal_type"] = "marginal"
    assert "are never compared: norway: marginal lifecycle; spain: average lifecycle" in refused(
        changed, regions=regions
    )


def test_a_missing_round_trip_names_the_pair(changed: Changed) -> None:
    regions = changed.data()["regions"]
    del regions[0]["rtt_ms"]
    says = refused(changed, regions=regions)
    assert says.startswith("regions[norway].rtt_ms: no round trip to spain is stated in either direction")
    regions[0]["aws_region"], regions[1]["aws_region"] = "eu-north-1", "eu-south-2"
    rtt = changed.study(regions=regions).built.topology.rtt_seconds
    assert rtt[0, 0] == rtt[1, 1] == 0.0
    assert 0.0 < rtt[0, 1] < 0.2


def test_one_direction_of_a_round_trip_is_enough(changed: Changed) -> None:
    assert changed.study().built.topology.rtt_seconds.tolist() == [[0.0, 0.06], [0.06, 0.0]]


@pytest.mark.parametrize("most", [0, 1])
def test_no_capacity_is_refused(most: int, changed: Changed) -> None:
    regions = changed.data()["regions"]
    regions[1]["max_concurrent_requests"] = most
    says = refused(changed, regions=regions)
    assert says.startswith(f"sites[1]: has no capacity: region spain allows {most} requests in flight for 2 engines")


def test_batches_stay_within_region_and_profile(changed: Changed) -> None:
    regions = changed.data()["regions"]
    regions[1]["max_concurrent_requests"] = 25
    assert [s.capacity for s in changed.study(regions=regions).built.topology.sites] == [64, 12]
    says = refused(changed, sites=[site("spain", batch_capacity=65)])
    assert says == "sites[0].batch_capacity: 65 exceeds the profile's max_num_seqs of 64"


def test_requests_that_may_go_nowhere_are_refused(changed: Changed) -> None:
    says = refused(
        changed, sites=[site("spain")], policies=[{"name": "p", "scheduler": "Greedy", "allowed_regions": ["norway"]}]
    )
    assert says.startswith(
        "policies[0].allowed_regions: requests of class 'default' may go nowhere: no site is in norway"
    )
    says = refused(changed, policies=[{"name": "p", "scheduler": "Greedy", "allowed_regions": ["mars"]}])
    assert says == "policies[0].allowed_regions: there is no region 'mars'; there are norway, spain"
    workload = POISSON | {"classes": [{"name": "a", "allowed_regions": ["norway"]}]}
    says = refused(
        changed, workload=workload, policies=[{"name": "p", "scheduler": "Greedy", "allowed_regions": ["spain"]}]
    )
    assert "requests of class 'a' may go nowhere" in says


def test_a_promise_is_needed(changed: Changed) -> None:
    assert refused(changed, slo=None).startswith("slo: nothing says what is promised")


def test_a_carbon_policy_is_simulated_as_it_is_applied(changed: Changed) -> None:
    changed.file("policy.yaml", POLICY % "a")
    workload = POISSON | {"classes": [{"name": "batch"}, {"name": "chat"}]}
    policies = [{"name": "rr", "scheduler": "RoundRobin"}, {"name": "ours", "file": "policy.yaml"}]
    study = changed.study(policies=policies, workload=workload, slo=None)
    arm = study.built.arms[1]
    assert arm.scheduler == "IterativeILP"
    assert (arm.settings.window_seconds, arm.settings.window_requests) == (0.05, 17)
    assert arm.settings.policy.latency_weight == 0.25
    assert arm.settings.policy.standard_deviations == 3.0
    assert arm.settings.policy.limit.seconds is None
    assert arm.settings.decision_time.limit_seconds == 0.04
    assert [(c.ttft_slo_seconds, c.tpot_slo_seconds) for c in arm.classes] == [(60.0, 0.5), (0.7, 0.06)]
    assert arm.classes[0].allowed_sites == {"norway", "spain"}
    # The first file's promise is judged for all where the scenario has none.
    assert study.built.judged[1].ttft_slo_seconds == study.built.arms[0].classes[1].ttft_slo_seconds == 0.7
    assert any("only advises" in note for note in arm.notes)


def test_keys_of_a_policy_replace_what_its_file_says(changed: Changed) -> None:
    changed.file("policy.yaml", POLICY % "a")
    own = {"scheduler": "Greedy", "window_seconds": 0.0, "latency_weight": 1.0, "solver_nodes": 9, "projection": False}
    arm = changed.study(policies=[{"name": "p", "file": "policy.yaml"} | own]).built.arms[0]
    assert (arm.scheduler, arm.settings.window_seconds, arm.settings.project) == ("Greedy", 0.0, False)
    assert (arm.settings.policy.latency_weight, arm.settings.policy.limit.nodes) == (1.0, 9)


def test_one_of_several_policies_in_a_file_is_named(changed: Changed) -> None:
    changed.file("policy.yaml", POLICY % "a" + "---" + POLICY % "b")
    says = refused(changed, policies=[{"name": "p", "file": "policy.yaml"}])
    assert says == "policies[0].file: policy.yaml must hold one CarbonPolicy; it has a, b; set resource"
    assert changed.study(policies=[{"name": "p", "file": "policy.yaml", "resource": "b"}]).built.arms[0].name == "p"
    changed.file("policy.yaml", (POLICY % "a").replace("scheduler: IterativeILP", "schedular: ILP"))
    says = refused(changed, policies=[{"name": "p", "file": "policy.yaml"}])
    assert says == "policy.yaml: document 1: spec.placement.schedular: unknown field"
    assert "gone.yaml: cannot be read" in refused(changed, policies=[{"name": "p", "file": "gone.yaml"}])


def test_region_profiles_are_simulated_as_they_are_applied(changed: Changed) -> None:
    changed.file("grids.yaml", PROFILE % '{static: {intensityGramsPerKwh: "25"}}')
    regions = [{"name": "spain", "intensity": {"zone": "ES"}}]
    built = changed.study(region_files=["grids.yaml"], regions=regions).built
    norway = built.grids[0]
    assert (norway.name, norway.pue, norway.largest_share, norway.source) == ("norway", 1.3, 0.4, "static")
    assert built.topology.rtt_seconds[1, 0] == 0.062
    assert built.topology.sites[0].capacity == 25


def test_a_region_replaces_what_it_states_of_a_profile(changed: Changed) -> None:
    live = "{energyCharts: {country: 'no'}}"
    changed.file("grids.yaml", PROFILE % live)
    spain = {"name": "spain", "intensity": {"zone": "ES"}}
    says = refused(changed, region_files=["grids.yaml"], regions=[spain])
    assert says.startswith(
        "grids.yaml: RegionProfile norway.spec.source: a live source has no past; add regions: [{name"
    )
    own = {"name": "norway", "intensity": {"zone": "NO"}}
    norway = changed.study(region_files=["grids.yaml"], regions=[spain, own]).built.grids[0]
    assert (norway.source, norway.pue) == ("NO, Electricity Maps, hourly, 2022", 1.3)


def test_series_of_profiles_are_beside_them_and_are_replayed(changed: Changed) -> None:
    (changed.folder / "grids").mkdir()
    replay = "{seriesStart: '2021-01-01T00:00:00Z', wallStart: '2022-06-01T10:00:00Z'}"
    source = "{file: {path: no.csv, timeColumn: time, valueColumn: value, replay: %s}}"
    changed.file("grids/norway.yaml", PROFILE % (source % replay))
    changed.file("grids/no.csv", "time,value\n2021-01-01T00:00:00Z,20\n2021-01-01T01:00:00Z,40\n")
    spain = {"name": "spain", "intensity": {"zone": "ES"}}
    norway = changed.study(region_files=["grids/norway.yaml"], regions=[spain]).built.grids[0]
    assert norway.source == "grids/no.csv (replayed)"
    assert norway.carbon is not None
    assert norway.carbon.average(1654077600.0, 1654077600.0 + 7200.0) == 30.0
    changed.file("grids/no.csv", "time,value\n2021-01-01T00:00:00Z,20\n2021-01-01T01:00:00Z,\n")
    says = refused(changed, region_files=["grids/norway.yaml"], regions=[spain])
    assert says.startswith("grids/no.csv (replayed): region norway has")
    assert "no intensity at 2022-06-01T11:00:00Z" in says


def test_schedulers_are_in_each_region_or_at_home(changed: Changed) -> None:
    each = changed.study(schedulers={"count": 2}).built.topology
    assert [s.zone for s in each.schedulers] == ["norway", "norway", "spain", "spain"]
    study = changed.study(schedulers={"where": Where.HOME.value, "home": "spain", "count": 3})
    assert study.built.topology.rtt_seconds.tolist() == [[0.06, 0.0]] * 3
    assert not study.built.arms[0].settings.forwards_wait


def test_sweeps_set_keys_and_entries_by_name(changed: Changed) -> None:
    sweep = {"sites.norway.nodes": [1, 3], "policies.greedy.latency_weight": [0.5], "seed": [1, 2]}
    study = changed.study(sweep=sweep)
    assert [point.scenario.sites[0].nodes for point in study.points] == [1, 1, 3, 3]
    assert [point.scenario.seed for point in study.points] == [1, 2, 1, 2]
    assert study.points[0].scenario.policies[1].latency_weight == 0.5
    assert study.points[3].setting == (("sites.norway.nodes", 3), ("policies.greedy.latency_weight", 0.5))


@pytest.mark.parametrize(
    ("sweep", "says"),
    [
        (
            {"sites.mars.nodes": [1]},
            "sweep.sites.mars.nodes: sites.mars: no entry is called 'mars'; there are norway, spain",
        ),
        ({"workload.rate": [1]}, "workload.rate: unknown key (in the sweep's workload.rate = 1)"),
        ({"workload.rate_per_second": [0]}, "workload.rate_per_second: "),
        ({"seed": [1, 1]}, "sweep.seed: has a value twice"),
        ({"seed": []}, "sweep.seed: "),
        ({"name.first": ["a"]}, "name: "),
        ({"seed": list(range(60)), "polls.interval_seconds": [float(i + 1) for i in range(60)]}, "sweep: has 3600"),
    ],
)
def test_sweeps_that_lead_nowhere_are_refused(sweep: dict[str, Any], says: str, changed: Changed) -> None:
    assert says in refused(changed, sweep=sweep)


def test_equal_seeds_give_equal_requests(changed: Changed) -> None:
    first, again, other = (changed.study(seed=seed).built.workload for seed in (1, 1, 2))
    assert np.array_equal(first.arrival_ns, again.arrival_ns)
    assert not np.array_equal(first.arrival_ns, other.arrival_ns[: len(first)])
