"""Which endpoints the filters keep."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.epp.plugins.builders import option, request, state

from heliotrope_epp.plugins.filters.by_label import ByLabelParameters, by_label
from heliotrope_epp.plugins.filters.decode import decode_filter
from heliotrope_epp.plugins.filters.label_selector import LabelSelectorFilter, LabelSelectorParameters
from heliotrope_epp.plugins.interface import Filter
from heliotrope_epp.plugins.options import Options

ROLE = "llm-d.ai/role"


def kept(plugin: Filter, *labels: dict[str, str]) -> list[int]:
    options = [option(state(str(i), labels=of)) for i, of in enumerate(labels)]
    return [int(o.state.endpoint.name) for o in plugin.filter(request(), Options.of(options))]


@pytest.mark.parametrize("role", ["decode", "both", "prefill-decode", "encode-prefill-decode"])
def test_decode_filter_keeps_roles_that_decode(role: str) -> None:
    assert kept(decode_filter(), {ROLE: role}) == [0]


@pytest.mark.parametrize("role", ["prefill", "encode", "encode-prefill", ""])
def test_decode_filter_drops_other_roles(role: str) -> None:
    assert kept(decode_filter(), {ROLE: role}) == []


def test_decode_filter_keeps_endpoints_without_a_role_and_their_order() -> None:
    assert kept(decode_filter(), {}, {ROLE: "prefill"}, {ROLE: "decode"}, {"other": "x"}) == [0, 2, 3]


def selector(text: str) -> LabelSelectorFilter:
    return LabelSelectorFilter(LabelSelectorParameters.model_validate_json(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", [0, 1, 2]),
        ('{"matchLabels": {"gpu": "h100"}}', [0]),
        ('{"matchLabels": {"gpu": "h100", "zone": "b"}}', []),
        ('{"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h100", "a100"]}]}', [0, 1]),
        ('{"matchExpressions": [{"key": "gpu", "operator": "NotIn", "values": ["h100"]}]}', [1, 2]),
        ('{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}', [0, 1]),
        ('{"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}', [2]),
        ('{"matchLabels": {"zone": "a"}, "matchExpressions": [{"key": "gpu", "operator": "Exists"}]}', [0, 1]),
    ],
)
def test_label_selector(text: str, expected: list[int]) -> None:
    labels = [{"gpu": "h100", "zone": "a"}, {"gpu": "a100", "zone": "a"}, {"zone": "a"}]
    assert kept(selector(text), *labels) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"matchExpressions": [{"key": "gpu", "operator": "In"}]}', "needs values"),
        ('{"matchExpressions": [{"key": "gpu", "operator": "Exists", "values": ["x"]}]}', "takes no values"),
        ('{"matchExpressions": [{"key": "gpu", "operator": "Gt", "values": ["1"]}]}', "'In'"),
        ('{"matchExpressions": [{"key": "", "operator": "Exists"}]}', "at least 1 character"),
        ('{"matchLabels": {"gpu": 1}}', "valid string"),
    ],
)
def test_label_selector_refuses(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        selector(text)


def test_by_label() -> None:
    parameters = ByLabelParameters.model_validate_json('{"label": "gpu", "validValues": ["h100", ""]}')
    assert kept(by_label(parameters), {"gpu": "h100"}, {"gpu": "a100"}, {}, {"gpu": ""}) == [0, 3]
    parameters = ByLabelParameters.model_validate_json('{"label": "gpu", "allowsNoLabel": true}')
    assert kept(by_label(parameters), {"gpu": "h100"}, {}) == [1]


def test_by_label_that_lets_nothing_pass_is_refused() -> None:
    with pytest.raises(ValueError, match="validValues"):
        ByLabelParameters.model_validate_json('{"label": "gpu"}')


@settings(deadline=None, max_examples=60)
@given(st.lists(st.dictionaries(st.sampled_from([ROLE, "gpu"]), st.sampled_from(["decode", "prefill", "x"]))))
def test_filters_keep_a_subsequence(labels: list[dict[str, str]]) -> None:
    for plugin in (decode_filter(), selector('{"matchLabels": {"gpu": "x"}}')):
        positions = kept(plugin, *labels)
        assert positions == sorted(set(positions))
