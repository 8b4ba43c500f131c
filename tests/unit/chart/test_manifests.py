"""The manifests that values give, and that they fit together."""

import re
from typing import Any

import pytest
import yaml
from tests.support.chart import CHART, ROOT, Chart, HelmError, Object, named, of_kind

pytestmark = pytest.mark.controlplane

POOL: dict[str, Any] = {"pool": {"name": "llama", "namespace": "llm"}}
EVERYTHING: dict[str, Any] = POOL | {
    "operator": {"namespaces": ["llm", "batch"], "podAnnotations": {"a": "b"}},
    "picker": {"replicas": 2, "tls": {"secretName": "picker-tls"}, "podAnnotations": {"a": "b"}},
    "networkPolicy": {
        "gatewayFrom": [{"namespaceSelector": {}}],
        "metricsFrom": [{"podSelector": {}}],
        "egress": {"enabled": True, "extra": [{"ports": [{"port": 9091, "protocol": "TCP"}]}]},
    },
    "serviceMonitor": {"enabled": True},
}

TRAINER: dict[str, Any] = {"trainer": {"enabled": True}}


def pod(objects: list[Object], name: str) -> Object:
    spec: Object = named(objects, "Deployment", name)["spec"]["template"]["spec"]
    return spec


def names(objects: list[Object], *kinds: str) -> set[str]:
    return {each["metadata"]["name"] for each in of_kind(objects, *kinds)}


def test_by_default_crds_and_an_operator(chart: Chart) -> None:
    objects = chart.objects()
    assert len(of_kind(objects, "CustomResourceDefinition")) == 4
    assert names(objects, "Deployment") == {"heliotrope-operator"}
    assert names(objects, "PodDisruptionBudget", "ConfigMap", "ServiceMonitor", "RegionProfile") == set()
    assert {each["metadata"].get("namespace", "heliotrope-system") for each in objects} == {"heliotrope-system"}


def test_a_pool_adds_a_picker_in_its_namespace(chart: Chart) -> None:
    before, after = chart.objects(), chart.objects(POOL)
    added = [each for each in after if each not in before]
    assert names(added, "Deployment") == {"heliotrope-picker"}
    kinds = {"ServiceAccount", "ConfigMap", "Service", "Deployment", "Role", "RoleBinding", "NetworkPolicy"}
    assert {each["kind"] for each in added} == kinds | {"ClusterRole", "ClusterRoleBinding"}
    assert {each["metadata"]["namespace"] for each in added if each["kind"] in kinds} == {"llm"}
    ports = {port["name"]: port["port"] for port in named(added, "Service", "heliotrope-picker")["spec"]["ports"]}
    assert ports == {"grpc-ext-proc": 9002, "grpc-health": 9003, "http-metrics": 9090}


def test_the_pool_may_be_in_the_namespace_of_the_release(chart: Chart) -> None:
    picker = named(chart.objects({"pool": {"name": "llama"}}, namespace="llm"), "Deployment", "heliotrope-picker")
    assert picker["metadata"]["namespace"] == "llm"
    assert "--pool-namespace=llm" in picker["spec"]["template"]["spec"]["containers"][0]["args"]


def test_a_release_for_one_more_pool_shares_no_object_with_the_first(chart: Chart) -> None:
    def identities(objects: list[Object]) -> set[tuple[str, str, str]]:
        return {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in objects}

    first = chart.objects(POOL)
    more: dict[str, Any] = {"operator": {"enabled": False}, "crds": {"install": False}}
    second = chart.objects(more | {"pool": {"name": "mistral"}}, namespace="other")
    assert second
    assert not identities(first) & identities(second)
    assert names(second, "Deployment") == {"heliotrope-picker"}


def test_the_operator_is_alone_also_during_a_rollout(chart: Chart) -> None:
    spec = named(chart.objects(), "Deployment", "heliotrope-operator")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


@pytest.mark.parametrize("values", [{}, POOL, EVERYTHING, EVERYTHING | TRAINER])
def test_pods_meet_the_restricted_standard(chart: Chart, values: dict[str, Any]) -> None:
    deployments = of_kind(chart.objects(values), "Deployment")
    assert deployments
    for each in deployments:
        spec = each["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC"))
        assert all(not volume.get("hostPath") for volume in spec.get("volumes", ()))
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert "memory" in container["resources"]["limits"]
            assert container.keys() >= {"startupProbe", "livenessProbe", "readinessProbe"}


