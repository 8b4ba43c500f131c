"""The real picker's bookkeeping of one endpoint, for evaluations that run engines in virtual time.

Processes never import each other; the command may import both, so it is here that they meet.
"""

from typing import Any

import numpy as np

from heliotrope.decide.candidates import Candidates, Hardware
from heliotrope.decide.rows import describe
from heliotrope.engine.model import EngineModel
from heliotrope_epp.datalayer.endpoint import Endpoint, EngineMetrics, Traits
from heliotrope_epp.datalayer.inflight import Dispatch
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.director.director import DirectorSettings
from heliotrope_epp.plugins.options import Options
from heliotrope_epp.plugins.pickers.columns import candidates_of
from heliotrope_sim.evaluation.view import Reading

_STALE_AFTER_S = DirectorSettings().metrics_stale_after_s
_NO_SCORE = np.zeros(1)


class EndpointView:
    """Implements `PickerView` with an `EndpointState`."""

    def __init__(self, believed: EngineModel | None, hardware: Hardware) -> None:
        endpoint = Endpoint("engine", "evaluation", "127.0.0.1", 8000)
        traits = Traits(engine=believed, hardware=hardware, hardware_row=describe(hardware, believed).row())
        self._state = EndpointState(endpoint, traits)

    def scraped(self, reading: Reading, now_s: float) -> None:
        """Keep what the scraper keeps of a page."""
        metrics = EngineMetrics(
            scraped_s=now_s,
            running=float(reading.running),
            waiting=float(reading.waiting),
            kv_usage=reading.kv_usage,
            block_size=reading.block_size,
            num_blocks=reading.num_blocks,
            energy_millijoules=float(reading.energy_millijoules),
            power_watts=reading.power_watts,
            sm_clock_mhz=reading.sm_clock_mhz,
            computed_prompt_tokens_total=float(reading.computed_prompt_tokens),
        )
        self._state.scraped(metrics)

    def candidates(self, cached_tokens: float, now_s: float) -> Candidates:
        """As the carbon picker makes them."""
        options = Options.at((self._state,), (cached_tokens,), now_s, _STALE_AFTER_S)
        return candidates_of(options, _NO_SCORE, {})

    def dispatched(
        self,
        now_s: float,
        *,
        prompt_tokens: float,
        uncached_tokens: float,
        prefill_seconds: float,
        first_token_due_s: float,
        expected_output_tokens: float,
    ) -> Dispatch:
        """As the director notes it."""
        dispatch = Dispatch(
            now_s, prompt_tokens, uncached_tokens, first_token_due_s, expected_output_tokens, streams=True
        )
        self._state.inflight.add(dispatch, prefill_seconds)
        return dispatch

    def piece(self, dispatch: Any, now_s: float) -> None:
        """As the director notes it."""
        self._state.inflight.piece(dispatch, now_s)

    def ended(self, dispatch: Any) -> None:
        """As the director notes it."""
        self._state.inflight.remove(dispatch)
