"""What Prometheus knows of the pickers' counters, their past as bins and rates of now, and of engines themselves.

Pickers' series are found by the labels that a scraped Service gives them: `namespace`, and the Service's name as
`service` or `job`; engines' by `namespace` and `pod`. What Prometheus does not know, or knows in part, is unknown and
never zero: targets that were down, NaN, answers with warnings.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heliotrope.api.v1alpha1.common import SecretKeyRef
from heliotrope.errors import BadAnswerError, NoDataError
from heliotrope.providers.prometheus_api import Access, Matrix, PrometheusApi
from heliotrope.providers.secrets import bearer, pem_of, secret_of
from heliotrope.scale.demand import Bin, History
from heliotrope_operator.planning.observed import ModelRates
from heliotrope_operator.planning.scraped import NAMES, Scraped, scraped
from heliotrope_operator.planning.scraped import WINDOW_S as ENGINE_WINDOW_S
from heliotrope_operator.secrets import OwnSecrets, key_of

Floats = NDArray[np.float64]

TOTALS = (
    "heliotrope_demand_requests_total",
    "heliotrope_demand_prompt_tokens_total",
    "heliotrope_demand_output_tokens_total",
)
HELD = "heliotrope_held_requests"
WINDOW_S = 300
"""Over which rates of now are taken; at least four scrapes have to fit into it."""
PODS_AT_ONCE = 50
"""In one question: their names make up its address."""
TOKEN_KEY, AUTHORITY_KEY = "token", "ca.crt"
"""Of the Secret with the bearer token and the authorities to trust; either may be missing."""


@dataclass(frozen=True, slots=True)
class Told:
    """What Prometheus has of the pickers of a pool now."""

    models: Mapping[str, ModelRates]
    held: Mapping[str, float]


class DemandQueries:
    """Asks one server about pools' pickers."""

    def __init__(self, api: PrometheusApi) -> None:
        """See the arguments' own classes."""
        self._api = api

    async def past(
        self, namespace: str, service: str, models: Collection[str], now_unix_s: float
    ) -> dict[str, dict[int, Bin]]:
        """Bins of each model that Prometheus knows anything of, as far back as a history goes, up to now.

        Args:
            namespace: the pool's.
            service: name of the Service of its pickers.
            models: of interest.
            now_unix_s: the time.

        Raises:
            SignalUnavailableError: by its subclasses, also for an answer in part.
        """
        width = History().bin_seconds
        end = int(now_unix_s // width)
        first = max(end - History().longest, 0)
        up = _whole_time(namespace, service, width)
        totals: list[Matrix] = []
        for total in TOTALS:
            grown = f"sum by (model) ({_over('increase', total, namespace, service, width)})"
            promql = f"({grown}) and on () (min({up}) == 1)"
            matrix = await self._api.query_range(promql, (first + 1) * width, end * width, width)
            _refuse_parts(matrix.warnings)
            totals.append(matrix)
        found = {}
        for model in models:
            requests, prompt, output = (_of_model(matrix, model) for matrix in totals)
            if requests is not None and (bins := _bins(first, width, requests, prompt, output)):
                found[model] = bins
        return found

    async def now(self, namespace: str, service: str) -> Told:
        """Rates of this moment.

        Raises:
            NoDataError: if Prometheus does not scrape all of the pickers.
            SignalUnavailableError: by its other subclasses, also for an answer in part.
        """
        up = await self._api.query(f"min({_whole_time(namespace, service, WINDOW_S)})")
        _refuse_parts(up.warnings)
        if [sample.value for sample in up.samples] != [1.0]:
            raise NoDataError(
                f"for the last {WINDOW_S // 60} minutes not every picker of Service {namespace}/{service} was scraped; "
                "see Prometheus' targets"
            )
        requests, prompt, output = [
            await self._by_model(f"sum by (model) ({_over('rate', total, namespace, service, WINDOW_S)})")
            for total in TOTALS
        ]
        held = await self._by_model(f"sum by (model) ({_of_service(HELD, namespace, service)})")
        models = {
            model: ModelRates(rate, prompt.get(model, 0.0), output.get(model, 0.0), held.get(model, 0.0))
            for model, rate in requests.items()
        }
        return Told(models, held)

    async def engines(self, namespace: str, pods: Collection[str]) -> dict[str, Scraped]:
        """Engines by pod, as they were scraped lately; those that were not are left out.

        Raises:
            SignalUnavailableError: by its subclasses, also for an answer in part.
        """
        if not pods:
            return {}
        clock = await self._api.query("time()")
        now_unix_s = next((sample.value for sample in clock.samples), None)
        if now_unix_s is None:
            raise BadAnswerError("it does not tell the time")
        names, ordered = "|".join(NAMES), sorted(pods)
        found: dict[str, Scraped] = {}
        for first in range(0, len(ordered), PODS_AT_ONCE):
            chosen = ordered[first : first + PODS_AT_ONCE]
            labels = f'namespace="{namespace}",pod=~"{"|".join(chosen).replace(".", "[.]")}"'
            raw = await self._api.samples(f'{{__name__=~"{names}",{labels}}}[{ENGINE_WINDOW_S}s]', now_unix_s)
            _refuse_parts(raw.warnings)
            found |= scraped((each for each in raw.series if each.labels.get("pod") in chosen), now_unix_s)
        return found

    async def _by_model(self, promql: str) -> dict[str, float]:
        vector = await self._api.query(promql)
        _refuse_parts(vector.warnings)
        values = {}
        for sample in vector.samples:
            if sample.value is None or sample.value < 0.0:
                raise BadAnswerError("a rate of its is no number; is a picker's counter broken?")
            model = sample.labels.get("model", "")
            if model in values:
                raise BadAnswerError(f"it has two rates of {model or 'one model'}; is it several servers in one?")
            values[model] = sample.value
        return values


def access_to(secrets: OwnSecrets, namespace: str, name: str) -> Callable[[], Awaitable[Access]]:
    """Reads a Secret of the operator's own namespace before each question, so that a rotated token counts at once.

    What it gives raises CredentialsMissingError if there is no such Secret, or if it has neither of its keys.
    """

    async def read() -> Access:
        document = await secrets.document(SecretKeyRef(name=name, key=TOKEN_KEY))
        where = f"Secret {namespace}/{name}, key"
        keys = document.get("data") or {}
        authority = None
        if AUTHORITY_KEY in keys:
            authority = pem_of(key_of(document, f"{where} {AUTHORITY_KEY}", AUTHORITY_KEY), f"{where} {AUTHORITY_KEY}")
            if TOKEN_KEY not in keys:
                return Access(ca_pem=authority)
        token = secret_of(key_of(document, f"{where} {TOKEN_KEY}", TOKEN_KEY), f"{where} {TOKEN_KEY}")
        return Access(bearer(token), authority)

    return read


def _of_service(metric: str, namespace: str, service: str, *, function: str = "", window: str = "") -> str:
    """A metric of a Service's pods: a ServiceMonitor names the Service as `service`, other set-ups as `job`."""
    chosen = (f'{metric}{{namespace="{namespace}",{label}="{service}"}}{window}' for label in ("service", "job"))
    return " or ".join(f"{function}({each})" if function else each for each in chosen)


def _over(function: str, metric: str, namespace: str, service: str, window_s: float) -> str:
    return _of_service(metric, namespace, service, function=function, window=f"[{window_s:.0f}s]")


def _whole_time(namespace: str, service: str, window_s: float) -> str:
    """1 for each picker that was scraped whenever it was tried, else 0."""
    return _over("min_over_time", "up", namespace, service, window_s)


def _refuse_parts(warnings: tuple[str, ...]) -> None:
    if warnings:
        raise BadAnswerError(f"its answer may be partial: {warnings[0]}")


def _of_model(matrix: Matrix, model: str) -> Floats | None:
    return next((each.values for each in matrix.series if each.labels.get("model") == model), None)


def _bins(first: int, width: float, requests: Floats, prompt: Floats | None, output: Floats | None) -> dict[int, Bin]:
    """Bins that are known. One beside a gap may have been seen in part only, so it counts as unknown, too."""
    none = np.zeros(len(requests))
    columns = np.stack([requests, none if prompt is None else prompt, none if output is None else output])
    known: NDArray[np.bool_] = np.isfinite(columns.sum(axis=0)) & (columns.min(axis=0) >= 0.0)
    before = np.concatenate([[False], known[:-1]])
    after = np.concatenate([known[1:], [True]])
    return {
        first + place: Bin(width, *(float(value) for value in columns[:, place]))
        for place in np.flatnonzero(known & before & after).tolist()
    }
