"""What llm-d's picker runs when the configuration leaves it out."""

from collections.abc import Sequence

from heliotrope_epp.config.schema import EndpointPickerConfig, PluginSpec, SchedulingPlugin, SchedulingProfile
from heliotrope_epp.plugins.kinds import PluginKind
from heliotrope_epp.plugins.registry import PluginRegistry
from heliotrope_epp.plugins.scorers.kv_cache_utilization import KV_CACHE_UTILIZATION_SCORER
from heliotrope_epp.plugins.scorers.prefix_cache import PREFIX_CACHE_SCORER
from heliotrope_epp.plugins.scorers.queue_depth import QUEUE_SCORER

DEFAULT_PROFILE = "default"
DEFAULT_WEIGHTS = ((QUEUE_SCORER, 2.0), (KV_CACHE_UTILIZATION_SCORER, 2.0), (PREFIX_CACHE_SCORER, 3.0))
DEFAULT_SCORER_WEIGHT = 1.0

_IN_PROFILES = frozenset({PluginKind.FILTER, PluginKind.SCORER, PluginKind.PICKER})


def with_default_profile(config: EndpointPickerConfig, registry: PluginRegistry) -> EndpointPickerConfig:
    """The configuration with a profile.

    Without `schedulingProfiles` there is one profile of all declared filters, scorers and pickers in their order. If
    none is declared either, it has the default scorers; llm-d then draws at random.
    """
    if config.scheduling_profiles:
        return config
    declared = _declared(config.plugins, registry)
    specs: tuple[PluginSpec, ...] = ()
    if not declared:
        names = {spec.name or spec.type for spec in config.plugins}
        specs = tuple(PluginSpec(type=name) for name, _ in DEFAULT_WEIGHTS if name not in names)
        declared = [SchedulingPlugin.model_validate({"pluginRef": n, "weight": w}) for n, w in DEFAULT_WEIGHTS]
    profile = SchedulingProfile(name=DEFAULT_PROFILE, plugins=tuple(declared))
    return config.model_copy(update={"plugins": (*config.plugins, *specs), "scheduling_profiles": (profile,)})


def _declared(specs: Sequence[PluginSpec], registry: PluginRegistry) -> list[SchedulingPlugin]:
    found = []
    for spec in specs:
        plugin = registry.find(spec.type)
        if plugin is not None and plugin.kind in _IN_PROFILES:
            found.append(SchedulingPlugin.model_validate({"pluginRef": spec.name or spec.type}))
    return found
