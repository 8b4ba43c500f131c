"""Compiles what decisions need before the first request waits for it (`heliotrope.compiled`)."""

import numpy as np

from heliotrope.cache.links import Links, Place
from heliotrope.cache.plans import CacheView, kv_pool, plans_of
from heliotrope.cache.rules import KvRules
from heliotrope.decide.estimate import estimate
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.request import RequestProfile
from heliotrope.engine.model import EngineModel
from heliotrope_epp.datalayer.endpoint import Endpoint, Traits
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.options import Options
from heliotrope_epp.plugins.pickers.carbon import candidates_of


def warm_up(engine: EngineModel) -> None:
    """Estimate a request at an endpoint that does not exist, and a pull; takes seconds without kept machine code."""
    state = EndpointState(Endpoint("warm-up", "", "", 0), Traits(engine=engine))
    options = Options.at((state,), [0.0], now_s=0.0, stale_after_s=1.0)
    request = RequestProfile("warm-up", engine.model, prompt_tokens=1, expected_output_tokens=1.0, streaming=False)
    estimate(request, candidates_of(options, np.zeros(1), {}), DecisionPolicy(name="warm-up"), now_unix_s=0.0)
    zeros, cached = np.zeros(2), np.array([1_024.0, 0.0])
    pool = kv_pool((engine, engine), (Place(node="warm-up"), Place(node="warm-up")), (True, True), Links())
    plans_of(CacheView(cached, cached, zeros, zeros, zeros, zeros, zeros + 1.0), pool, 2_048.0, KvRules())
