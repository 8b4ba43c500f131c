"""The plugin types that Heliotrope brings, under llm-d's names."""

from heliotrope_epp.plugins.datalayer import (
    CORE_METRICS_EXTRACTOR,
    FILE_DISCOVERY,
    METRICS_DATA_SOURCE,
    FileDiscoveryParameters,
    MetricsExtractorParameters,
    MetricsSourceParameters,
)
from heliotrope_epp.plugins.filters.by_label import BY_LABEL, ByLabelParameters, by_label
from heliotrope_epp.plugins.filters.decode import DECODE_FILTER, decode_filter
from heliotrope_epp.plugins.filters.encode import ENCODE_FILTER, encode_filter
from heliotrope_epp.plugins.filters.label_selector import (
    BY_LABEL_SELECTOR,
    LABEL_SELECTOR_FILTER,
    LabelSelectorFilter,
    LabelSelectorParameters,
)
from heliotrope_epp.plugins.filters.prefill import PREFILL_FILTER, prefill_filter
from heliotrope_epp.plugins.kinds import PluginKind, Stability
from heliotrope_epp.plugins.parameters import NoParameters
from heliotrope_epp.plugins.pickers.carbon import CARBON_PICKER, CarbonPicker
from heliotrope_epp.plugins.pickers.kv_links import CarbonPickerParameters
from heliotrope_epp.plugins.pickers.max_score import MAX_SCORE_PICKER, MaxScorePicker
from heliotrope_epp.plugins.pickers.random_choice import RANDOM_PICKER, RandomPicker
from heliotrope_epp.plugins.pickers.ranking import PickerParameters
from heliotrope_epp.plugins.producers.approx_prefix_cache import (
    APPROX_PREFIX_CACHE_PRODUCER,
    ApproxPrefixCacheParameters,
    ApproxPrefixCacheProducer,
)
from heliotrope_epp.plugins.producers.mm_embeddings_cache import (
    MM_EMBEDDINGS_CACHE_PRODUCER,
    MmEmbeddingsCacheProducerParameters,
    sized,
)
from heliotrope_epp.plugins.producers.precise_prefix_cache import (
    PRECISE_PREFIX_CACHE_PRODUCER,
    PrecisePrefixCacheParameters,
    PrecisePrefixCacheProducer,
)
from heliotrope_epp.plugins.profilehandlers.deciders import (
    ALWAYS_DISAGG_MULTIMODAL_DECIDER,
    ALWAYS_DISAGG_PD_DECIDER,
    PREFIX_BASED_PD_DECIDER,
    AlwaysDisaggMultimodalDecider,
    AlwaysDisaggPdDecider,
    PrefixBasedPdDecider,
    PrefixBasedPdDeciderParameters,
)
from heliotrope_epp.plugins.profilehandlers.disagg import (
    DISAGG_HEADERS_HANDLER,
    DISAGG_PROFILE_HANDLER,
    PREFILL_HEADER_HANDLER,
    DisaggProfileHandler,
    DisaggProfileHandlerParameters,
    NoEffect,
)
from heliotrope_epp.plugins.profilehandlers.single import SINGLE_PROFILE_HANDLER, SingleProfileHandler
from heliotrope_epp.plugins.registry import PluginRegistry
from heliotrope_epp.plugins.scorers.kv_cache_utilization import KV_CACHE_UTILIZATION_SCORER, KvCacheUtilizationScorer
from heliotrope_epp.plugins.scorers.mm_embeddings_cache import MM_EMBEDDINGS_CACHE_SCORER, MmEmbeddingsCacheScorer
from heliotrope_epp.plugins.scorers.power_headroom import POWER_HEADROOM_SCORER, PowerHeadroomScorer
from heliotrope_epp.plugins.scorers.prefix_cache import (
    PREFIX_CACHE_SCORER,
    PrefixCacheScorer,
    PrefixCacheScorerParameters,
)
from heliotrope_epp.plugins.scorers.queue_depth import QUEUE_SCORER, QueueScorer

OPENAI_PARSER = "openai-parser"


def builtin_registry() -> PluginRegistry:
    """A new registry with every built-in type."""
    registry = PluginRegistry()
    _filters(registry)
    _scorers(registry)
    _pickers(registry)
    _settings(registry)
    registry.register(
        SINGLE_PROFILE_HANDLER,
        PluginKind.PROFILE_HANDLER,
        NoParameters,
        lambda _parameters, _context: SingleProfileHandler(),
        Stability.BETA,
    )
    _disaggregation(registry)
    _embeddings(registry)
    registry.register(
        APPROX_PREFIX_CACHE_PRODUCER,
        PluginKind.PRODUCER,
        ApproxPrefixCacheParameters,
        lambda parameters, context: ApproxPrefixCacheProducer(parameters, context.clock.monotonic),
        Stability.BETA,
    )
    registry.register(
        PRECISE_PREFIX_CACHE_PRODUCER,
        PluginKind.PRODUCER,
        PrecisePrefixCacheParameters,
        lambda parameters, context: PrecisePrefixCacheProducer(parameters, context.clock.monotonic),
        Stability.BETA,
        stands_for=(APPROX_PREFIX_CACHE_PRODUCER,),
    )
    return registry


