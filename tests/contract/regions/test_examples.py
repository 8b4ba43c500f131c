"""examples/region-tier: the real Envoy takes the gateway, and the files fit each other and the code."""

import re
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from heliotrope.api.v1alpha1 import CarbonPolicy, RegionProfile
from heliotrope.units import seconds_from_milliseconds
from heliotrope_cli.main import build_app
from heliotrope_epp.datalayer.documents import read_resources
from heliotrope_epp.datalayer.region_state import PATH
from heliotrope_epp.datalayer.resources import Resources
from heliotrope_epp.datalayer.world import resolve
from heliotrope_epp.region.config import RegionTier, read
from heliotrope_sim.gateway.install import install_envoy

FOLDER = Path(__file__).parents[3] / "examples" / "region-tier"


@pytest.fixture(scope="module")
def envoy() -> Any:
    return yaml.safe_load((FOLDER / "envoy.yaml").read_text())


@pytest.fixture(scope="module")
def tier() -> RegionTier:
    return read((FOLDER / "regions.yaml").read_text())


@pytest.mark.envoy
def test_the_real_envoy_accepts_the_gateway(tmp_path: Path) -> None:
    text = (FOLDER / "envoy.yaml").read_text()
    authorities = ssl.get_default_verify_paths().cafile
    if not Path("/etc/ssl/certs/ca-certificates.crt").exists():
        assert authorities is not None, "this machine has no certificate authorities"
        text = text.replace("/etc/ssl/certs/ca-certificates.crt", authorities)
    path = tmp_path / "envoy.yaml"
    path.write_text(text)
    command = [str(install_envoy()), "--mode", "validate", "--config-path", str(path), "--log-level", "warn"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stderr
    assert "deprecated" not in result.stderr.lower()


def test_every_region_has_a_route_a_cluster_with_its_own_tls_and_a_profile(envoy: Any, tier: RegionTier) -> None:
    (listener,) = envoy["static_resources"]["listeners"]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    (host,) = manager["route_config"]["virtual_hosts"]
    hidden, *routes, refusal = host["routes"]
    assert (hidden["match"], hidden["direct_response"]) == ({"path": PATH}, {"status": 404})
    matched = {
        route["match"]["headers"][0]["string_match"]["exact"]: route["route"]["cluster"]
        for route in routes
        if route["match"]["headers"][0]["name"] == tier.region_header
    }
    assert tuple(matched) == tier.names
    assert refusal["direct_response"]["status"] == 503
    clusters = {cluster["name"]: cluster for cluster in envoy["static_resources"]["clusters"]}
    names = {clusters[name]["transport_socket"]["typed_config"]["sni"] for name in matched.values()}
    assert len(names) == len(tier.names)
    for name in matched.values():
        tls = clusters[name]["transport_socket"]["typed_config"]
        assert clusters[name]["health_checks"][0]["http_health_check"]["host"] == tls["sni"]
        (san,) = tls["common_tls_context"]["validation_context"]["match_typed_subject_alt_names"]
        assert san["matcher"]["exact"] == tls["sni"]
    removed = manager["http_filters"][0]["typed_config"]["mutations"]["request_mutations"]
    assert removed == [{"remove": tier.region_header}]


def test_the_gateway_waits_longer_than_any_request(envoy: Any, tier: RegionTier) -> None:
    manager = envoy["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    (proc,) = [f["typed_config"] for f in manager["http_filters"] if f["name"].endswith("ext_proc")]
    assert proc["failure_mode_allow"] is False
    timeout_s = float(re.fullmatch(r"(\d+)s", proc["message_timeout"])[1])  # type: ignore[index]
    resources = read_resources((FOLDER / "resources.yaml").read_bytes())
    (policy,) = [each for each in resources if isinstance(each, CarbonPolicy)]
    placement = policy.spec.placement
    window_s = (placement.window + placement.solver_deadline).total_seconds()
    assert timeout_s > tier.deadlines.longest_wait + window_s


def test_the_resources_resolve_without_a_problem(tier: RegionTier) -> None:
    resources = read_resources((FOLDER / "resources.yaml").read_bytes())
    profiles = tuple(each for each in resources if isinstance(each, RegionProfile))
    policies = tuple(each for each in resources if isinstance(each, CarbonPolicy))
    world = resolve(Resources(policies=policies, regions=profiles), None, {})
    assert world.problems == ()
    assert set(world.regions) == set(tier.names)
    times = {each.region: each.milliseconds for each in world.regions["spain"].spec.round_trip_times}
    assert set(times) == set(tier.names) - {tier.home_region}
    assert all(seconds_from_milliseconds(float(ms)) < 1.0 for ms in times.values())
    assert all(url.endswith(PATH) for region in tier.regions for url in region.state_urls)


def test_the_manifest_starts_what_the_command_takes() -> None:
    documents = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
    (deployment,) = [each for each in documents if each["kind"] == "Deployment"]
    args = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    _, bound, _ = build_app().parse_args(args)
    assert bound.arguments["tier"] == "region"
    assert bound.arguments["regions"] == Path("/etc/heliotrope/tier/regions.yaml")
    assert [each["kind"] for each in documents] == ["Deployment", "Service"]
