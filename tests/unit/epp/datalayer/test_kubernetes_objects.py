"""What is kept of pods, and the endpoints that they make."""

from heliotrope_epp.datalayer.kubernetes.objects import Pool, endpoints_of, pod_of

POD = {
    "metadata": {"name": "llm-0", "namespace": "prod", "labels": {"app": "llm"}},
    "spec": {"nodeName": "gpu-7"},
    "status": {
        "podIP": "10.1.2.3",
        "hostIP": "192.168.0.7",
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


def test_endpoints_know_their_node_and_their_pod() -> None:
    pool = Pool({"app": "llm"}, (8000, 8001))

    ranks = endpoints_of(pool, [pod_of(POD)], {"gpu-7": "eu"})

    assert [(each.name, each.pod, each.node_address, each.node_region) for each in ranks] == [
        ("llm-0-rank-0", "llm-0", "192.168.0.7", "eu"),
        ("llm-0-rank-1", "llm-0", "192.168.0.7", "eu"),
    ]
