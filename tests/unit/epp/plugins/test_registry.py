"""Registering plugin types, and those that other distributions bring."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from heliotrope.errors import InvalidInputError
from heliotrope_epp.plugins.builtin import builtin_registry
from heliotrope_epp.plugins.context import PluginContext
from heliotrope_epp.plugins.installed import register_installed
from heliotrope_epp.plugins.kinds import PluginKind, Stability
from heliotrope_epp.plugins.parameters import NoParameters
from heliotrope_epp.plugins.registry import PluginRegistry
from heliotrope_epp.plugins.scorers.queue_depth import QueueScorer


def add(registry: PluginRegistry, name: str, kind: PluginKind = PluginKind.SCORER, built: object = None) -> None:
    plugin = QueueScorer() if built is None else built
    registry.register(name, kind, NoParameters, lambda _parameters, _context: plugin, Stability.BETA)


def test_a_name_is_registered_once() -> None:
    registry = builtin_registry()
    with pytest.raises(InvalidInputError, match="queue-scorer: this plugin type is registered already"):
        add(registry, "queue-scorer")


@pytest.mark.parametrize("name", ["", "Queue", "queue_scorer", "-a", "a-", "a b"])
def test_names_are_in_lower_case_with_dashes(name: str) -> None:
    with pytest.raises(InvalidInputError, match="lower case with dashes"):
        add(PluginRegistry(), name)


def test_types_are_listed_sorted_and_registries_are_apart() -> None:
    registry = PluginRegistry()
    for name in ("b", "c", "a"):
        add(registry, name)
    assert [plugin.name for plugin in registry] == ["a", "b", "c"]
    assert len(registry) == 3
    assert registry.find("queue-scorer") is None
    assert builtin_registry().find("a") is None


def test_the_types_of_the_issue_are_there() -> None:
    names = {plugin.name for plugin in builtin_registry()}
    assert names >= {
        "queue-scorer",
        "kv-cache-utilization-scorer",
        "prefix-cache-scorer",
        "approx-prefix-cache-producer",
        "decode-filter",
        "max-score-picker",
        "random-picker",
        "single-profile-handler",
        "carbon-picker",
        "file-discovery",
    }


def test_every_builtin_type_that_needs_no_parameter_builds() -> None:
    for plugin in builtin_registry():
        if plugin.name not in ("file-discovery", "by-label"):
            assert plugin.build(plugin.parameters(), PluginContext()) is not None


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        (PluginKind.FILTER, "filter"),
        (PluginKind.PICKER, "pick"),
        (PluginKind.PRODUCER, "cached_tokens"),
        (PluginKind.PROFILE_HANDLER, "profiles"),
    ],
)
def test_a_factory_that_builds_for_another_slot_is_refused_at_start(kind: PluginKind, method: str) -> None:
    registry = PluginRegistry()
    add(registry, "odd", kind, QueueScorer())
    plugin = registry.find("odd")
    assert plugin is not None
    with pytest.raises(InvalidInputError, match=rf"odd: its factory built QueueScorer, which has no {method}\(\)"):
        plugin.build(NoParameters(), PluginContext())


def test_asking_for_a_producer_that_was_not_built() -> None:
    with pytest.raises(InvalidInputError, match="requires"):
        PluginContext().producer("approx-prefix-cache-producer")


MODULE = """
from heliotrope_epp.plugins.kinds import PluginKind, Stability
from heliotrope_epp.plugins.parameters import NoParameters
from heliotrope_epp.plugins.scorers.queue_depth import QueueScorer

def register(registry):
    registry.register(
        "their-scorer", PluginKind.SCORER, NoParameters, lambda parameters, context: QueueScorer(), Stability.ALPHA
    )

def again(registry):
    register(registry)
    register(registry)
"""

Install = Callable[[str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes a distribution with an entry point importable, as pip would."""

    def add_distribution(entry_point: str) -> None:
        (tmp_path / "their_plugins.py").write_text(MODULE)
        info = tmp_path / "their_plugins-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-plugins\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[heliotrope.plugins]\ntheirs = {entry_point}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "their_plugins", raising=False)

    return add_distribution


def test_installed_distributions_add_their_types(install: Install) -> None:
    install("their_plugins:register")
    registry = builtin_registry()
    assert register_installed(registry) == ("theirs",)
    assert registry.find("their-scorer") is not None


@pytest.mark.parametrize(
    ("entry_point", "message"),
    [
        ("their_plugins:missing", "plugin theirs: entry point their_plugins:missing failed: AttributeError"),
        ("no_such_module:register", "plugin theirs: .*ModuleNotFoundError: No module named 'no_such_module'"),
        ("their_plugins:MODULE", "plugin theirs: .*AttributeError"),
        ("their_plugins:again", "their-scorer: this plugin type is registered already"),
    ],
)
def test_a_broken_distribution_stops_the_start(install: Install, entry_point: str, message: str) -> None:
    install(entry_point)
    with pytest.raises(InvalidInputError, match=message):
        register_installed(builtin_registry())
