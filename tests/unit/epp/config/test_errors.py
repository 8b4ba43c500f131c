"""Configurations that must not start, with the path and the words that a user gets."""

import json
from contextlib import suppress
from random import Random

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from heliotrope.errors import InvalidInputError
from heliotrope_epp.config.loader import load
from heliotrope_epp.config.problems import key_path
from heliotrope_epp.plugins.builtin import builtin_registry
from heliotrope_epp.plugins.context import PluginContext
from heliotrope_epp.plugins.kinds import PluginKind, Stability
from heliotrope_epp.plugins.parameters import NoParameters, StrictModel

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
VALID = (
    HEAD
    + """
featureGates: []
plugins:
- type: queue-scorer
- {type: prefix-cache-scorer, name: prefix, parameters: {matchLengthWeight: 0.5}}
- {type: approx-prefix-cache-producer, parameters: {lruCapacityPerServer: 100, autoTune: false, blockSizeTokens: 64}}
- type: max-score-picker
- {type: file-discovery, name: files, parameters: {path: e.yaml}}
- {type: metrics-data-source, parameters: {interval: 1s}}
- {type: label-selector-filter, parameters: {matchExpressions: [{key: a, operator: In, values: [b]}]}}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: prefix, weight: 1.5}
  - {pluginRef: max-score-picker}
dataLayer: {discovery: {pluginRef: files}, sources: [{pluginRef: metrics-data-source}]}
flowControl: {maxBytes: 1Gi, defaultRequestTTL: 60s, priorityBands: [{priority: 1}]}
requestHandler: {parsers: [{pluginRef: openai-parser}]}
"""
)


def refused(text: str) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        load(text, builtin_registry())
    return caught.value


def plugins(*entries: str) -> str:
    return HEAD + "plugins:\n" + "".join(f"- {{{entry}}}\n" for entry in entries)


def profile(*entries: str, declared: str = "type: queue-scorer") -> str:
    return (
        plugins(*declared.split(";"))
        + "schedulingProfiles:\n- name: default\n  plugins:\n"
        + "".join(f"  - {{{entry}}}\n" for entry in entries)
    )


def test_the_valid_one_is_valid() -> None:
    load(VALID, builtin_registry())


