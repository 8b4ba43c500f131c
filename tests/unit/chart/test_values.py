"""What the schema accepts and rejects, and that a rejection names the key."""

from typing import Any

import pytest
from tests.support.chart import CHART, Chart, HelmError

pytestmark = pytest.mark.controlplane


def test_the_chart_has_no_lint(chart: Chart) -> None:
    chart.run("lint", "--strict", str(CHART))


@pytest.mark.parametrize(
    "values",
    [
        {"pool": {"name": "llama", "namespace": "llm"}, "picker": {"replicas": 3}},
        {"pool": {"name": "llama"}, "picker": {"tls": {"enabled": False}, "homeRegion": "no"}},
        {"operator": {"namespaces": ["a", "b"], "image": {"digest": f"sha256:{'0' * 64}"}}},
        {"image": {"registry": "localhost:5000/team", "tag": "v1.2.3-rc.1"}, "imagePullSecrets": [{"name": "key"}]},
        {"operator": {"enabled": False}, "crds": {"install": False, "keep": False}, "global": {"anything": 1}},
        {"networkPolicy": {"egress": {"enabled": True, "extra": [{"ports": [{"port": 9091}]}]}}},
        {"operator": {"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}, "podAnnotations": {"a/b": "c"}}},
        {"picker": {"config": {"featureGates": ["flowControl=false"]}}},
        {"agent": {"enabled": True, "sampleSeconds": 0.1, "maxUnavailable": 1, "extraEnv": [{"name": "A"}]}},
    ],
)
def test_accepted(chart: Chart, values: dict[str, Any]) -> None:
    chart.template(values)


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"pickers": {}}, "pickers"),
        ({"picker": {"replica": 2}}, "replica"),
        ({"picker": {"replicas": 0}}, "/picker/replicas"),
        ({"picker": {"replicas": "2"}}, "/picker/replicas"),
        ({"picker": {"tls": {"secret": "x"}}}, "secret"),
        ({"picker": {"config": {"kind": "Deployment"}}}, "/picker/config/kind"),
        ({"picker": {"config": {"apiVersion": "v1"}}}, "/picker/config/apiVersion"),
        ({"picker": {"terminationGracePeriodSeconds": 10}}, "/picker/terminationGracePeriodSeconds"),
        ({"picker": {"image": {"repository": ""}}}, "/picker/image/repository"),
        ({"picker": {"image": {"digest": "latest"}}}, "/picker/image/digest"),
        ({"picker": {"image": {"tag": "1"}}}, "tag"),
        ({"agent": {"sampleSeconds": 0.01}}, "/agent/sampleSeconds"),
        ({"agent": {"metricsPort": 80}}, "/agent/metricsPort"),
        ({"agent": {"maxUnavailable": "all"}}, "/agent/maxUnavailable"),
        ({"agent": {"statePath": "var/lib"}}, "/agent/statePath"),
        ({"agent": {"watchdog": {"enabled": False}}}, "enabled"),
        ({"picker": {"learning": {"trainerUrl": "trainer:8000"}}}, "/picker/learning/trainerUrl"),
        ({"picker": {"sessions": {"max": -1}}}, "/picker/sessions/max"),
        ({"trainer": {"replicas": 2}}, "replicas"),
        ({"tracing": {"endpoint": "collector:4317"}}, "/tracing/endpoint"),
        ({"tracing": {"protocol": "http/json"}}, "/tracing/protocol"),
        ({"tracing": {"ratio": 10}}, "/tracing/ratio"),
        ({"tracing": {"enabled": True}}, "enabled"),
        ({"trainer": {"persistence": {"size": "big"}}}, "/trainer/persistence/size"),
        ({"picker": {"affinity": {"nodeAfinity": {}}}}, "nodeAfinity"),
        ({"pool": {"name": "Llama"}}, "/pool/name"),
        ({"pool": {"namespace": "a.b"}}, "/pool/namespace"),
        ({"operator": {"namespaces": "llm"}}, "/operator/namespaces"),
        ({"operator": {"namespaces": ["llm", "llm"]}}, "/operator/namespaces"),
        ({"operator": {"enabled": "yes"}}, "/operator/enabled"),
        ({"operator": {"serviceAccount": {"annotations": {"a": 1}}}}, "/operator/serviceAccount/annotations/a"),
        ({"crds": {"install": None, "keep": "true"}}, "/crds/keep"),
        ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
        ({"image": {"tag": "a b"}}, "/image/tag"),
        ({"logLevel": "trace"}, "/logLevel"),
        ({"networkPolicy": {"egress": {"ports": [0]}}}, "/networkPolicy/egress/ports/0"),
        ({"regionProfiles": {"spain": {"zone": "ES"}}}, "/regionProfiles/spain"),
        ({"serviceMonitor": {"interval": "15"}}, "/serviceMonitor/interval"),
    ],
)
def test_rejected_with_the_name_of_the_key(chart: Chart, values: dict[str, Any], where: str) -> None:
    with pytest.raises(HelmError, match="values don't meet the specifications") as error:
        chart.template(values)
    assert where in str(error.value)
