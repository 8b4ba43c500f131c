"""RegionProfile: publishes the newest carbon intensity and whether it may be used."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from math import inf

from heliotrope.api.scalars import format_duration, format_time
from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.api.v1alpha1.common import ConditionStatus
from heliotrope.api.v1alpha1.regionprofile import Forecast, Freshness, IntensityReading, RegionProfileStatus
from heliotrope.carbon.signal import CarbonSignal, EmissionFactor, Reading, SignalType
from heliotrope.providers import timing
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.conditions import ConditionType, Finding, settle, transitions
from heliotrope_operator.controllers.unreadable import report
from heliotrope_operator.forecasts import Forecasts
from heliotrope_operator.polling import Outcome
from heliotrope_operator.resources import Key
from heliotrope_operator.signals import Observation, Signals
from heliotrope_operator.writer import Writer

REFRESHES_BEFORE_STALE = 3.0
"""Values are written at least this often within `staleAfter`, or pickers would see them go stale meanwhile."""
OWN_CONDITIONS = frozenset({ConditionType.ACCEPTED, ConditionType.CREDENTIALS_ACCEPTED, ConditionType.SIGNAL_FRESH})
"""Other conditions of a region are other parts'."""


class RegionController:
    """Asks the source when it is due and writes what changed."""

    def __init__(
        self,
        cluster: Cluster,
        signals: Signals,
        forecasts: Forecasts,
        writer: Writer,
        *,
        unix_clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._signals = signals
        self._forecasts = forecasts
        self._writer = writer
        self._unix_clock = unix_clock

    async def reconcile(self, key: Key) -> float | None:
        """Bring the status up to date. Returns the seconds after which to look again; None if only when told.

        Raises:
            HeliotropeError: if the status could not be written.
        """
        profile = self._cluster.regions.get(key)
        if profile is None:
            self._signals.forget(key.name)
            self._forecasts.forget(key.name)
            unreadable = self._cluster.unreadable.get(key)
            if unreadable is not None:
                now = datetime.fromtimestamp(int(self._unix_clock()), UTC)
                return await report(self._writer, key, unreadable, ConditionType.ACCEPTED, now)
            self._writer.forget(key)
            return None
        observation = await self._signals.observe(profile)
        profile = self._cluster.regions.get(key) or profile  # asking may have taken a while
        known = profile.status is not None and profile.status.observed_generation == profile.metadata.generation
        if observation.pending and not known:
            return observation.next_poll_s  # its first answer is on its way: that there is none yet is no news
        now_unix_s = self._unix_clock()
        if observation.published is not None:
            completed = self._forecasts.complete(profile, observation.published)
            observation = replace(observation, published=completed)
        status = region_status(profile, observation, now_unix_s)
        stale_after_s = _stale_after_s(profile)
        held_back_s = await self._writer.status(
            key,
            profile.metadata,
            profile.status,
            status,
            transitions(() if profile.status is None else profile.status.conditions, status.conditions),
            refresh_s=stale_after_s / REFRESHES_BEFORE_STALE,
        )
        waits = [each for each in (observation.next_poll_s, held_back_s) if each is not None]
        if status.freshness is Freshness.FRESH and status.intensity is not None and stale_after_s < inf:
            waits.append(max(status.intensity.time.timestamp() + stale_after_s - now_unix_s, 0.0) + 0.01)
        return min(waits, default=None)


def region_status(profile: RegionProfile, observation: Observation, now_unix_s: float) -> RegionProfileStatus:
    """The status of a region.

    Without an answer since this process started, the value in the status counts on, if the spec is still the same.
    """
    previous = profile.status
    generation = profile.metadata.generation
    usable = observation.invalid is None
    intensity, forecast, error = None, None, None
    if usable and observation.published is not None:
        intensity = _unchanged_static(previous, observation.published.intensity)
        forecast = _unchanged_forecast(previous, observation.published.forecast)
        error = observation.published.forecast_error
    elif usable and previous is not None and previous.observed_generation == generation:
        intensity, forecast, error = previous.intensity, previous.forecast, previous.forecast_error
    freshness = _freshness(profile, intensity, now_unix_s)
    findings = [_accepted(observation), _signal_fresh(profile, observation, intensity, freshness)]
    if observation.needs_credentials:
        findings.insert(1, _credentials_accepted(observation))
    return RegionProfileStatus(
        observed_generation=generation,
        conditions=settle(
            () if previous is None else previous.conditions,
            findings,
            generation,
            datetime.fromtimestamp(int(now_unix_s), UTC),
            own=OWN_CONDITIONS,
        ),
        freshness=freshness,
        intensity=intensity,
        forecast=forecast,
        forecast_error=error,
    )


def _stale_after_s(profile: RegionProfile) -> float:
    return inf if profile.spec.source.static is not None else timing(profile.spec).stale_after_s


def _freshness(profile: RegionProfile, intensity: IntensityReading | None, now_unix_s: float) -> Freshness:
    reading = None
    if intensity is not None:
        reading = Reading(
            intensity_g_per_kwh=intensity.value,
            measured_unix_s=intensity.time.timestamp(),
            source=intensity.source,
            signal_type=SignalType(intensity.signal_type.value),
            emission_factor=EmissionFactor(intensity.emission_factor.value),
            estimated=intensity.estimated,
        )
    return Freshness(CarbonSignal(reading, _stale_after_s(profile)).freshness(now_unix_s).value)


def _accepted(observation: Observation) -> Finding:
    if observation.invalid is not None:
        return Finding(ConditionType.ACCEPTED, ConditionStatus.FALSE, "InvalidSource", observation.invalid)
    return Finding(ConditionType.ACCEPTED, ConditionStatus.TRUE, "Accepted", "the source is asked")


def _credentials_accepted(observation: Observation) -> Finding:
    kind = ConditionType.CREDENTIALS_ACCEPTED
    failure = observation.failure or ""
    match observation.credentials:
        case Outcome.SUCCESS:
            return Finding(kind, ConditionStatus.TRUE, "CredentialsAccepted", "the source takes the key of the Secret")
        case Outcome.CREDENTIALS_MISSING:
            return Finding(kind, ConditionStatus.FALSE, "CredentialsMissing", failure)
        case Outcome.CREDENTIALS_REFUSED:
            message = f"{failure}; put a valid key into the Secret, it is read again within a minute"
            return Finding(kind, ConditionStatus.FALSE, "CredentialsRefused", message)
    return Finding(kind, ConditionStatus.UNKNOWN, "CredentialsUntested", f"the source gave no answer yet: {failure}")


def _signal_fresh(
    profile: RegionProfile, observation: Observation, intensity: IntensityReading | None, freshness: Freshness
) -> Finding:
    kind = ConditionType.SIGNAL_FRESH
    failure = f": {observation.failure}" if observation.failure else ""
    if intensity is None:
        message = f"there is no value, so carbon does not count here{failure}"
        return Finding(kind, ConditionStatus.FALSE, "SignalAbsent", message)
    if profile.spec.source.static is not None:
        return Finding(kind, ConditionStatus.TRUE, "SignalFresh", "a static value is always fresh")
    of = format_time(intensity.time)
    limit = timing(profile.spec).stale_after_s
    if freshness is Freshness.STALE:
        age = format_duration(profile.spec.stale_after)
        message = f"the newest value is of {of}, older than {age}, so carbon does not count here{failure}"
        return Finding(kind, ConditionStatus.FALSE, "SignalStale", message)
    until = format_time(datetime.fromtimestamp(int(intensity.time.timestamp() + limit), UTC))
    if observation.failure is not None:
        message = f"the value of {of} counts until {until}, but the source gives no newer one{failure}"
        return Finding(kind, ConditionStatus.TRUE, "SourceFailing", message)
    published = observation.published
    lacking = "" if published is None or published.forecast_failure is None else published.forecast_failure
    message = f"the value of {of} counts until {until}" + (f"; no new forecast: {lacking}" if lacking else "")
    return Finding(kind, ConditionStatus.TRUE, "SignalFresh", message)


def _unchanged_static(previous: RegionProfileStatus | None, intensity: IntensityReading) -> IntensityReading:
    """A static value holds since it was set, not since it was read last."""
    before = None if previous is None else previous.intensity
    if before is None or intensity.source != "static":
        return intensity
    return before if before == intensity.model_copy(update={"time": before.time}) else intensity


def _unchanged_forecast(previous: RegionProfileStatus | None, forecast: Forecast | None) -> Forecast | None:
    """A forecast of the same points was made when it was first seen."""
    before = None if previous is None else previous.forecast
    if before is None or forecast is None:
        return forecast
    return before if before == forecast.model_copy(update={"issued_at": before.issued_at}) else forecast