@pytest.mark.parametrize(
    ("text", "path", "problem"),
    [
        # not a document
        ("a: [", "line 1", "expected"),
        ("a: 1\nb:\n  c: 1\n  c: 2\n", "line 4", "the key c comes twice"),
        ("a: !!python/object/apply:os.system [ls]", "line 1", "could not determine a constructor"),
        ("- a\n", "", "must be a mapping with apiVersion and kind, not list"),
        ("a: 1\n---\nb: 2\n", "line 2", "another document"),
        ("? [a]\n: 1\n", "line 1", "a key must be a string"),
        ("a: &x [*x]", "line 1", "recursive"),
        ("a: !!binary aGk=", "", "not expressible in JSON"),
        ("[" * 1000, "", "not expressible in JSON"),
        # the head
        ("plugins: []\n", "apiVersion", "is required\nkind: is required"),
        ("apiVersion: v1\nkind: EndpointPickerConfig", "apiVersion", "must be 'llm-d.ai/v1alpha1' or"),
        ("apiVersion: llm-d.ai/v1alpha1\nkind: Config", "kind", "must be 'EndpointPickerConfig', not \"Config\""),
        # unknown keys, with a suggestion where one is near
        (HEAD + "plugin: []", "plugin", "unknown key; did you mean plugins?"),
        (HEAD + "schedulingprofiles: []", "schedulingprofiles", "did you mean schedulingProfiles?"),
        (HEAD + "zzz: 1", "zzz", "unknown key; known keys: apiVersion, kind, featureGates"),
        (HEAD + "zzz:", "zzz", "unknown key"),
        (HEAD + "scheduling_profiles: []", "scheduling_profiles", "did you mean schedulingProfiles?"),
        (HEAD + "'a b': 1", '["a b"]', "unknown key"),
        (plugins("type: queue-scorer, parameter: {}"), "plugins[0].parameter", "did you mean parameters?"),
        (profile("pluginRef: queue-scorer, wieght: 1"), "schedulingProfiles[0].plugins[0].wieght", "mean weight?"),
        (HEAD + "flowControl: {maxByte: 1}", "flowControl.maxByte", "did you mean maxBytes?"),
        (HEAD + "flowControl: {priorityBands: [{prio: 1}]}", "flowControl.priorityBands[0].prio", "mean priority?"),
        # unknown parameters
        (plugins("type: queue-scorer, parameters: {a: 1}"), "plugins[0].parameters.a", "there are no keys here"),
        (
            plugins("type: max-score-picker, parameters: {maxNumOfEndpoint: 1}"),
            "plugins[0].parameters.maxNumOfEndpoint",
            "did you mean maxNumOfEndpoints?",
        ),
        (
            plugins("type: prefix-cache-scorer, parameters: {lruCapacityPerServer: 1}"),
            "plugins[0].parameters.lruCapacityPerServer",
            "unknown key; it is a parameter of approx-prefix-cache-producer",
        ),
        # wrong types: nothing is converted
        (HEAD + "plugins: {}", "plugins", "must be a valid array, not {}"),
        (plugins("type: 5"), "plugins[0].type", "must be a valid string, not 5"),
        (plugins("name: a"), "plugins[0].type", "is required"),
        (plugins("type: queue-scorer, parameters: []"), "plugins[0].parameters", "must be an object, not []"),
        (profile("pluginRef: queue-scorer, weight: '2'"), "schedulingProfiles[0].plugins[0].weight", "valid number"),
        (profile("weight: 2"), "schedulingProfiles[0].plugins[0].pluginRef", "is required"),
        (HEAD + "featureGates: flowControl", "featureGates", "must be a valid array"),
        (
            plugins("type: max-score-picker, parameters: {maxNumOfEndpoints: 1.5}"),
            "plugins[0].parameters.maxNumOfEndpoints",
            "must be a valid integer",
        ),
        (
            plugins("type: approx-prefix-cache-producer, parameters: {autoTune: 'true'}"),
            "plugins[0].parameters.autoTune",
            'must be a valid boolean, not "true"',
        ),
        (HEAD + "flowControl: {defaultRequestTTL: 60}", "flowControl.defaultRequestTTL", 'a duration such as "500ms"'),
        (HEAD + "flowControl: {defaultRequestTTL: 1 minute}", "flowControl.defaultRequestTTL", "must be a duration"),
        (HEAD + "flowControl: {maxBytes: 1GiB}", "flowControl.maxBytes", "must be a quantity"),
        (HEAD + "flowControl: {maxRequests: -1}", "flowControl.maxRequests", "must be a quantity"),
        # out of range
        (profile("pluginRef: queue-scorer, weight: -1"), "schedulingProfiles[0].plugins[0].weight", "or equal to 0"),
        (profile("pluginRef: queue-scorer, weight: .nan"), "schedulingProfiles[0].plugins[0].weight", "finite"),
        (profile("pluginRef: queue-scorer, weight: .inf"), "schedulingProfiles[0].plugins[0].weight", "finite"),
        (
            plugins("type: prefix-cache-scorer, parameters: {matchLengthWeight: 1.1}"),
            "plugins[0].parameters.matchLengthWeight",
            "less than or equal to 1",
        ),
        (
            plugins("type: prefix-cache-scorer, parameters: {matchLengthWeight: 1, matchLengthScaleTokens: 0}"),
            "plugins[0].parameters",
            "matchLengthScaleTokens must be above 0",
        ),
        (
            plugins("type: max-score-picker, parameters: {maxNumOfEndpoints: 0}"),
            "plugins[0].parameters.maxNumOfEndpoints",
            "greater than or equal to 1, not 0",
        ),
        (plugins("type: file-discovery"), "plugins[0].parameters.path", "is required"),
        (plugins("type: file-discovery, parameters: {path: ''}"), "plugins[0].parameters.path", "at least 1 character"),
        (
            plugins("type: metrics-data-source, parameters: {path: metrics}"),
            "plugins[0].parameters.path",
            "must match pattern",
        ),
        (
            plugins("type: metrics-data-source, parameters: {scheme: https}"),
            "plugins[0].parameters.scheme",
            "must be 'http', not \"https\"",
        ),
        (
            plugins("type: metrics-data-source, parameters: {interval: 1ms}"),
            "plugins[0].parameters.interval",
            "greater than or equal to 0.05",
        ),
        # plugin types
        (
            plugins("type: quue-scorer"),
            "plugins[0].type",
            "unknown plugin type quue-scorer; did you mean queue-scorer?",
        ),
        (plugins("type: Queue-Scorer"), "plugins[0].type", "did you mean queue-scorer?"),
        (plugins("type: zzz"), "plugins[0].type", "unknown plugin type zzz; known types: always-disagg-multi"),
        (plugins("type: ''"), "plugins[0].type", "at least 1 character"),
        (
            plugins("type: weighted-random-picker"),
            "plugins[0].type",
            "weighted-random-picker is llm-d's, but not supported by Heliotrope yet (docs/plugins.md)",
        ),
        # references
        (
            profile("pluginRef: queue-scorer", "pluginRef: queue-score"),
            "schedulingProfiles[0].plugins[1].pluginRef",
            "no entry of plugins has the name queue-score; did you mean queue-scorer?",
        ),
        (
            profile("pluginRef: zzz"),
            "schedulingProfiles[0].plugins[0].pluginRef",
            "no entry of plugins has the name zzz",
        ),
        (
            plugins("type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: zzz}"),
            "plugins[0].parameters.prefixMatchInfoProducerName",
            "no entry of plugins has the name zzz",
        ),
        (
            plugins(
                "type: queue-scorer",
                "type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: queue-scorer}",
            ),
            "plugins[1].parameters.prefixMatchInfoProducerName",
            "queue-scorer is a scorer, where a producer is needed",
        ),
        (
            HEAD + "dataLayer: {discovery: {pluginRef: file-discovery}}",
            "dataLayer.discovery.pluginRef",
            "no entry of plugins has the name file-discovery",
        ),
        (
            plugins("type: random-picker") + "dataLayer: {discovery: {pluginRef: random-picker}}",
            "dataLayer.discovery.pluginRef",
            "random-picker is a picker, where a discovery is needed",
        ),
        (
            HEAD + "dataLayer: {sources: [{pluginRef: metrics-data-source}]}",
            "dataLayer.sources[0].pluginRef",
            "no entry of plugins has the name metrics-data-source",
        ),
        (
            plugins("type: metrics-data-source")
            + "dataLayer: {sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: x}]}]}",
            "dataLayer.sources[0].extractors[0].pluginRef",
            "no entry of plugins has the name x",
        ),
        (
            HEAD + "requestHandler: {parsers: [{pluginRef: openai-parse}]}",
            "requestHandler.parsers[0].pluginRef",
            "did you mean openai-parser?",
        ),
        (
            HEAD + "requestHandler: {parsers: [{pluginRef: anthropic-parser}]}",
            "requestHandler.parsers[0].pluginRef",
            "anthropic-parser is llm-d's, but not supported",
        ),
        (HEAD + "parser: {pluginRef: zzz}", "parser.pluginRef", "no entry of plugins has the name zzz"),
        # duplicates
        (plugins("type: queue-scorer", "type: queue-scorer"), "plugins[1]", "the name queue-scorer is taken"),
        (plugins("type: queue-scorer", "type: decode-filter, name: queue-scorer"), "plugins[1].name", "is taken"),
        (
            profile(
                "pluginRef: a", "pluginRef: b", declared="type: max-score-picker, name: a;type: random-picker, name: b"
            ),
            "schedulingProfiles[0].plugins[1].pluginRef",
            "the profile has the picker a already; keep one of them",
        ),
        (
            plugins("type: max-score-picker", "type: random-picker"),
            "schedulingProfiles[0].plugins[1].pluginRef",
            "the profile has the picker max-score-picker already",
        ),
        (
            plugins("type: single-profile-handler", "type: single-profile-handler, name: b"),
            "plugins[1]",
            "a second profile handler beside single-profile-handler",
        ),
        (
            HEAD + "schedulingProfiles: [{name: a}, {name: a}]",
            "schedulingProfiles[1].name",
            "the name a comes twice",
        ),
        (HEAD + "schedulingProfiles: [{name: ''}]", "schedulingProfiles[0].name", "at least 1 character"),
        # features that are llm-d's
        (HEAD + "schedulingProfiles: [{name: a}, {name: b}]", "schedulingProfiles[1]", "several profiles need"),
        (HEAD + "featureGates: [flowControl]", "featureGates[0]", "flowControl=true is not supported"),
        (
            HEAD + "featureGates: [haPopulateNonLeaderDatastore=false]",
            "featureGates[0]",
            "haPopulateNonLeaderDatastore=false is not supported",
        ),
        (
            HEAD + "featureGates: [flowcontrol]",
            "featureGates[0]",
            "unknown feature gate flowcontrol; did you mean flowC",
        ),
        (HEAD + "featureGates: [flowControl=maybe]", "featureGates[0]", "'maybe' is not true or false"),
        (HEAD + "flowControl: {enableEviction: true}", "flowControl.enableEviction", "eviction is not supported"),
        (
            HEAD + "saturationDetector: {pluginRef: utilization-detector}",
            "saturationDetector",
            "saturation detectors are not supported",
        ),
        (
            HEAD + "flowControl: {saturationDetector: {pluginRef: utilization-detector}}",
            "flowControl.saturationDetector",
            "saturation detectors are not supported",
        ),
        (
            HEAD + "dataLayer: {peerDiscovery: {pluginRef: x}}",
            "dataLayer.peerDiscovery",
            "is llm-d's, but not supported by Heliotrope yet",
        ),
        (
            HEAD + "dataLayer: {crossReplicaSyncInterval: 1s}",
            "dataLayer.crossReplicaSyncInterval",
            "is llm-d's, but not supported",
        ),
        (
            plugins("type: metrics-data-source, parameters: {port: 9000}"),
            "plugins[0].parameters.port",
            "is llm-d's, but not supported",
        ),
        (
            plugins("type: core-metrics-extractor, parameters: {engineConfigs: []}"),
            "plugins[0].parameters.engineConfigs",
            "is llm-d's, but not supported",
        ),
        (
            plugins("type: metrics-data-source", "type: metrics-data-source, name: b")
            + "dataLayer: {sources: [{pluginRef: b}, {pluginRef: metrics-data-source}]}",
            "dataLayer.sources[1]",
            "more than one source is not supported",
        ),
        (
            plugins(
                "type: approx-prefix-cache-producer, name: a",
                "type: approx-prefix-cache-producer, name: b",
                "type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: a}",
            ),
            "plugins[2].parameters.prefixMatchInfoProducerName",
            "choosing among several producers is not supported",
        ),
    ],
)
def test_refused(text: str, path: str, problem: str) -> None:
    error = refused(text)
    assert error.path == path
    assert problem in error.problem
    assert str(error).startswith(f"{path}: " if path else error.problem)