def _disaggregation(registry: PluginRegistry) -> None:
    beta = Stability.BETA
    registry.register(
        DISAGG_PROFILE_HANDLER,
        PluginKind.PROFILE_HANDLER,
        DisaggProfileHandlerParameters,
        lambda parameters, context: DisaggProfileHandler(parameters, context.deciders, context.encode_deciders),
        beta,
    )
    registry.register(
        ALWAYS_DISAGG_PD_DECIDER,
        PluginKind.DECIDER,
        NoParameters,
        lambda _parameters, _context: AlwaysDisaggPdDecider(),
        beta,
    )
    registry.register(
        ALWAYS_DISAGG_MULTIMODAL_DECIDER,
        PluginKind.ENCODE_DECIDER,
        NoParameters,
        lambda _parameters, _context: AlwaysDisaggMultimodalDecider(),
        beta,
    )
    registry.register(
        PREFIX_BASED_PD_DECIDER,
        PluginKind.DECIDER,
        PrefixBasedPdDeciderParameters,
        lambda parameters, _context: PrefixBasedPdDecider(parameters),
        beta,
        requires=(APPROX_PREFIX_CACHE_PRODUCER,),
    )
    for name in (DISAGG_HEADERS_HANDLER, PREFILL_HEADER_HANDLER):
        registry.register(
            name,
            PluginKind.HEADERS_HANDLER,
            NoParameters,
            lambda _parameters, _context: NoEffect(),
            beta,
            replaced_by=DISAGG_PROFILE_HANDLER,
        )


def _filters(registry: PluginRegistry) -> None:
    kind, beta = PluginKind.FILTER, Stability.BETA
    registry.register(PREFILL_FILTER, kind, NoParameters, lambda _parameters, _context: prefill_filter(), beta)
    registry.register(ENCODE_FILTER, kind, NoParameters, lambda _parameters, _context: encode_filter(), beta)
    registry.register(DECODE_FILTER, kind, NoParameters, lambda _parameters, _context: decode_filter(), beta)
    for name, replaced_by in ((LABEL_SELECTOR_FILTER, None), (BY_LABEL_SELECTOR, LABEL_SELECTOR_FILTER)):
        registry.register(
            name,
            kind,
            LabelSelectorParameters,
            lambda parameters, _context: LabelSelectorFilter(parameters),
            beta,
            replaced_by=replaced_by,
        )
    registry.register(
        BY_LABEL,
        kind,
        ByLabelParameters,
        lambda parameters, _context: by_label(parameters),
        beta,
        replaced_by=LABEL_SELECTOR_FILTER,
    )


def _scorers(registry: PluginRegistry) -> None:
    kind, beta = PluginKind.SCORER, Stability.BETA
    registry.register(QUEUE_SCORER, kind, NoParameters, lambda _parameters, _context: QueueScorer(), beta)
    registry.register(
        KV_CACHE_UTILIZATION_SCORER,
        kind,
        NoParameters,
        lambda _parameters, _context: KvCacheUtilizationScorer(),
        beta,
    )
    registry.register(
        POWER_HEADROOM_SCORER, kind, NoParameters, lambda _parameters, _context: PowerHeadroomScorer(), beta
    )
    registry.register(
        PREFIX_CACHE_SCORER,
        kind,
        PrefixCacheScorerParameters,
        lambda parameters, _context: PrefixCacheScorer(parameters),
        beta,
        requires=(APPROX_PREFIX_CACHE_PRODUCER,),
    )


def _embeddings(registry: PluginRegistry) -> None:
    beta = Stability.BETA
    registry.register(
        MM_EMBEDDINGS_CACHE_PRODUCER,
        PluginKind.EMBEDDINGS_PRODUCER,
        MmEmbeddingsCacheProducerParameters,
        lambda parameters, context: sized(parameters, context.embeddings),
        beta,
    )
    registry.register(
        MM_EMBEDDINGS_CACHE_SCORER,
        PluginKind.SCORER,
        NoParameters,
        lambda _parameters, context: MmEmbeddingsCacheScorer(context.embeddings),
        beta,
    )


def _pickers(registry: PluginRegistry) -> None:
    kind, beta = PluginKind.PICKER, Stability.BETA
    registry.register(
        MAX_SCORE_PICKER,
        kind,
        PickerParameters,
        lambda parameters, context: MaxScorePicker(parameters, context.random),
        beta,
    )
    registry.register(
        RANDOM_PICKER,
        kind,
        PickerParameters,
        lambda parameters, context: RandomPicker(parameters, context.random),
        beta,
    )
    registry.register(
        CARBON_PICKER,
        kind,
        CarbonPickerParameters,
        lambda parameters, context: CarbonPicker(
            parameters,
            context.carbon,
            context.random,
            context.models,
            links=parameters.links,
            gate=context.gate,
            encoder=parameters.encoder_model,
            embeddings=context.embeddings,
        ),
        beta,
        requires=(APPROX_PREFIX_CACHE_PRODUCER,),
    )


def _settings(registry: PluginRegistry) -> None:
    """Types that other parts of the picker act on: their parameters are all there is."""
    beta = Stability.BETA
    registry.register(
        FILE_DISCOVERY, PluginKind.DISCOVERY, FileDiscoveryParameters, lambda parameters, _context: parameters, beta
    )
    registry.register(
        METRICS_DATA_SOURCE,
        PluginKind.DATA_SOURCE,
        MetricsSourceParameters,
        lambda parameters, _context: parameters,
        beta,
    )
    registry.register(
        CORE_METRICS_EXTRACTOR,
        PluginKind.EXTRACTOR,
        MetricsExtractorParameters,
        lambda parameters, _context: parameters,
        beta,
    )
    registry.register(OPENAI_PARSER, PluginKind.PARSER, NoParameters, lambda parameters, _context: parameters, beta)
