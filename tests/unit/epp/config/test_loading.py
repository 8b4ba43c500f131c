"""Configurations that load, and what they become."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from heliotrope.errors import InvalidInputError
from heliotrope_epp.config.loaded import LoadedConfig
from heliotrope_epp.config.loader import load
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.builtin import builtin_registry
from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.plugins.kinds import PluginKind, Stability
from heliotrope_epp.plugins.parameters import NoParameters
from heliotrope_epp.plugins.pickers.carbon import CarbonPicker
from heliotrope_epp.plugins.pickers.max_score import MaxScorePicker
from heliotrope_epp.plugins.pickers.random_choice import RandomPicker
from heliotrope_epp.plugins.producers.approx_prefix_cache import ApproxPrefixCacheProducer
from heliotrope_epp.plugins.profilehandlers.disagg import DisaggProfileHandler
from heliotrope_epp.plugins.profilehandlers.single import SingleProfileHandler

ROOT = Path(__file__).parents[4]
LLM_D = Path(__file__).parent / "llm-d"
HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"


def loaded(text: str) -> LoadedConfig:
    return load(text, builtin_registry())


def weights(config: LoadedConfig) -> dict[str, float]:
    (profile,) = config.scheduling.profiles
    return {scorer.name: scorer.weight for scorer in profile.scorers}


DEFAULT_WEIGHTS = {"queue-scorer": 2.0, "kv-cache-utilization-scorer": 2.0, "prefix-cache-scorer": 3.0}


@pytest.mark.parametrize("text", ["", "---\n", "# nothing\n", HEAD, HEAD + "plugins: []\nschedulingProfiles:\n"])
def test_what_is_left_out_is_llm_ds_default(text: str) -> None:
    config = loaded(text)
    (profile,) = config.scheduling.profiles
    assert weights(config) == DEFAULT_WEIGHTS
    assert (profile.name, profile.filters, profile.picker_name) == ("default", (), "max-score-picker")
    assert isinstance(profile.picker, MaxScorePicker)
    assert isinstance(config.scheduling.handler, SingleProfileHandler)
    assert [type(p) for p in config.scheduling.producers] == [ApproxPrefixCacheProducer]
    assert config.scheduling.producers_always
    assert config.discovery is None
    assert config.metrics is not None
    assert (config.metrics.path, config.metrics.interval) == ("/metrics", None)
    assert config.parsers == ("openai-parser",)
    assert config.warnings == ()


def test_the_default_is_what_the_example_writes_out() -> None:
    written = loaded((ROOT / "examples/epp/default.yaml").read_text())
    assert weights(written) == DEFAULT_WEIGHTS
    assert len(written.scheduling.producers) == 1
    assert written.warnings == ()


@pytest.mark.parametrize("path", sorted((ROOT / "examples/epp").glob("*.yaml")), ids=lambda p: p.name)
def test_examples_load(path: Path) -> None:
    assert loaded(path.read_text()).warnings == ()


@pytest.mark.parametrize("name", ["epp-config", "sim-epp-config"])
def test_llm_d_files_of_supported_plugins_load_unchanged(name: str) -> None:
    config = loaded((LLM_D / f"{name}.yaml").read_text())
    (profile,) = config.scheduling.profiles
    assert [f.name for f in profile.filters] == ["decode-filter"]
    assert weights(config) == {"prefix-cache-scorer": 2.0}
    assert profile.picker_name == "max-score-picker"
    assert config.warnings == ()


def test_llm_ds_file_for_prefill_and_decode_loads_unchanged() -> None:
    config = loaded((LLM_D / "pd-epp-config.yaml").read_text())
    profiles = {profile.name: profile for profile in config.scheduling.profiles}
    assert {name: [f.name for f in profile.filters] for name, profile in profiles.items()} == {
        "prefill": ["prefill-filter"],
        "decode": ["decode-filter"],
    }
    handler = config.scheduling.handler
    assert isinstance(handler, DisaggProfileHandler)
    assert (handler.decode_profile, handler.prefill_profile) == ("decode", "prefill")
    assert config.warnings == ()


def test_llm_d_files_of_other_plugins_say_which() -> None:
    with pytest.raises(InvalidInputError, match="is llm-d's, but not supported by Heliotrope yet") as caught:
        loaded((LLM_D / "epp-estimate-prefix-cache-config.yaml").read_text())
    assert caught.value.path == "plugins[3].type"


DISAGG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: decode-filter}
- {type: always-disagg-pd-decider}
- {type: disagg-headers-handler}
- {type: disagg-profile-handler%s}
schedulingProfiles:
- {name: decode, plugins: [{pluginRef: decode-filter}]}
- {name: other, plugins: [{pluginRef: decode-filter}]}
"""