def test_everything_that_is_wrong_is_told_at_once() -> None:
    error = refused(
        plugins("type: quue-scorer", "type: random-picker, parameters: {maxNumOfEndpoints: 0}", "type: decode-filter")
        + "featureGates: [flowControl]\n"
        + "schedulingProfiles: [{name: a, plugins: [{pluginRef: decode-filtre}, {pluginRef: quue-scorer}]}]\n"
    )
    assert str(error).splitlines() == [
        "featureGates[0]: flowControl=true is not supported by Heliotrope yet; remove it",
        "plugins[0].type: unknown plugin type quue-scorer; did you mean queue-scorer?",
        "plugins[1].parameters.maxNumOfEndpoints: must be greater than or equal to 1, not 0",
        (
            "schedulingProfiles[0].plugins[0].pluginRef: no entry of plugins has the name decode-filtre; "
            "did you mean decode-filter?"
        ),
    ], "a reference to a faulty entry is not a problem of its own"


def test_long_values_are_cut() -> None:
    error = refused(HEAD + "plugins: " + json.dumps("x" * 5000))
    assert len(str(error)) < 200


class Sized(StrictModel):
    size: int = 0


def test_what_a_factory_refuses_has_the_path_of_its_entry() -> None:
    def build(parameters: Sized, context: PluginContext) -> object:
        raise InvalidInputError("parameters.size", "must be even")

    registry = builtin_registry()
    registry.register("even", PluginKind.SCORER, Sized, build, Stability.BETA)
    with pytest.raises(InvalidInputError, match=r"^plugins\[1\]: parameters.size: must be even$"):
        load(plugins("type: queue-scorer", "type: even, parameters: {size: 3}"), registry)


