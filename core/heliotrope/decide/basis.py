"""Which kind of model estimates the plans of a decision: one kind for all of them.

Models learn from requests that one endpoint served. Of a prefill/decode pair they know nothing: an endpoint that only
prefills for others, or only decodes what others prefilled, gives them no sample, so neither their answer nor its error
was ever checked there. A pair's estimate is the analytic one.

Where an engine is slower or draws more than its profile says, models know and the profile does not. Beside learned
estimates of single endpoints an analytic one of a pair would then look better by what the profile forgets, although it
is the same engine: the decision would be about who estimated what. So a decision that holds a pair takes the analytic
estimate of every plan, as it leaves carbon out where signals mean different things. What the profiles forget, they
forget for all. An endpoint without a step model, which models alone know, is then of unknown latency.
"""

from typing import TYPE_CHECKING

from heliotrope.decide.candidates import Candidates

if TYPE_CHECKING:
    from heliotrope.predict.models import LearnedModels

PAIRS = "pairs of endpoints are estimated by engine models alone, and one decision compares by one kind of model"


def models_for(models: "LearnedModels | None", candidates: Candidates) -> tuple["LearnedModels | None", str | None]:
    """The models that may answer in a decision about these plans, and why others may not; None: none are left out."""
    if models is None or not models.targets or candidates.pairs is None:
        return models, None
    return None, PAIRS
