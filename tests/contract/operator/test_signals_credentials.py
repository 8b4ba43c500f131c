"""Keys of carbon sources on a real API server: where they may be, when they count, and where they never appear."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.operator.cluster import ACCOUNT, NAMESPACE, Api, conditions
from tests.contract.operator.process import OperatorProcess, eventually
from tests.support.carbon_apis import WT_PASSWORD, WT_USER, CarbonApis, carbon_apis
from tests.support.upstream import Asked, Reply, of_json

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

Unique = Callable[[str], str]


@pytest.fixture
def apis() -> Iterator[CarbonApis]:
    with carbon_apis(time.time) as running:
        yield running


def electricity_maps(apis: CarbonApis, secret: str, **source: Any) -> dict[str, Any]:
    ref = {"name": secret, "key": "token"}
    return {"electricityMaps": {"credentialsSecretRef": ref, "baseUrl": f"{apis.url}/em"} | source}


def watt_time(apis: CarbonApis, secret: str) -> dict[str, Any]:
    refs = {f"{part}SecretRef": {"name": secret, "key": part} for part in ("username", "password")}
    return {"wattTime": refs | {"baseUrl": f"{apis.url}/wt"}}


def messages(api: Api, name: str) -> dict[str, str]:
    status = api.get("RegionProfile", name).get("status", {})
    return {each["type"]: each["message"] for each in status.get("conditions", ())}


def is_said(api: Api, name: str, kind: str, *expected: str) -> None:
    eventually(lambda: conditions(api.get("RegionProfile", name)).get(kind) == expected, f"{name}: {kind} {expected}")


def test_a_missing_secret_is_told_with_the_command_that_makes_it_and_counts_once_it_is_made(
    api: Api, operator: OperatorProcess, unique: Unique, apis: CarbonApis
) -> None:
    name = unique("em")
    api.apply(api.region(name, source=electricity_maps(apis, name), pollInterval="1s"))

    is_said(api, name, "CredentialsAccepted", "False", "CredentialsMissing")

    command = f"kubectl create secret generic {name} --namespace {NAMESPACE} --from-literal=token=…"
    assert command in messages(api, name)["CredentialsAccepted"]
    assert conditions(api.get("RegionProfile", name))["SignalFresh"] == ("False", "SignalAbsent")
    eventually(lambda: ("Warning", "CredentialsMissing") in api.told(name))
    assert apis.asked == []
    api.cluster.kubectl(*command.removesuffix("…").split()[1:-1], f"--from-literal=token={apis.em_token}")
    is_said(api, name, "CredentialsAccepted", "True", "CredentialsAccepted")
    status = eventually(lambda: api.get("RegionProfile", name)["status"])
    assert (status["freshness"], status["intensity"]["value"]) == ("Fresh", "250")
    assert status["intensity"] == status["intensity"] | {"source": "electricityMaps", "estimated": True}
    assert len(status["forecast"]["points"]) >= 20
    eventually(lambda: ("Normal", "CredentialsAccepted") in api.told(name))


def test_a_missing_key_names_those_that_there_are(
    api: Api, operator: OperatorProcess, unique: Unique, apis: CarbonApis
) -> None:
    name = unique("em")
    api.apply(api.secret(name, NAMESPACE, tokn="misspelt-value"))
    api.apply(api.region(name, source=electricity_maps(apis, name), pollInterval="1s"))

    is_said(api, name, "CredentialsAccepted", "False", "CredentialsMissing")

    message = messages(api, name)["CredentialsAccepted"]
    assert message == f"Secret {NAMESPACE}/{name}, key token, does not exist; the Secret has tokn"


def test_a_rotated_key_counts_without_a_restart(
    api: Api, operator: OperatorProcess, unique: Unique, apis: CarbonApis
) -> None:
    name = unique("wt")
    api.apply(api.secret(name, NAMESPACE, username=WT_USER, password=WT_PASSWORD))
    marginal = {"type": "marginal", "emissionFactor": "direct"}
    api.apply(api.region(name, source=watt_time(apis, name), signal=marginal, pollInterval="1s"))
    is_said(api, name, "CredentialsAccepted", "True", "CredentialsAccepted")

    apis.wt_password, apis.wt_tokens = "second/password", apis.wt_tokens + 1  # which ends the session, too
    apis.truth = lambda _: 320.0
    is_said(api, name, "CredentialsAccepted", "False", "CredentialsRefused")
    assert "put a valid key into the Secret" in messages(api, name)["CredentialsAccepted"]
    api.apply(api.secret(name, NAMESPACE, username=WT_USER, password="second/password"))

    # A refused login is held back for a minute.
    eventually(lambda: api.get("RegionProfile", name)["status"]["intensity"]["value"].startswith("320"), seconds=150.0)
    is_said(api, name, "CredentialsAccepted", "True", "CredentialsAccepted")
    assert ("Warning", "CredentialsRefused") in api.told(name)


def test_a_token_rotated_before_the_old_one_ends_is_never_missed(
    api: Api, operator: OperatorProcess, unique: Unique, apis: CarbonApis
) -> None:
    name = unique("em")
    api.apply(api.secret(name, NAMESPACE, token=apis.em_token))
    api.apply(api.region(name, source=electricity_maps(apis, name), pollInterval="1s"))
    is_said(api, name, "CredentialsAccepted", "True", "CredentialsAccepted")

    api.apply(api.secret(name, NAMESPACE, token="second-token"))
    apis.em_token = "second-token"
    apis.truth = lambda _: 99.0

    eventually(lambda: api.get("RegionProfile", name)["status"]["intensity"]["value"] == "99")
    assert apis.asked[-1].headers["auth-token"] == "second-token"


def test_a_secret_of_another_namespace_cannot_be_named_and_is_not_read(
    api: Api, operator: OperatorProcess, unique: Unique, apis: CarbonApis
) -> None:
    """The Secret is in the test's own namespace, a tenant's; the RegionProfile names it."""
    name = unique("tenant")
    api.apply(api.secret(name, api.namespace, token=apis.em_token))
    source = electricity_maps(apis, name)
    source["electricityMaps"]["credentialsSecretRef"]["namespace"] = api.namespace

    refused = api.cluster.kubectl(
        "apply", "--validate=strict", "-f", "-", stdin=json.dumps(api.region(name, source=source)), check=False
    )
    assert api.get("RegionProfile", name) == {}, refused
    api.cluster.kubectl("apply", "--validate=false", "-f", "-", stdin=json.dumps(api.region(name, source=source)))

    is_said(api, name, "CredentialsAccepted", "False", "CredentialsMissing")
    stored = api.get("RegionProfile", name)["spec"]["source"]["electricityMaps"]["credentialsSecretRef"]
    assert stored == {"name": name, "key": "token"}
    assert f"Secret {NAMESPACE}/{name} does not exist" in messages(api, name)["CredentialsAccepted"]
    assert apis.asked == []


@pytest.mark.parametrize("verb", ["get", "list", "watch", "create", "update", "patch", "delete"])
def test_the_operator_may_get_secrets_of_its_own_namespace_and_nothing_more(
    api: Api, operator: OperatorProcess, verb: str
) -> None:
    account = f"--as=system:serviceaccount:{NAMESPACE}:{ACCOUNT}"

    def may(*where: str) -> bool:
        return api.cluster.kubectl("auth", "can-i", verb, "secrets", account, *where, check=False).strip() == "yes"

    assert may("-n", NAMESPACE) is (verb == "get")
    assert not may("-n", api.namespace)
    assert not may("--all-namespaces")


def test_no_key_appears_in_status_events_log_or_metrics(
    api: Api, operator: OperatorProcess, unique: Unique, apis: CarbonApis
) -> None:
    """The sources repeat in their answers whatever they were sent."""
    key = "s3cr3t-c4n4ry+value/x=="

    def echo(asked: Asked) -> Reply:
        text = f"you sent {dict(asked.headers)} {asked.query} {key}"
        return of_json({"error": text, "message": text}, 400 if "latest" in asked.path else 401)

    names = {}
    for folder, source in {
        "em": lambda name: electricity_maps(apis, name),
        "entsoe": lambda name: {
            "entsoe": {
                "credentialsSecretRef": {"name": name, "key": "token"},
                "domain": "10YES-REE------0",
                "baseUrl": f"{apis.url}/entsoe/api",
            }
        },
        "prom": lambda name: {
            "prometheus": {
                "url": apis.url.replace("http://", f"http://user:{'s3cr3t-c4n4ry'}@") + "/prom",
                "query": "x",
                "tokenSecretRef": {"name": name, "key": "token"},
            }
        },
    }.items():
        apis.override[folder] = echo
        name = names[folder] = unique(folder)
        api.apply(api.secret(name, NAMESPACE, token=key))
        api.apply(api.region(name, source=source(name), pollInterval="1s"))

    for name in names.values():
        eventually(lambda name=name: len(api.told(name)) >= 1)  # type: ignore[misc]
        seen = json.dumps([api.get("RegionProfile", name)["status"], api.events(name)])
        assert "answered 40" in seen
        assert "s3cr3t" not in seen
    assert "s3cr3t" not in operator.text()
    assert "s3cr3t" not in operator._fetch("metrics", "/metrics")[1]
    assert len(apis.asked) >= 3


def test_the_api_server_takes_every_example(api: Api, operator: OperatorProcess) -> None:
    examples = Path(__file__).parents[3] / "examples" / "signals" / "regions.yaml"

    taken = api.cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(examples))

    assert len(taken.splitlines()) == 8