def test_a_platform_may_choose_the_user(chart: Chart) -> None:
    """As OpenShift's restricted SCC does, which refuses a number of ours."""
    values = {"podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}}
    assert pod(chart.objects(values), "heliotrope-operator")["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


@pytest.mark.parametrize(("values", "parts"), [(POOL, 2), (EVERYTHING, 2), (EVERYTHING | TRAINER, 3)])
def test_selectors_ports_and_mounts_exist(chart: Chart, values: dict[str, Any], parts: int) -> None:
    objects = chart.objects(values)
    deployments = of_kind(objects, "Deployment")
    assert len(deployments) == parts

    def selected(selector: dict[str, str], namespace: str) -> Object:
        (found,) = [
            each
            for each in deployments
            if each["metadata"]["namespace"] == namespace
            and selector.items() <= each["spec"]["template"]["metadata"]["labels"].items()
        ]
        return found

    def port_names(deployment: Object) -> set[str]:
        return {port["name"] for port in deployment["spec"]["template"]["spec"]["containers"][0]["ports"]}

    for each in deployments:
        assert selected(each["spec"]["selector"]["matchLabels"], each["metadata"]["namespace"]) is each
        container = each["spec"]["template"]["spec"]["containers"][0]
        numbers = {port["containerPort"] for port in container["ports"]}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if "grpc" in container[probe]:
                assert container[probe]["grpc"]["port"] in numbers
            else:
                assert container[probe]["httpGet"]["port"] in port_names(each)
        volumes = {volume["name"] for volume in each["spec"]["template"]["spec"].get("volumes", ())}
        assert {mount["name"] for mount in container.get("volumeMounts", ())} == volumes
    services = of_kind(objects, "Service")
    assert len(services) == parts
    for each in services:
        target = selected(each["spec"]["selector"], each["metadata"]["namespace"])
        assert {port["targetPort"] for port in each["spec"]["ports"]} <= port_names(target)
    policies = of_kind(objects, "NetworkPolicy")
    assert len(policies) == parts
    for each in policies:
        target = selected(each["spec"]["podSelector"]["matchLabels"], each["metadata"]["namespace"])
        let_in = {port["port"] for rule in each["spec"]["ingress"] for port in rule["ports"]}
        assert let_in == port_names(target)
    for each in of_kind(objects, "PodDisruptionBudget", "ServiceMonitor"):
        selected(each["spec"]["selector"]["matchLabels"], each["metadata"]["namespace"])
    for each in of_kind(objects, "ServiceMonitor"):
        service = named(services, "Service", each["metadata"]["name"])
        assert each["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert each["spec"]["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}


def test_a_budget_only_for_several_pickers(chart: Chart) -> None:
    assert of_kind(chart.objects(POOL), "PodDisruptionBudget") == []
    two = chart.objects(POOL | {"picker": {"replicas": 2}})
    assert named(two, "PodDisruptionBudget", "heliotrope-picker")["spec"]["maxUnavailable"] == 1
    assert pod(two, "heliotrope-picker")["topologySpreadConstraints"][0]["topologyKey"] == "kubernetes.io/hostname"


def test_a_changed_configuration_is_a_rollout_and_nothing_else_is(chart: Chart) -> None:
    def template(values: dict[str, Any]) -> Object:
        found: Object = named(chart.objects(POOL | values), "Deployment", "heliotrope-picker")["spec"]["template"]
        return found

    changed = template({"picker": {"config": {"featureGates": ["flowControl=false"]}}})
    assert changed["metadata"]["annotations"] != template({})["metadata"]["annotations"]
    assert template({"picker": {"replicas": 1}, "crds": {"keep": False}}) == template({})


def test_pickers_learn_by_themselves_at_a_trainer_or_not_at_all(chart: Chart) -> None:
    def spec(values: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
        found = pod(chart.objects(POOL | values), "heliotrope-picker")
        words = [each for each in found["containers"][0]["args"] if "learn" in each or "train" in each]
        return words, {volume["name"]: volume for volume in found["volumes"]}

    alone, volumes = spec({})
    assert alone == ["--learn"]
    assert volumes["learned"]["emptyDir"] == {"sizeLimit": "512Mi"}
    shared, _ = spec(TRAINER)
    assert shared == ["--learn", "--trainer-url=http://heliotrope-trainer:8000"]
    elsewhere, _ = spec(TRAINER | {"picker": {"learning": {"trainerUrl": "https://trainer.example:8443"}}})
    assert elsewhere == ["--learn", "--trainer-url=https://trainer.example:8443"]
    claim = {"persistentVolumeClaim": {"claimName": "mine"}}
    assert spec({"picker": {"learning": {"volume": claim}}})[1]["learned"] == {"name": "learned"} | claim
    never, volumes = spec({"picker": {"learning": {"enabled": False}}})
    assert never == ["--no-learn"]
    assert "learned" not in volumes


def test_pickers_take_a_gate_of_sessions_from_a_volume(chart: Chart) -> None:
    def spec(sessions: dict[str, Any]) -> tuple[list[str], dict[str, Any], dict[str, Any]]:
        found = pod(chart.objects(POOL | {"picker": {"sessions": sessions}}), "heliotrope-picker")
        only = found["containers"][0]
        mounts = {mount["name"]: mount for mount in only["volumeMounts"]}
        words = [each for each in only["args"] if "session" in each]
        return words, mounts, {volume["name"]: volume for volume in found["volumes"]}

    words, mounts, volumes = spec({})
    assert words == ["--max-sessions=1000000"]
    assert "gate" not in mounts | volumes
    gate = {"configMap": {"name": "session-gate"}}
    words, mounts, volumes = spec({"max": 5_000, "gate": gate})
    assert words == ["--max-sessions=5000", f"--session-gate={mounts['gate']['mountPath']}/gate"]
    assert volumes["gate"] == {"name": "gate"} | gate
    assert spec({"max": 0, "gate": gate})[0] == ["--max-sessions=0"]


def test_pickers_take_a_predictor_of_quality_from_a_volume(chart: Chart) -> None:
    def spec(models: dict[str, Any]) -> tuple[list[str], dict[str, Any], dict[str, Any]]:
        found = pod(chart.objects(POOL | {"picker": {"models": models}}), "heliotrope-picker")
        only = found["containers"][0]
        mounts = {mount["name"]: mount for mount in only["volumeMounts"]}
        words = [each for each in only["args"] if "--quality" in each]
        return words, mounts, {volume["name"]: volume for volume in found["volumes"]}

    words, mounts, volumes = spec({})
    assert words == []
    assert "quality" not in mounts | volumes
    volume = {"configMap": {"name": "quality"}}
    words, mounts, volumes = spec({"quality": volume})
    assert words == [f"--quality-model={mounts['quality']['mountPath']}/quality"]
    assert volumes["quality"] == {"name": "quality"} | volume


def test_pickers_meter_energy_at_nodes_exporters(chart: Chart) -> None:
    def words(values: dict[str, Any]) -> tuple[list[str], list[dict[str, Any]]]:
        objects = chart.objects(POOL | values)
        found = pod(objects, "heliotrope-picker")["containers"][0]["args"]
        egress = named(objects, "NetworkPolicy", "heliotrope-picker")["spec"]["egress"]
        return [each for each in found if "energy" in each or "meter" in each], egress

    on = {"networkPolicy": {"enabled": True, "egress": {"enabled": True}}}
    port = {"ports": [{"port": 9400, "protocol": "TCP"}]}
    args, egress = words(on)
    assert args == ["--meter"]
    assert port not in egress
    args, egress = words(on | {"picker": {"energy": {"port": 9400}}})
    assert args == ["--meter", "--energy-port=9400", "--energy-path=/metrics"]
    assert port in egress
    args, egress = words(on | {"picker": {"energy": {"enabled": False, "port": 9400}}})
    assert args == ["--no-meter"]
    assert port not in egress


def test_pickers_keep_a_ledger_or_none(chart: Chart) -> None:
    def spec(values: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
        found = pod(chart.objects(POOL | values), "heliotrope-picker")
        words = [each for each in found["containers"][0]["args"] if "ledger" in each]
        return words, {volume["name"]: volume for volume in found["volumes"]}

    words, volumes = spec({})
    folder, size = "--ledger-dir=/var/lib/heliotrope-ledger", "--ledger-max-bytes=805306368"
    assert words == ["--ledger", folder, size, "--ledger-max-days=400"]
    assert volumes["ledger"]["emptyDir"] == {"sizeLimit": 1_073_741_824}
    claim = {"persistentVolumeClaim": {"claimName": "accounts"}}
    words, volumes = spec({"picker": {"ledger": {"volume": claim, "maxBytes": 100_000_000_000, "maxDays": 30}}})
    assert words == ["--ledger", folder, "--ledger-max-bytes=100000000000", "--ledger-max-days=30"]
    assert volumes["ledger"] == {"name": "ledger"} | claim
    words, volumes = spec({"picker": {"ledger": {"enabled": False}}})
    assert words == ["--no-ledger"]
    assert "ledger" not in volumes


def test_a_trainer_is_alone_without_rights_and_keeps_what_it_learned(chart: Chart) -> None:
    objects = chart.objects(POOL | TRAINER)
    spec = named(objects, "Deployment", "heliotrope-trainer")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert spec["template"]["spec"]["automountServiceAccountToken"] is False
    accounts = [
        subject["name"]
        for each in of_kind(objects, "RoleBinding", "ClusterRoleBinding")
        for subject in each["subjects"]
    ]
    assert "heliotrope-trainer" not in accounts
    (claim,) = of_kind(objects, "PersistentVolumeClaim")
    assert claim["spec"] == {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    assert spec["template"]["spec"]["volumes"] == [
        {"name": "learned", "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
    ]

    def persistence(values: dict[str, Any]) -> list[Object]:
        return chart.objects(POOL | {"trainer": {"enabled": True, "persistence": values}})

    existing = persistence({"existingClaim": "mine"})
    assert of_kind(existing, "PersistentVolumeClaim") == []
    assert pod(existing, "heliotrope-trainer")["volumes"][0]["persistentVolumeClaim"] == {"claimName": "mine"}
    none = persistence({"enabled": False})
    assert of_kind(none, "PersistentVolumeClaim") == []
    assert "emptyDir" in pod(none, "heliotrope-trainer")["volumes"][0]


def test_only_pickers_send_samples(chart: Chart) -> None:
    objects = chart.objects(POOL | TRAINER)
    policy = named(objects, "NetworkPolicy", "heliotrope-trainer")["spec"]
    by_port = {rule["ports"][0]["port"]: rule.get("from") for rule in policy["ingress"]}
    selector = named(objects, "Deployment", "heliotrope-picker")["spec"]["selector"]
    assert by_port == {"http": [{"podSelector": selector}], "http-metrics": None}
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "egress" not in policy
    others = [{"namespaceSelector": {"matchLabels": {"team": "b"}}}]
    more = chart.objects(POOL | TRAINER | {"networkPolicy": {"trainerFrom": others}})
    ingress = named(more, "NetworkPolicy", "heliotrope-trainer")["spec"]["ingress"]
    assert ingress[0]["from"] == [{"podSelector": selector}, *others]


def daemonset(chart: Chart, **values: Any) -> Object:
    found: Object = named(chart.objects({"agent": {"enabled": True} | values}), "DaemonSet", "heliotrope-agent")["spec"]
    return found


def test_agents_have_one_capability_and_three_folders_of_the_node(chart: Chart) -> None:
    spec = daemonset(chart)["template"]["spec"]
    assert spec["securityContext"] == {
        "runAsNonRoot": False,
        "runAsUser": 0,
        "runAsGroup": 0,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert spec["hostPID"] is True
    assert not any(spec.get(key) for key in ("hostNetwork", "hostIPC"))
    mounts = {}
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]},
        }
        mounts[container["name"]] = {each["name"]: each.get("readOnly", False) for each in container["volumeMounts"]}
    # The watchdog asks nobody, so it has no token.
    assert mounts == {
        "agent": {"state": False, "pod-resources": True, "token": True},
        "watchdog": {"state": False, "pod-resources": True},
    }
    assert {each["name"]: each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each} == {
        "state": "/var/lib/heliotrope",
        "pod-resources": "/var/lib/kubelet/pod-resources",
    }
    assert spec["automountServiceAccountToken"] is False


def test_two_agents_are_never_on_one_node_and_have_time_to_put_back(chart: Chart) -> None:
    spec = daemonset(chart, maxUnavailable=2)
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 2}}
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 30
    assert spec["template"]["spec"]["priorityClassName"] == "system-node-critical"
    assert spec["template"]["spec"]["nodeSelector"] == {"nvidia.com/gpu.present": "true"}


def test_agents_fit_to_nodes_of_other_kinds(chart: Chart) -> None:
    options = {"type": "spc_t"}
    pod_spec = daemonset(
        chart,
        runtimeClassName="nvidia",
        privileged=True,
        driver={"hostPath": "/home/kubernetes/bin/nvidia/lib64"},
        kubeletPath="/var/lib/k0s/kubelet",
        seLinuxOptions=options,
        hostPort=False,
        extraEnv=[{"name": "A", "value": "b"}],
    )["template"]["spec"]
    assert pod_spec["runtimeClassName"] == "nvidia"
    assert pod_spec["securityContext"]["seLinuxOptions"] == options
    paths = {each["name"]: each["hostPath"]["path"] for each in pod_spec["volumes"] if "hostPath" in each}
    assert paths["driver"] == "/home/kubernetes/bin/nvidia/lib64"
    assert paths["pod-resources"] == "/var/lib/k0s/kubelet/pod-resources"
    for container in pod_spec["containers"]:
        assert container["securityContext"] == {"readOnlyRootFilesystem": True, "privileged": True}
        (driver,) = [each for each in container["volumeMounts"] if each["name"] == "driver"]
        environment = {each["name"]: each.get("value") for each in container["env"]}
        assert environment["LD_LIBRARY_PATH"] == driver["mountPath"]
        assert environment["A"] == "b"
        assert not any("hostPort" in port for port in container.get("ports", ()))


def test_pickers_and_prometheus_reach_agents(chart: Chart) -> None:
    values: dict[str, Any] = {"agent": {"enabled": True}, "serviceMonitor": {"enabled": True}}
    objects = chart.objects(values | {"networkPolicy": {"metricsFrom": [{"podSelector": {}}]}})
    (rule,) = named(objects, "NetworkPolicy", "heliotrope-agent")["spec"]["ingress"]
    labels = named(chart.objects(POOL), "Deployment", "heliotrope-picker")["spec"]["template"]["metadata"]["labels"]
    pickers = [each for each in rule["from"] if "namespaceSelector" in each]
    assert len(pickers) == 1
    assert pickers[0]["podSelector"]["matchLabels"].items() <= labels.items()
    service = named(objects, "Service", "heliotrope-agent")
    monitor = named(objects, "ServiceMonitor", "heliotrope-agent")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert [each.get("honorLabels") for each in monitor["endpoints"]] == [True], "its labels name pods that use GPUs"
    operator = named(objects, "ServiceMonitor", "heliotrope-operator")["spec"]
    assert not any("honorLabels" in each for each in operator["endpoints"])
    template = named(objects, "DaemonSet", "heliotrope-agent")["spec"]["template"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    ports = {port["name"]: port for port in template["spec"]["containers"][0]["ports"]}
    assert service["spec"]["ports"][0]["targetPort"] in ports
    assert ports["http-metrics"] == {"name": "http-metrics", "containerPort": 9410, "hostPort": 9410}


def test_a_trainer_needs_a_pool(chart: Chart) -> None:
    assert names(chart.objects(TRAINER), "Deployment") == {"heliotrope-operator"}


def test_tls_is_self_made_from_a_secret_or_off(chart: Chart) -> None:
    def spec(tls: dict[str, Any]) -> Object:
        return pod(chart.objects(POOL | {"picker": {"tls": tls}}), "heliotrope-picker")

    assert "--secure-serving" in spec({})["containers"][0]["args"]
    assert "--cert-path" not in " ".join(spec({})["containers"][0]["args"])
    secret = spec({"secretName": "picker-tls"})
    assert "--cert-path=/etc/heliotrope/tls" in secret["containers"][0]["args"]
    assert [volume["secret"]["secretName"] for volume in secret["volumes"] if "secret" in volume] == ["picker-tls"]
    off = spec({"enabled": False, "secretName": "picker-tls"})
    assert "--no-secure-serving" in off["containers"][0]["args"]
    assert not any("secret" in volume for volume in off["volumes"])


def test_requests_in_flight_have_all_the_time_but_what_stopping_takes(chart: Chart) -> None:
    spec = pod(chart.objects(POOL | {"picker": {"terminationGracePeriodSeconds": 600}}), "heliotrope-picker")
    arguments = dict(each.removeprefix("--").split("=") for each in spec["containers"][0]["args"] if "=" in each)
    assert float(arguments["drain-seconds"]) + float(arguments["grace-seconds"]) < spec["terminationGracePeriodSeconds"]
    assert float(arguments["grace-seconds"]) == 590


@pytest.mark.parametrize(
    ("values", "image"),
    [
        ({}, "heliotrope-operator:0.1.0"),
        ({"image": {"tag": "v2"}}, "heliotrope-operator:v2"),
        ({"image": {"registry": "localhost:5000/team/"}}, "localhost:5000/team/heliotrope-operator:0.1.0"),
        (
            {"image": {"tag": "v2"}, "operator": {"image": {"digest": f"sha256:{'a' * 64}"}}},
            f"heliotrope-operator@sha256:{'a' * 64}",
        ),
    ],
)
def test_images(chart: Chart, values: dict[str, Any], image: str) -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"]
    found = pod(chart.objects(values), "heliotrope-operator")["containers"][0]["image"]
    assert found == image.replace("0.1.0", version)


def test_crds_are_those_of_the_repository(chart: Chart) -> None:
    """To the digit: templates read numbers as floats, which hold integers up to 2**53 only."""
    rendered = {each["metadata"]["name"]: each for each in of_kind(chart.objects(), "CustomResourceDefinition")}
    assert rendered
    for path in (ROOT / "crds").glob("*.yaml"):
        ours = yaml.safe_load(path.read_text(encoding="utf-8"))
        shipped = rendered.pop(ours["metadata"]["name"])
        assert shipped["spec"] == ours["spec"]
        assert shipped["metadata"]["labels"].items() >= ours["metadata"]["labels"].items()
        assert shipped["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert rendered == {}


def test_crds_may_go_with_the_release_or_not_come_with_it(chart: Chart) -> None:
    going = of_kind(chart.objects({"crds": {"keep": False}}), "CustomResourceDefinition")
    assert len(going) == 4
    assert not any("annotations" in each["metadata"] for each in going)
    assert of_kind(chart.objects({"crds": {"install": False}}), "CustomResourceDefinition") == []


def test_region_profiles_wait_for_their_crd(chart: Chart) -> None:
    values: dict[str, Any] = {
        "regionProfiles": {"no": {"zone": "NO", "source": {"static": {"intensityGramsPerKwh": "34"}}}}
    }
    with pytest.raises(HelmError, match="Install first without regionProfiles"):
        chart.template(values)
    objects = chart.objects(values, api_versions=["heliotrope.io/v1alpha1/RegionProfile"])
    assert named(objects, "RegionProfile", "no")["spec"] == values["regionProfiles"]["no"]


def test_names_that_yaml_would_take_for_something_else(chart: Chart) -> None:
    values: dict[str, Any] = {
        "pool": {"name": "1e3", "namespace": "123"},
        "operator": {"namespaces": ["1"], "serviceAccount": {"create": False, "name": "yes"}},
        "picker": {"serviceAccount": {"name": "on"}, "tls": {"secretName": "0x1"}, "homeRegion": "no"},
    }
    objects = chart.objects(EVERYTHING | values | {"crds": {"install": False}}, release="on", namespace="null")

    texts = re.compile(r"\.(name|namespace|secretName|serviceAccountName|resourceNames|(labels|matchLabels)\.\S+)$")

    def check(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key, child in value.items():
                assert isinstance(key, str), path
                check(child, f"{path}.{key}")
        elif isinstance(value, list):
            for child in value:
                check(child, path)
        elif texts.search(path):
            assert isinstance(value, str), path

    for each in objects:
        check(each, each["kind"])
    assert named(objects, "Deployment", "on-heliotrope-picker")["metadata"]["namespace"] == "123"


def test_long_names_are_cut_to_what_the_api_takes(chart: Chart) -> None:
    objects = chart.objects(EVERYTHING, release="r" * 53, namespace="n" * 63)
    for each in objects:
        limit = 63 if each["kind"] in {"Service", "Deployment"} else 253
        assert len(each["metadata"]["name"]) <= limit
        assert all(len(str(value)) <= 63 for value in each["metadata"]["labels"].values())


def test_egress_is_let_out_only_where_it_was_said(chart: Chart) -> None:
    default = of_kind(chart.objects(POOL), "NetworkPolicy")
    assert {kind for each in default for kind in each["spec"]["policyTypes"]} == {"Ingress"}
    limited = of_kind(chart.objects(EVERYTHING), "NetworkPolicy")
    assert [each["spec"]["policyTypes"] for each in limited] == [["Ingress", "Egress"]] * 2
    for each in limited:
        assert all(rule.get("to") or rule.get("ports") for rule in each["spec"]["egress"])
        assert {"ports": [{"port": 9091, "protocol": "TCP"}]} in each["spec"]["egress"]
    assert of_kind(chart.objects(POOL | {"networkPolicy": {"enabled": False}}), "NetworkPolicy") == []
