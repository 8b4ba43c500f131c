"""CSV text or JSON in a ConfigMap as a source of carbon intensity."""

import asyncio
import base64
import binascii
from dataclasses import replace

from heliotrope.api.v1alpha1.carbonsource import ConfigMap
from heliotrope.api.v1alpha1.regionprofile import RegionProfileSpec
from heliotrope.carbon.series import Series
from heliotrope.errors import InvalidInputError, SignalUnavailableError
from heliotrope.providers import Fetched
from heliotrope.providers.json_rows import read_series
from heliotrope.providers.recorded import Recorded
from heliotrope.providers.table import Columns
from heliotrope_operator.errors import ApiError, ForbiddenError, NotFoundError
from heliotrope_operator.kube import Document, Kube
from heliotrope_operator.resources import CONFIG_MAPS


class ConfigMapProvider:
    """Reads the ConfigMap at each poll and parses it when its version has changed."""

    def __init__(
        self, kube: Kube, namespace: str, spec: RegionProfileSpec, source: ConfigMap, started_unix_s: float
    ) -> None:
        self._kube = kube
        self._path = CONFIG_MAPS.path(namespace, source.name)
        self._name = f"ConfigMap {namespace}/{source.name}"
        self._spec = spec
        self._source = source
        self._started_unix_s = started_unix_s
        self._version: str | None = None
        self._recorded: Recorded | None = None

    async def fetch(self, now_unix_s: float) -> Fetched:
        """The value of the row that holds now; the rows after it are the forecast.

        Raises:
            SignalUnavailableError: if the ConfigMap cannot be read or has no row for now.
        """
        return (await self._current()).at(now_unix_s)

    async def history(self, start_unix_s: float, end_unix_s: float) -> Series:
        """The rows whose time is in [start, end).

        Raises:
            SignalUnavailableError: if the ConfigMap cannot be read or has no row there.
        """
        return (await self._current()).past(start_unix_s, end_unix_s)

    async def _current(self) -> Recorded:
        try:
            document = await self._kube.get(self._path)
        except NotFoundError:
            raise SignalUnavailableError(f"{self._name} does not exist") from None
        except ForbiddenError:
            raise SignalUnavailableError(
                f"{self._name}: the operator may not read it; allow its service account `get` on configmaps there"
            ) from None
        except ApiError as error:
            raise SignalUnavailableError(f"{self._name}: {error}") from error
        version = document["metadata"]["resourceVersion"]
        if self._recorded is None or version != self._version:
            try:
                self._recorded = await asyncio.to_thread(self._parsed, document)
            except InvalidInputError as error:
                raise SignalUnavailableError(f"{self._name}, key {self._source.key}: {error}") from error
            self._version = version
        return self._recorded

    def _parsed(self, document: Document) -> Recorded:
        key = self._source.key
        text, encoded = document.get("data", {}).get(key), document.get("binaryData", {}).get(key)
        if text is None and encoded is None:
            raise InvalidInputError("", "does not exist")
        try:
            data = base64.b64decode(encoded, validate=True) if text is None else text.encode()
        except binascii.Error as error:
            raise InvalidInputError("", f"is not base64: {error}") from error
        series = read_series(data, Columns.of(self._source), compressed=key.endswith(".gz"))
        recorded = Recorded.of(series, self._spec, self._source.replay, self._started_unix_s)
        source = "configMap" if self._source.replay is None else "configMap replay"
        return replace(recorded, source=source, forecast_source=recorded.forecast_source.replace("file", "configMap"))