@pytest.mark.parametrize("kind", [PluginKind.DISCOVERY, PluginKind.DATA_SOURCE])
def test_data_layer_plugins_of_others_cannot_be_used(kind: PluginKind) -> None:
    registry = builtin_registry()
    registry.register("theirs", kind, NoParameters, lambda parameters, _context: parameters, Stability.BETA)
    use = "discovery: {pluginRef: theirs}" if kind is PluginKind.DISCOVERY else "sources: [{pluginRef: theirs}]"
    with pytest.raises(InvalidInputError, match="theirs cannot be used"):
        load(plugins("type: theirs") + f"dataLayer: {{{use}}}", registry)


def test_experimental_types_are_warned_about() -> None:
    registry = builtin_registry()
    registry.register("new", PluginKind.PRODUCER, NoParameters, lambda *_: Belief(), Stability.ALPHA)
    assert load(plugins("type: new"), registry).warnings == ("plugins[0].type: new is experimental (Alpha)",)


class Belief:
    def cached_tokens(self) -> None: ...

    def routed(self) -> None: ...

    def forget(self) -> None: ...


def places(value: object, path: tuple[int | str, ...] = ()) -> list[tuple[int | str, ...]]:
    """The paths of all mappings in a document."""
    found = []
    if isinstance(value, dict):
        found.append(path)
        for key, item in value.items():
            found += places(item, (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            found += places(item, (*path, i))
    return found


@settings(deadline=None, max_examples=30)
@given(st.randoms(use_true_random=False), st.text("abcXYZ_-é ", min_size=1, max_size=12))
def test_an_unknown_key_anywhere_is_refused_where_it_stands(random: Random, key: str) -> None:
    document = yaml.safe_load(VALID)
    place = random.choice(places(document))
    at = document
    for part in place:
        at = at[part]
    if key in at or key in ("a", "b", "c"):
        return
    at[key] = 1
    error = refused(yaml.safe_dump(document, allow_unicode=True))
    assert "unknown key" in error.problem
    assert error.path == key_path("", (*place, key))


@settings(deadline=None, max_examples=40)
@given(st.text(max_size=200))
def test_garbage_never_ends_in_another_error(text: str) -> None:
    with suppress(InvalidInputError):
        load(text, builtin_registry())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=True) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, max_examples=40)
@given(st.randoms(use_true_random=False), json_values)
def test_a_wrong_value_anywhere_never_ends_in_another_error(random: Random, value: object) -> None:
    document = yaml.safe_load(VALID)
    place = random.choice(places(document)[1:])
    at = document
    for part in place[:-1]:
        at = at[part]
    at[place[-1]] = value
    with suppress(InvalidInputError):
        load(yaml.safe_dump(document), builtin_registry())
