"""From a RegionProfile to its provider."""

from pathlib import Path
from typing import Protocol

from heliotrope.api.struct import camel
from heliotrope.api.v1alpha1.regionprofile import RegionProfile, RegionProfileSpec, SignalType
from heliotrope.errors import InvalidInputError
from heliotrope.providers.file import FileProvider
from heliotrope.providers.interface import Provider
from heliotrope.providers.static import StaticProvider


class NetworkSources(Protocol):
    """What makes providers that ask over the network: `heliotrope.providers.online.Online`, which imports more."""

    def provider(self, spec: RegionProfileSpec) -> Provider | None:
        """The region's provider; None if its source is none of the network's."""
        ...


def build(
    profile: RegionProfile,
    *,
    folder: Path | None = None,
    started_unix_s: float,
    online: NetworkSources | None = None,
) -> Provider:
    """The provider of a region.

    Args:
        profile: names the source. A `configMap` is read by whoever can reach the API server, with
            `json_rows.read_series` and `Recorded`; here it is refused.
        folder: where relative paths of files start; None refuses relative paths.
        started_unix_s: when this process started: a replay without `wallStart` begins then.
        online: makes the providers of network sources; None refuses them.

    Raises:
        InvalidInputError: if the source cannot be used; the path names the field.
    """
    spec, source = profile.spec, profile.spec.source
    if source.static is not None:
        if (
            spec.signal.type is SignalType.MARGINAL
            and source.static.intensity_grams_per_kwh == 0.0
            and spec.curtailment_credit > 0.0
        ):
            raise InvalidInputError(
                "spec.curtailmentCredit", "a static marginal value of 0 has no other values to take a share of; set 0"
            )
        return StaticProvider(spec, source.static)
    if source.file is not None:
        path = Path(source.file.path)
        if not path.is_absolute():
            if folder is None:
                raise InvalidInputError(
                    "spec.source.file.path", f"{str(path)!r} is relative and there is no folder of resources"
                )
            path = folder / path
        return FileProvider(path, spec, source.file, started_unix_s)
    provider = None if online is None else online.provider(spec)
    if provider is not None:
        return provider
    name = next(camel(name) for name in type(source).model_fields if getattr(source, name) is not None)
    raise InvalidInputError(f"spec.source.{name}", "cannot be read here; use static or file")
