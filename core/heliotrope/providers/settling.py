"""Past intensity for settlement from sources of the network, as they know it by now."""

from heliotrope.api.struct import camel
from heliotrope.api.v1alpha1.regionprofile import RegionProfile
from heliotrope.carbon.settlement import RegionSignal, SignalKind
from heliotrope.carbon.signal import EmissionFactor, SignalType
from heliotrope.errors import InvalidInputError, SignalUnavailableError
from heliotrope.providers.build import NetworkSources
from heliotrope.providers.curtailment import with_curtailment_credit
from heliotrope.providers.interface import HistoryProvider
from heliotrope.units import SECONDS_PER_HOUR

LONGEST_PERIOD_S = SECONDS_PER_HOUR
"""Of a value: the one that holds at the start of a span began at most so long before it."""


def is_local(profile: RegionProfile) -> bool:
    """Whether a region's past needs no network, and `history.settlement_signal` has it or says why not."""
    source = profile.spec.source
    return any(each is not None for each in (source.file, source.static, source.config_map))


async def asked_signal(
    profile: RegionProfile,
    sources: NetworkSources,
    start_unix_s: float,
    end_unix_s: float,
    curtailment_credit: float | None = None,
) -> RegionSignal:
    """What a RegionProfile's source says of a span of the past.

    Args:
        profile: of the region.
        sources: makes its provider.
        start_unix_s: Unix seconds.
        end_unix_s: exclusive.
        curtailment_credit: takes the place of the profile's own; None leaves that.

    Raises:
        InvalidInputError: if the source knows no past, or does not give it; the message says why.
    """
    name, spec = f"RegionProfile {profile.metadata.name}", profile.spec
    alpha = spec.curtailment_credit if curtailment_credit is None else curtailment_credit
    # The credit is a share of the whole span's median, so it is taken at the end.
    provider = sources.provider(spec.model_copy(update={"curtailment_credit": 0.0}))
    source = next(camel(each) for each in type(spec.source).model_fields if getattr(spec.source, each) is not None)
    if not isinstance(provider, HistoryProvider):
        raise InvalidInputError(name, f"{source} knows no past; give the region's series with --signal")
    kind = SignalKind(SignalType(spec.signal.type.value), EmissionFactor(spec.signal.emission_factor.value))
    try:
        series = await provider.history(start_unix_s - LONGEST_PERIOD_S, end_unix_s)
        if kind.signal_type is SignalType.MARGINAL:
            series = with_curtailment_credit(series, alpha)
    except (SignalUnavailableError, InvalidInputError) as error:
        raise InvalidInputError(name, str(error)) from error
    credit = f" (α = {alpha:g})" if kind.signal_type is SignalType.MARGINAL else ""
    return RegionSignal(series, kind, f"{source} history{credit}")