def test_a_profile_that_never_runs_and_a_deprecated_type_are_named() -> None:
    assert loaded(DISAGG % "").warnings == (
        "plugins[2].type: disagg-headers-handler is deprecated; use disagg-profile-handler",
        "schedulingProfiles[1] is ignored, as disagg-profile-handler never runs other",
    )


@pytest.mark.parametrize(
    ("parameters", "path", "problem"),
    [
        ("{profiles: {decode: decod}}", ".profiles.decode", "there is no profile decod; did you mean decode?"),
        ("{deciders: {prefill: always-disagg-pd-decider}}", ".profiles.prefill", "there is no profile prefill"),
        ("{deciders: {prefill: decode-filter}}", ".deciders.prefill", "is a filter, where a decider is needed"),
        ("{deciders: {prefill: nobody}}", ".deciders.prefill", "no entry of plugins has the name nobody"),
        ("{deciders: {encode: x}}", ".deciders.encode", "no entry of plugins has the name x"),
        ("{deciders: {encode: always-disagg-pd-decider}}", ".deciders.encode", "where a decider of encoders is needed"),
        ("{profiles: {fallback: x}}", ".profiles.fallback", "is llm-d's, but not supported"),
        ("{stageOrder: both}", ".stageOrder", "must match pattern"),
        (
            "{stageOrder: prefill-first, deciders: {prefill: always-disagg-pd-decider}}",
            "",
            "deciders.prefill is not used in prefill-first order",
        ),
    ],
)
def test_what_is_wrong_with_the_split_is_named(parameters: str, path: str, problem: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        loaded(DISAGG % f", parameters: {parameters}")
    assert caught.value.path == f"plugins[3].parameters{path}"
    assert problem in caught.value.problem


def test_json_is_yaml() -> None:
    text = '{"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig", "plugins": [{"type": "random-picker"}]}'
    assert loaded(text).scheduling.profiles[0].picker_name == "random-picker"


def test_the_legacy_api_version_loads_with_a_warning() -> None:
    config = loaded("apiVersion: inference.networking.x-k8s.io/v1alpha1\nkind: EndpointPickerConfig\n")
    assert weights(config) == DEFAULT_WEIGHTS
    assert config.warnings == (
        "apiVersion inference.networking.x-k8s.io/v1alpha1 is deprecated; use llm-d.ai/v1alpha1",
    )


def test_without_profiles_the_declared_plugins_are_the_profile() -> None:
    config = loaded(HEAD + "plugins: [{type: queue-scorer}, {type: decode-filter}, {type: random-picker, name: r}]")
    (profile,) = config.scheduling.profiles
    assert weights(config) == {"queue-scorer": 1.0}
    assert [f.name for f in profile.filters] == ["decode-filter"]
    assert profile.picker_name == "r"


def test_only_discovery_declared_still_means_the_default_scorers() -> None:
    config = loaded(HEAD + "plugins: [{type: file-discovery, parameters: {path: e.yaml}}]")
    assert weights(config) == DEFAULT_WEIGHTS
    assert config.discovery is None, "it is declared, but dataLayer.discovery does not name it"


def test_a_profile_without_a_picker_takes_the_declared_one_or_the_best_score() -> None:
    profiles = "schedulingProfiles: [{name: p, plugins: [{pluginRef: queue-scorer}]}]"
    assert loaded(HEAD + "plugins: [{type: queue-scorer}]\n" + profiles).scheduling.profiles[0].picker_name == (
        "max-score-picker"
    )
    config = loaded(HEAD + "plugins: [{type: queue-scorer}, {type: random-picker}]\n" + profiles)
    assert isinstance(config.scheduling.profiles[0].picker, RandomPicker)


def test_weights_and_names() -> None:
    config = loaded(
        HEAD
        + """
plugins:
- {type: prefix-cache-scorer, name: short}
- {type: prefix-cache-scorer, name: long, parameters: {matchLengthWeight: 1, matchLengthScaleTokens: 4096}}
schedulingProfiles:
- name: mine
  plugins:
  - {pluginRef: long, weight: 0.5}
  - {pluginRef: short, weight: 1e-3}
"""
    )
    assert weights(config) == {"long": 0.5, "short": 0.001}
    assert len(config.scheduling.producers) == 1


def test_a_required_producer_is_made_once_and_not_beside_a_declared_one() -> None:
    declared = "{type: approx-prefix-cache-producer, name: mine, parameters: {lruCapacityPerServer: 5}}"
    for plugins in (f"{declared}, {{type: prefix-cache-scorer}}", f"{{type: prefix-cache-scorer}}, {declared}"):
        assert len(loaded(HEAD + f"plugins: [{plugins}]").scheduling.producers) == 1
    named = "{type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: mine}}"
    assert len(loaded(HEAD + f"plugins: [{named}, {declared}]").scheduling.producers) == 1


class Belief:
    """A producer of another kind."""

    def cached_tokens(self, request: LlmRequest, states: Sequence[EndpointState]) -> Sequence[float]:
        return [0.0] * len(states)

    def routed(self, request: LlmRequest, state: EndpointState) -> None: ...

    def forget(self, endpoint_key: str) -> None: ...


def test_a_producer_that_a_scorer_names_stands_in_for_the_one_it_requires() -> None:
    registry = builtin_registry()
    registry.register("theirs", PluginKind.PRODUCER, NoParameters, lambda *_: Belief(), Stability.BETA)
    scorer = "{type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: theirs}}"
    producers = load(HEAD + f"plugins: [{scorer}, {{type: theirs}}]", registry).scheduling.producers
    assert [type(producer) for producer in producers] == [Belief]


def test_producers_run_always_only_if_the_configuration_has_or_needs_them() -> None:
    for plugins, always in (
        ("{type: random-picker}", False),
        ("{type: queue-scorer}", False),
        ("{type: prefix-cache-scorer}", True),
        ("{type: carbon-picker}", True),
        ("{type: random-picker}, {type: approx-prefix-cache-producer}", True),
    ):
        scheduling = loaded(HEAD + f"plugins: [{plugins}]").scheduling
        assert (len(scheduling.producers), scheduling.producers_always) == (1, always), plugins


def test_the_carbon_picker_is_there_without_being_listed() -> None:
    (profile,) = loaded("").scheduling.profiles
    assert isinstance(profile.carbon_picker, CarbonPicker)
    assert profile.carbon_picker is not profile.picker
    (profile,) = loaded(HEAD + "plugins: [{type: carbon-picker}]").scheduling.profiles
    assert profile.carbon_picker is profile.picker


def test_file_discovery() -> None:
    text = HEAD + (
        "plugins: [{type: file-discovery, name: files, parameters: {path: /e.yaml, watchFile: true}}]\n"
        "dataLayer: {discovery: {pluginRef: files}}\n"
    )
    discovery = loaded(text).discovery
    assert discovery is not None
    assert (discovery.path, discovery.watch_file) == ("/e.yaml", True)


METRICS = "{type: metrics-data-source, parameters: {path: /m, interval: 1.5s, insecureSkipVerify: false}}"


@pytest.mark.parametrize(
    ("text", "path", "interval_s"),
    [
        (f"plugins: [{METRICS}]", "/m", 1.5),
        (f"plugins: [{METRICS}]\ndataLayer: {{sources: [{{pluginRef: metrics-data-source}}]}}", "/m", 1.5),
        (
            (
                f"plugins: [{METRICS}, {{type: core-metrics-extractor}}]\ndataLayer:\n  injectDefaults: false\n"
                "  sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}]"
            ),
            "/m",
            1.5,
        ),
        ("dataLayer: {}", "/metrics", None),
        ("dataLayer:", "/metrics", None),
    ],
)
def test_how_engines_are_asked(text: str, path: str, interval_s: float | None) -> None:
    metrics = loaded(HEAD + text).metrics
    assert metrics is not None
    assert (metrics.path, metrics.interval) == (path, interval_s)


def test_metrics_can_be_switched_off() -> None:
    assert loaded(HEAD + "dataLayer: {injectDefaults: false}").metrics is None


@pytest.mark.parametrize(
    "text",
    [
        "requestHandler: {parsers: [{pluginRef: openai-parser}]}",
        "plugins: [{type: openai-parser, name: p}]\nrequestHandler: {parsers: [{pluginRef: p}]}",
    ],
)
def test_parsers_may_be_named_without_an_entry(text: str) -> None:
    config = loaded(HEAD + text)
    assert (config.parsers, config.warnings) == (("openai-parser",), ())


def test_the_deprecated_parser_key() -> None:
    config = loaded(HEAD + "parser: {pluginRef: openai-parser}")
    assert config.parsers == ("openai-parser",)
    assert config.warnings == ("parser is deprecated; use requestHandler.parsers",)
    both = "parser: {pluginRef: zzz}\nrequestHandler: {parsers: [{pluginRef: openai-parser}]}"
    assert loaded(HEAD + both).parsers == ("openai-parser",)


@pytest.mark.parametrize(
    "gates", ["[]", "[flowControl=false]", "['flowControl=F']", "[haPopulateNonLeaderDatastore]", "['flowControl=0']"]
)
def test_feature_gates_at_their_defaults(gates: str) -> None:
    assert loaded(HEAD + f"featureGates: {gates}").warnings == ()


def test_flow_control_settings_are_ignored_with_a_warning_while_the_gate_is_off() -> None:
    text = """
flowControl:
  maxBytes: 1Gi
  maxRequests: 100
  defaultRequestTTL: 1m30s
  noEndpointRequestTTL: 0s
  defaultPriorityBand: {priority: 0, maxBytes: "500M"}
  priorityBands: [{priority: -1, maxRequests: 1k, orderingPolicyRef: fcfs-ordering-policy}]
  enableEviction: false
"""
    assert loaded(HEAD + text).warnings == ("flowControl is ignored, as its feature gate is off",)
    assert loaded(HEAD + "flowControl: {enableEviction: false}").warnings == ()
    assert loaded(HEAD + "saturationDetector: {}\nflowControl: {saturationDetector: {pluginRef: ''}}").warnings == ()


def test_what_has_no_effect_is_warned_about() -> None:
    text = """
plugins:
- type: by-label-selector
  parameters: {matchLabels: {gpu: h100}}
- type: queue-scorer
- type: max-score-picker
- type: single-profile-handler
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: by-label-selector, weight: 3}
  - {pluginRef: single-profile-handler}
  - {pluginRef: queue-scorer}
  - {pluginRef: max-score-picker}
"""
    config = loaded(HEAD + text)
    assert config.warnings == (
        "plugins[0].type: by-label-selector is deprecated; use label-selector-filter",
        "schedulingProfiles[0].plugins[0].weight is ignored, as by-label-selector is a filter",
        "schedulingProfiles[0].plugins[1] is ignored, as a profile handler has no place in a profile",
    )
    (profile,) = config.scheduling.profiles
    assert [f.name for f in profile.filters] == ["by-label-selector"]


def test_null_is_as_good_as_absent() -> None:
    text = """
featureGates:
plugins:
- {type: queue-scorer, name: null, parameters: null}
- type: prefix-cache-scorer
  parameters: {matchLengthWeight: null}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: queue-scorer, weight: null}]
dataLayer: null
flowControl: null
"""
    assert weights(loaded(HEAD + text)) == {"queue-scorer": 1.0}
