"""From the text of an `EndpointPickerConfig` to running plugins: decode, complete, check, build."""

from heliotrope_epp.config.datalayer import resolve_discovery, resolve_metrics, resolve_parsers
from heliotrope_epp.config.defaults import with_default_profile
from heliotrope_epp.config.document import read_mapping
from heliotrope_epp.config.features import check_feature_gates, check_flow_control
from heliotrope_epp.config.instances import Instances
from heliotrope_epp.config.loaded import LoadedConfig
from heliotrope_epp.config.problems import Problems
from heliotrope_epp.config.profiles import build_scheduling, resolve_scheduling
from heliotrope_epp.config.schema import API_VERSION, KIND, LEGACY_API_VERSION, EndpointPickerConfig
from heliotrope_epp.plugins.context import PluginContext
from heliotrope_epp.plugins.registry import PluginRegistry


def load(text: str, registry: PluginRegistry, context: PluginContext | None = None) -> LoadedConfig:
    """Read a configuration and build what it names.

    Args:
        text: YAML or JSON; empty for llm-d's default configuration.
        registry: the plugin types that it may name.
        context: given to the plugins; by default real clocks, no policy, an unseeded generator.

    Raises:
        InvalidInputError: if anything in it is wrong or not supported. The path is that of the first problem, as in
            `schedulingProfiles[0].plugins[2].pluginRef`; the text has a line for each.
    """
    problems = Problems()
    document = read_mapping(text) or {"apiVersion": API_VERSION, "kind": KIND}
    config = problems.decode(EndpointPickerConfig, document)
    problems.raise_any()
    assert config is not None
    warnings = check_flow_control(config, problems)
    if config.api_version == LEGACY_API_VERSION:
        warnings.append(f"apiVersion {LEGACY_API_VERSION} is deprecated; use {API_VERSION}")
    check_feature_gates(config.feature_gates, problems)
    config = with_default_profile(config, registry)
    instances = Instances(registry, problems)
    instances.declare(config.plugins)
    resolved = resolve_scheduling(config.scheduling_profiles, instances)
    discovery = resolve_discovery(config, instances)
    metrics = resolve_metrics(config, instances)
    parsers = resolve_parsers(config, instances)
    problems.raise_any()
    scheduling = build_scheduling(resolved, instances, context or PluginContext())
    return LoadedConfig(scheduling, discovery, metrics, parsers, (*warnings, *instances.warnings))
