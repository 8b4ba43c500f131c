"""The data layer and the parsers, from references to settings."""

from heliotrope_epp.config.instances import Instances
from heliotrope_epp.config.schema import EndpointPickerConfig
from heliotrope_epp.plugins.builtin import OPENAI_PARSER
from heliotrope_epp.plugins.datalayer import METRICS_DATA_SOURCE, FileDiscoveryParameters, MetricsSourceParameters
from heliotrope_epp.plugins.kinds import PluginKind


def resolve_discovery(config: EndpointPickerConfig, instances: Instances) -> FileDiscoveryParameters | None:
    """Which file lists the endpoints; None: the configuration does not say."""
    reference = config.data_layer.discovery
    if reference is None:
        return None
    path = "dataLayer.discovery.pluginRef"
    instance = instances.resolve(reference.plugin_ref, (PluginKind.DISCOVERY,), path)
    if instance is None:
        return None
    if isinstance(instance.parameters, FileDiscoveryParameters):
        return instance.parameters
    instances.problems.add(path, f"{instance.plugin.name} cannot be used: file-discovery is the only discovery plugin")
    return None


def resolve_metrics(config: EndpointPickerConfig, instances: Instances) -> MetricsSourceParameters | None:
    """How engines are asked for their metrics; None: they are not.

    Without sources it is by the entry `metrics-data-source` or that type's defaults, unless `injectDefaults` is false.
    """
    sources = config.data_layer.sources
    for i, source in enumerate(sources):
        path = f"dataLayer.sources[{i}]"
        for j, extractor in enumerate(source.extractors):
            at = f"{path}.extractors[{j}].pluginRef"
            instances.resolve(extractor.plugin_ref, (PluginKind.EXTRACTOR,), at)
        if i > 0:
            instances.problems.add(path, "more than one source is not supported by Heliotrope yet; keep the first")
    if sources:
        reference, path = sources[0].plugin_ref, "dataLayer.sources[0].pluginRef"
    elif config.data_layer.inject_defaults:
        reference, path = METRICS_DATA_SOURCE, "dataLayer"
    else:
        return None
    instance = instances.resolve(reference, (PluginKind.DATA_SOURCE,), path, create=not sources)
    if instance is None:
        return None
    if isinstance(instance.parameters, MetricsSourceParameters):
        return instance.parameters
    instances.problems.add(path, f"{instance.plugin.name} cannot be used: metrics-data-source is the only source")
    return None


def resolve_parsers(config: EndpointPickerConfig, instances: Instances) -> tuple[str, ...]:
    """The types of the parsers, in order."""
    references = [
        (p.plugin_ref, f"requestHandler.parsers[{i}].pluginRef") for i, p in enumerate(config.request_handler.parsers)
    ]
    if config.parser is not None:
        instances.warnings.append("parser is deprecated; use requestHandler.parsers")
        references = references or [(config.parser.plugin_ref, "parser.pluginRef")]
    if not references:
        return (OPENAI_PARSER,)
    found = [instances.resolve(name, (PluginKind.PARSER,), path, create=True) for name, path in references]
    return tuple(instance.plugin.name for instance in found if instance is not None)
