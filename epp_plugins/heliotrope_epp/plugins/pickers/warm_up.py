"""Compiles what decisions need before the first request waits for it (`heliotrope.compiled`)."""

from dataclasses import replace

import numpy as np

from heliotrope.cache.links import Links, Place
from heliotrope.cache.plans import CacheView, kv_pool, plans_of
from heliotrope.cache.rules import KvRules
from heliotrope.decide import comparing, consolidated
from heliotrope.decide.candidates import Candidates, FloatMatrix
from heliotrope.decide.columns import COLUMNS
from heliotrope.decide.estimate import estimate
from heliotrope.decide.feasible import feasibility
from heliotrope.decide.phases import pair_pool, with_pairs
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.request import RequestProfile
from heliotrope.engine.model import EngineModel
from heliotrope_epp.datalayer.endpoint import Endpoint, Traits
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.options import Options
from heliotrope_epp.plugins.pickers.columns import candidates_of


def warm_up(engine: EngineModel) -> None:
    """Estimate a request at endpoints that do not exist, a pull and a pair; takes seconds without kept machine code."""
    state = EndpointState(Endpoint("warm-up", "", "", 0), Traits(engine=engine))
    options = Options.at((state,), [0.0], now_s=0.0, stale_after_s=1.0)
    request = RequestProfile("warm-up", engine.model, prompt_tokens=1, expected_output_tokens=1.0, streaming=False)
    alone, policy = candidates_of(options, np.zeros(1), {}), DecisionPolicy(name="warm-up")
    alone = replace(alone, cached_deviation_tokens=np.zeros(1))
    features = estimate(request, alone, policy, now_unix_s=0.0).features
    _overwrite(features)
    _compare()
    zeros, cached = np.zeros(2), np.array([1_024.0, 0.0])
    pool = kv_pool((engine, engine), (Place(node="warm-up"), Place(node="warm-up")), (True, True), Links())
    plans_of(CacheView(cached, cached, zeros, zeros, zeros, zeros, zeros + 1.0), pool, 2_048.0, KvRules())
    _estimate_pair(alone, engine, replace(request, prompt_tokens=1_024), policy)


def _overwrite(features: FloatMatrix) -> None:
    """Take what a model of all targets says in place of the analytic estimates."""
    one, table = np.ones(1), np.ones((COLUMNS, 1))
    consolidated.write_consolidated(features, one, one, table, np.empty((2, features.shape[1])))
    means, errors = np.ones((4, 3, 2))[:2]
    known = np.zeros((3, 1), dtype=np.bool_)
    consolidated.write_learned(np.ones(3, dtype=np.bool_), means, errors, 1, one, one, table, known)


def _estimate_pair(alone: Candidates, engine: EngineModel, request: RequestProfile, policy: DecisionPolicy) -> None:
    """The endpoint has a queue, another one has none."""
    none = np.zeros(1)
    idle = replace(
        alone,
        running=none,
        waiting=none,
        waiting_tokens=none,
        oldest_waiting_seconds=none,
        kv_tokens=none,
        prefill_duty=none,
    )
    queued = replace(idle, waiting=np.ones(1), waiting_tokens=np.full(1, 8_192.0))
    here, there = (alone.endpoints[0], engine, Place(node="warm-up")), ("prefiller", engine, Place(node="warm-up"))
    prefillers = replace(idle, endpoints=("prefiller",))
    pool = pair_pool((here,), (there,), Links())
    both = with_pairs(queued, prefillers, pool, request, policy, 0.0)
    feasibility(request, both, estimate(request, both, policy, now_unix_s=0.0), policy)


def _compare() -> None:
    """Two plans by one term."""
    values, left, codes = np.array([1.0, 2.0]), np.arange(2), np.zeros(2, dtype=np.int8)
    comparing.take_known(values, left, np.empty(2))
    comparing.keep_near(values, 0.0, False, 1, left, codes)
    comparing.is_least(values, 0)
    comparing.first_rows(left, np.ones(2, dtype=np.bool_), np.empty(3, dtype=np.intp))
