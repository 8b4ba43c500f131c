"""Every attribute of every span, once: the spans are built from this table, and docs/traces.md is checked against it.

Names under `llm_d` are those of llm-d's picker, `gen_ai`, `http`, `url`, `server` and `error` those of OpenTelemetry's
semantic conventions. What is unknown is left out. No attribute holds text of a prompt or an answer, a key or a tenant.
"""

from dataclasses import dataclass

from heliotrope_epp.tracing import region_attributes as region
from heliotrope_epp.tracing.attribute import Attribute as Attribute
from heliotrope_epp.tracing.attribute import Value as Value

MODEL = Attribute("gen_ai.request.model", "string", "", "The model that the client asked for.", "llama-3.1-8b")
REQUEST_ID = Attribute("gen_ai.request.id", "string", "", "The `x-request-id`, as llm-d names it.", "9f1c2e6a-…")
OPERATION = Attribute("gen_ai.operation.name", "string", "", "What was asked for, by the path.", "chat")
PROVIDER = Attribute(
    "gen_ai.provider.name", "string", "", "The engine: label `llm-d.ai/engine-type`, else vLLM.", "vllm"
)
STREAM = Attribute("gen_ai.request.stream", "boolean", "", "Whether the answer is streamed.", "true")
MAX_TOKENS = Attribute("gen_ai.request.max_tokens", "int", "tokens", "The client's limit on the answer.", "256")
INPUT_TOKENS = Attribute("gen_ai.usage.input_tokens", "int", "tokens", "Prompt, as the engine counted.", "812")
OUTPUT_TOKENS = Attribute("gen_ai.usage.output_tokens", "int", "tokens", "Answer, as the engine counted.", "143")
CACHED_INPUT_TOKENS = Attribute(
    "gen_ai.usage.cache_read.input_tokens", "int", "tokens", "Prompt tokens that the engine had cached.", "768"
)
TIME_TO_FIRST_CHUNK = Attribute(
    "gen_ai.response.time_to_first_chunk",
    "double",
    "s",
    "From the request's arrival to the answer's first piece.",
    "0.21",
)

METHOD = Attribute("http.request.method", "string", "", "`_OTHER` for unusual ones.", "POST")
STATUS = Attribute("http.response.status_code", "int", "", "Of the answer that the client got.", "200")
URL_PATH = Attribute("url.path", "string", "", "Without the query.", "/v1/chat/completions")
URL_SCHEME = Attribute("url.scheme", "string", "", "As the gateway saw it.", "https")
SERVER_ADDRESS = Attribute("server.address", "string", "", "The host that the client called.", "models.example.com")
SERVER_PORT = Attribute("server.port", "int", "", "Where the host names one.", "8080")
ERROR_TYPE = Attribute(
    "error.type", "string", "", "The status of a failed answer, or why there is none (`disconnected`, …).", "503"
)

TARGET_MODEL = Attribute("target_model", "string", "", "The model that the engine is asked for.", "llama-3.1-8b")
MODEL_GROUP = Attribute(
    "heliotrope.model.group", "string", "", "The policy's group of models that might have answered.", "llama-3.1-70b"
)
MODEL_DOWNGRADED = Attribute(
    "heliotrope.model.downgraded", "boolean", "", "Whether another model than the group's default answers.", "true"
)
MODEL_REASON = Attribute("heliotrope.model.reason", "string", "", "Why that one.", "quality 0.82 of at least 0.77")
MODEL_QUALITY = Attribute("heliotrope.model.quality", "double", "", "Its predicted quality, from 0 to 1.", "0.82")
MODEL_LEAST_QUALITY = Attribute(
    "heliotrope.model.least_quality", "double", "", "The floor: β times the best available.", "0.77"
)
MODEL_PREDICTOR = Attribute(
    "heliotrope.model.predictor", "string", "", "Who predicted: `table`, `learned` or `http`.", "table"
)
MODEL_TASK = Attribute("heliotrope.model.task", "string", "", "The class of the task.", "chat")
REASONING_EFFORT = Attribute(
    "heliotrope.model.reasoning_effort", "string", "", "The effort that was set in place of the request's.", "low"
)
ROUTER_JOULES = Attribute(
    "heliotrope.model.router_joules", "double", "J", "What the picker spent on predicting.", "0.0004"
)
PROFILE = Attribute("llm_d.epp.scheduling.profile.name", "string", "", "The scheduling profile.", "default")
FILTER_CANDIDATES = Attribute("llm_d.epp.filter.candidate_endpoints", "int", "endpoints", "Before the filters.", "9")
FILTER_LEFT = Attribute("llm_d.epp.filter.filtered_endpoints", "int", "endpoints", "What they left.", "6")
SCORING_CANDIDATES = Attribute("llm_d.epp.scoring.candidate_endpoints", "int", "endpoints", "Scored endpoints.", "6")
SCORER_COUNT = Attribute("llm_d.epp.scorer.count", "int", "scorers", "Scorers of the profile.", "3")
SCORER_TYPE = Attribute("llm_d.epp.scorer.type", "string", "", "Its plugin type.", "queue-scorer")
SCORER_NAME = Attribute("llm_d.epp.scorer.name", "string", "", "Its name in the configuration.", "queue-scorer")
SCORER_WEIGHT = Attribute("llm_d.epp.scorer.weight", "double", "", "Its weight in the profile.", "2.0")
SCORER_CANDIDATES = Attribute("llm_d.epp.scorer.candidate_endpoints", "int", "endpoints", "What it was given.", "6")
SCORER_SCORED = Attribute("llm_d.epp.scorer.endpoints_scored", "int", "endpoints", "Endpoints of known score.", "6")
SCORE_MAX = Attribute("llm_d.epp.scorer.score.max", "double", "", "Largest score, before its weight.", "1.0")
SCORE_AVG = Attribute("llm_d.epp.scorer.score.avg", "double", "", "Mean score, before its weight.", "0.62")
PICKER_CANDIDATES = Attribute("llm_d.epp.picker.candidate_endpoints", "int", "endpoints", "What it chose from.", "6")
TOP_ENDPOINTS = Attribute(
    "llm_d.epp.picker.top_endpoints",
    "string[]",
    "",
    "At most five, by weighted score, best first.",
    "[default/pod-a, …]",
)
TOP_SCORES = Attribute("llm_d.epp.picker.top_scores", "double[]", "", "Their weighted scores.", "[6.1, 4.0]")

PICKER = Attribute("heliotrope.picker", "string", "", "The picker of the profile.", "carbon-picker")
POLICY = Attribute("heliotrope.policy", "string", "", "The CarbonPolicy that decided or advised.", "green")
POLICY_REVISION = Attribute("heliotrope.policy.revision", "string", "", "Its version.", "generation 3")
SERVICE_CLASS = Attribute("heliotrope.policy.class", "string", "", "The policy's class that it belongs to.", "batch")
DEMAND_EVENT = Attribute(
    "heliotrope.policy.event", "string", "", "The demand-response event whose objective held.", "evening"
)
REFUSED_OVERRIDES = Attribute(
    "heliotrope.policy.refused",
    "string[]",
    "",
    "What it asked for by header and did not get, with the reason.",
    "[regions: not allowed …]",
)
RELAXED = Attribute(
    "heliotrope.policy.relaxed", "string[]", "", "Limits that gave way to the promise.", "[power headroom]"
)
ENFORCED = Attribute("heliotrope.enforced", "boolean", "", "Whether the policy's answer was followed.", "true")
ARM = Attribute("heliotrope.arm", "string", "", "`policy`, `holdout` (kept blind to carbon) or `unsteered`.", "policy")
OUTCOME = Attribute("heliotrope.outcome", "string", "", "How the policy's decision ended.", "within-slo")
DECIDED_BY = Attribute("heliotrope.decided_by", "string", "", "The term that told the candidates apart.", "carbon")
REASON = Attribute("heliotrope.reason", "string", "", "Why nothing was chosen.", "no endpoint satisfies policy …")
DROPPED_TERMS = Attribute(
    "heliotrope.dropped_terms",
    "string[]",
    "",
    "Terms that could not be compared, with the reason.",
    "[carbon: signal of …]",
)
CANDIDATES = Attribute("heliotrope.candidates", "int", "endpoints", "That the decision compared.", "6")
ENDPOINT = Attribute("heliotrope.endpoint", "string", "", "Where the request was sent.", "default/pod-a")
SESSION_MOVEMENT = Attribute(
    "heliotrope.session.movement",
    "string",
    "",
    "What became of the session: `new`, `stayed`, `kept` or `moved`.",
    "kept",
)
SESSION_BECAUSE = Attribute("heliotrope.session.because", "string", "", "Why.", "the gate expects more from staying")
SESSION_TURNS = Attribute("heliotrope.session.turns", "int", "", "Turns of the session before this one.", "4")
SESSION_PREVIOUS = Attribute(
    "heliotrope.session.previous_endpoint", "string", "", "Where the last turn was.", "llm/engine-0"
)
SESSION_GATE_VALUE = Attribute(
    "heliotrope.session.gate_value",
    "double",
    "",
    "What the gate expects staying to save over two turns, as a share of both estimates.",
    "0.12",
)
SESSION_GATE_THRESHOLD = Attribute(
    "heliotrope.session.gate_threshold", "double", "", "What it had to be above for the session to be kept.", "0.05"
)
ADVISED_ENDPOINT = Attribute(
    "heliotrope.decision.endpoint",
    "string",
    "",
    "Where the policy sends it; under `Advise`, and for what is held out, another one may get it.",
    "default/pod-b",
)
ADVISED_PREFILL = Attribute(
    "heliotrope.decision.prefill",
    "string",
    "",
    "Where the policy would have prefilled; absent, as the next four: it was followed.",
    "default/pod-c",
)
ADVISED_ENCODE = Attribute(
    "heliotrope.decision.encode",
    "string[]",
    "",
    "Where it would have encoded images, if not with the prefill.",
    "[default/pod-e]",
)
ADVISED_KV_ACTION = Attribute(
    "heliotrope.decision.kv.action", "string", "", "What its KV action would have been.", "PeerTransfer"
)
ADVISED_KV_SOURCE = Attribute(
    "heliotrope.decision.kv.source", "string", "", "Where it would have pulled blocks from.", "default/pod-b"
)
ADVISED_SAME = Attribute(
    "heliotrope.decision.same_plan", "boolean", "", "Whether what was done is the policy's whole plan.", "false"
)
MODELLED_JOULES = Attribute(
    "heliotrope.modelled_saving.energy_joules",
    "double",
    "J",
    "By how much the policy's whole plan was estimated to draw less than what was done.",
    "12.5",
)
MODELLED_GRAMS = Attribute("heliotrope.modelled_saving.gco2e_grams", "double", "gCO2e", "So of emissions.", "0.0011")
REGION = Attribute("heliotrope.region", "string", "", "RegionProfile of the endpoint.", "spain")
VARIANT = Attribute("heliotrope.variant", "string", "", "WorkloadVariant of the endpoint.", "default/llama-8b-h100")
PREFILL_ENDPOINT = Attribute("heliotrope.phase.prefill", "string", "", "Endpoint of the prefill.", "default/pod-a")
DECODE_ENDPOINT = Attribute("heliotrope.phase.decode", "string", "", "Endpoint of the decode.", "default/pod-a")
ENCODE_ENDPOINTS = Attribute(
    "heliotrope.phase.encode",
    "string[]",
    "",
    "Endpoints of the encoding of images; absent: the request has none, or they are encoded with the prefill.",
    "['default/pod-e']",
)
MEDIA_COUNT = Attribute(
    "heliotrope.media.count", "int", "", "Images, sound and film of the prompt, each once; absent for text.", "2"
)
MEDIA_UNKNOWN = Attribute(
    "heliotrope.media.unknown", "int", "", "Of them, those that no estimate has any time or joules of.", "0"
)
PROMPT_TOKENS = Attribute(
    "heliotrope.prompt_tokens", "int", "tokens", "The prompt's length, as counted before any engine saw it.", "805"
)
CACHED_TOKENS = Attribute(
    "heliotrope.cached_tokens", "double", "tokens", "Believed to be cached at the endpoint.", "768.0"
)
KV_ACTION = Attribute(
    "heliotrope.kv.action",
    "string",
    "",
    "`LocalHit`, `RouteToOwner`, `PeerTransfer`, `OffloadReload` or `Recompute`.",
    "PeerTransfer",
)
KV_SOURCE = Attribute(
    "heliotrope.kv.source", "string", "", "The endpoint that blocks are pulled from.", "default/pod-b"
)
KV_TRANSFER_SECONDS = Attribute(
    "heliotrope.kv.transfer_seconds", "double", "s", "Expected, of pulling or reloading blocks.", "0.13"
)
KV_TRANSFER_JOULES = Attribute(
    "heliotrope.kv.transfer_joules", "double", "J", "Expected, of the network and both ends.", "9.0"
)
HELD_SECONDS = Attribute(
    "heliotrope.held_seconds", "double", "s", "How long it waited for an engine to start or wake; absent: not at all.",
    "41.7",
)  # fmt: skip
EXPECTED_OUTPUT_TOKENS = Attribute(
    "heliotrope.expected_output_tokens", "double", "tokens", "Expected length of the answer.", "131.5"
)
EXPECTED_JOULES = Attribute(
    "heliotrope.estimate.energy_joules",
    "double",
    "J",
    "IT energy at the batch that carbon and cost are shared at.",
    "58.1",
)
ATTRIBUTED_JOULES = Attribute(
    "heliotrope.estimate.attributed_joules",
    "double",
    "J",
    "The share expected to be measured; compare with it.",
    "61.4",
)
INCREMENTAL_JOULES = Attribute(
    "heliotrope.estimate.incremental_joules", "double", "J", "What the fleet draws more because of the request.", "40.9"
)
ENERGY_ERROR = Attribute(
    "heliotrope.estimate.energy_relative_error", "double", "", "One standard deviation over the estimate.", "0.06"
)
GRAMS = Attribute(
    "heliotrope.estimate.gco2e_grams",
    "double",
    "gCO2e",
    "Within the policy's boundary; absent without a fresh signal.",
    "0.0023",
)
WATER = Attribute("heliotrope.estimate.water_liters", "double", "L", "WUE × IT energy.", "0.00003")
COST = Attribute(
    "heliotrope.estimate.cost", "double", "the price's currency", "Share of the variant's price.", "0.0004"
)
EXPECTED_TTFT = Attribute("heliotrope.estimate.ttft_seconds", "double", "s", "Expected TTFT.", "0.19")
EXPECTED_TPOT = Attribute("heliotrope.estimate.tpot_seconds", "double", "s", "Expected TPOT.", "0.011")
EXPECTED_SERVICE = Attribute(
    "heliotrope.estimate.service_seconds", "double", "s", "Expected time from dispatch to the last token.", "1.7"
)
AVOIDED_JOULES = Attribute(
    "heliotrope.avoided_recompute_joules", "double", "J", "Prefill energy that the cached tokens save there.", "31.0"
)
AVOIDED_SECONDS = Attribute(
    "heliotrope.avoided_recompute_seconds", "double", "s", "Prefill time that the cached tokens save there.", "0.09"
)
PUE = Attribute("heliotrope.pue", "double", "", "Of the region.", "1.2")
INTENSITY = Attribute(
    "heliotrope.carbon.intensity_g_per_kwh", "double", "gCO2e/kWh", "Expected over the service time.", "143.0"
)
SIGNAL_FRESHNESS = Attribute(
    "heliotrope.carbon.freshness", "string", "", "`Fresh`, `Stale` or `Absent`, of the region's signal.", "Fresh"
)
SIGNAL_TYPE = Attribute("heliotrope.carbon.signal_type", "string", "", "`average` or `marginal`.", "average")
SIGNAL_FACTOR = Attribute("heliotrope.carbon.emission_factor", "string", "", "`lifecycle` or `direct`.", "lifecycle")
SIGNAL_SOURCE = Attribute("heliotrope.carbon.source", "string", "", "Who gave the value.", "electricityMaps")
SIGNAL_AGE = Attribute(
    "heliotrope.carbon.age_seconds", "double", "s", "Since the time that the newest value describes.", "312.0"
)
SIGNAL_ESTIMATED = Attribute(
    "heliotrope.carbon.estimated", "boolean", "", "Whether the source calls the value estimated.", "false"
)

CAUSE = Attribute("heliotrope.cause", "string", "", "How it ended: `complete`, `disconnected`, …", "complete")
REJECTION = Attribute(
    "heliotrope.rejection", "string", "", "The picker's own refusal, as in the response header.", "rejected-saturated"
)
TTFT = Attribute("heliotrope.ttft_seconds", "double", "s", "From dispatch to the first piece; streamed answers.", "0.2")
TPOT = Attribute(
    "heliotrope.tpot_seconds", "double", "s", "Mean over the tokens after the first; streamed answers.", "0.012"
)

MEASURED_JOULES = Attribute(
    "heliotrope.energy.measured_joules", "double", "J", "Its exact part of the counters' deltas.", "59.87"
)
ESTIMATED_JOULES = Attribute(
    "heliotrope.energy.estimated_joules", "double", "J", "What the decision expected of that part.", "61.4"
)
ESTIMATION_ERROR = Attribute(
    "heliotrope.energy.relative_error", "double", "", "(estimated - measured) / measured.", "0.026"
)
IDLE_JOULES = Attribute(
    "heliotrope.energy.idle_joules", "double", "J", "Idle energy of the same time, allocated by work; beside.", "12.2"
)
HOST_JOULES = Attribute(
    "heliotrope.energy.host_joules", "double", "J", "The hosts' share, from the engine model; beside.", "8.0"
)
COVERAGE = Attribute(
    "heliotrope.energy.coverage", "double", "", "Share of its time with a believable counter, in [0, 1].", "1.0"
)
ACCELERATOR_SECONDS = Attribute(
    "heliotrope.energy.accelerator_seconds", "double", "s", "Time × its share of the accelerators.", "0.31"
)
ENERGY_ENDPOINTS = Attribute(
    "heliotrope.energy.endpoints",
    "string[]",
    "",
    "Engines that served it, the one that answered first; absent: one did.",
    "[default/pod-a, default/encode-0]",
)
ENERGY_ENDPOINT_JOULES = Attribute(
    "heliotrope.energy.endpoint_joules",
    "double[]",
    "J",
    "What each of these drew of `measured_joules`.",
    "[58.2, 1.67]",
)


@dataclass(frozen=True, slots=True)
class SpanType:
    """A kind of span with the attributes that it may have."""

    name: str
    parent: str
    attributes: tuple[Attribute, ...]


REQUEST = SpanType(
    "gateway.request",
    "the client's or the gateway's span, if there is one",
    (
        METHOD, URL_PATH, URL_SCHEME, SERVER_ADDRESS, SERVER_PORT, STATUS, ERROR_TYPE,
        OPERATION, PROVIDER, MODEL, REQUEST_ID, STREAM, MAX_TOKENS, INPUT_TOKENS, OUTPUT_TOKENS, CACHED_INPUT_TOKENS,
        TIME_TO_FIRST_CHUNK, ENDPOINT, REGION, VARIANT, ARM, CAUSE, REJECTION, TTFT, TPOT,
    ),
)  # fmt: skip
ORCHESTRATION = SpanType(
    "gateway.request_orchestration",
    REQUEST.name,
    (
        MODEL, REQUEST_ID, TARGET_MODEL, MODEL_GROUP, MODEL_DOWNGRADED, MODEL_REASON, MODEL_QUALITY,
        MODEL_LEAST_QUALITY, MODEL_PREDICTOR, MODEL_TASK, REASONING_EFFORT, ROUTER_JOULES,
        POLICY, POLICY_REVISION, SERVICE_CLASS, DEMAND_EVENT, REFUSED_OVERRIDES,
        RELAXED, ENFORCED, ARM, OUTCOME, DECIDED_BY, REASON, REJECTION, DROPPED_TERMS,
        SESSION_MOVEMENT, SESSION_BECAUSE, SESSION_TURNS, SESSION_PREVIOUS, SESSION_GATE_VALUE, SESSION_GATE_THRESHOLD,
        CANDIDATES, ENDPOINT, ADVISED_ENDPOINT, ADVISED_PREFILL, ADVISED_ENCODE, ADVISED_KV_ACTION,
        ADVISED_KV_SOURCE, ADVISED_SAME, MODELLED_JOULES, MODELLED_GRAMS,
        REGION, VARIANT, PREFILL_ENDPOINT, DECODE_ENDPOINT, ENCODE_ENDPOINTS, MEDIA_COUNT, MEDIA_UNKNOWN,
        PROMPT_TOKENS, CACHED_TOKENS, KV_ACTION, KV_SOURCE, KV_TRANSFER_SECONDS, KV_TRANSFER_JOULES,
        HELD_SECONDS, EXPECTED_OUTPUT_TOKENS, EXPECTED_JOULES, ATTRIBUTED_JOULES, INCREMENTAL_JOULES,
        ENERGY_ERROR, GRAMS, WATER, COST, EXPECTED_TTFT, EXPECTED_TPOT, EXPECTED_SERVICE,
        AVOIDED_JOULES, AVOIDED_SECONDS, PUE, INTENSITY,
        SIGNAL_FRESHNESS, SIGNAL_TYPE, SIGNAL_FACTOR, SIGNAL_SOURCE, SIGNAL_AGE, SIGNAL_ESTIMATED,
    ),
)  # fmt: skip
PROFILE_RUN = SpanType("run_scheduler_profile", ORCHESTRATION.name, (PROFILE,))
FILTERS = SpanType("filter_endpoints", PROFILE_RUN.name, (FILTER_CANDIDATES, FILTER_LEFT, MODEL, REQUEST_ID))
SCORING = SpanType("llm_d.epp.scoring", PROFILE_RUN.name, (SCORING_CANDIDATES, SCORER_COUNT))
SCORER = SpanType(
    "llm_d.epp.scorer.<type>",
    SCORING.name,
    (SCORER_TYPE, SCORER_NAME, SCORER_WEIGHT, SCORER_CANDIDATES, SCORER_SCORED, SCORE_MAX, SCORE_AVG),
)
PICK = SpanType(
    "pick_endpoints", PROFILE_RUN.name, (PICKER, PICKER_CANDIDATES, TOP_ENDPOINTS, TOP_SCORES, MODEL, REQUEST_ID)
)
ENERGY = SpanType(
    "heliotrope.energy",
    REQUEST.name,
    (
        MEASURED_JOULES, ESTIMATED_JOULES, ESTIMATION_ERROR, IDLE_JOULES, HOST_JOULES, COVERAGE, ACCELERATOR_SECONDS,
        ENERGY_ENDPOINTS, ENERGY_ENDPOINT_JOULES, ENDPOINT, REGION, VARIANT,
    ),
)  # fmt: skip

PLACEMENT = SpanType(
    "heliotrope.region.placement",
    REQUEST.name,
    (
        MODEL, REQUEST_ID, REGION, region.REGION_REASON, region.REGION_SCHEDULER, region.REGION_OUTCOME,
        region.REGION_FALLBACK, region.REGION_WINDOW, region.REGION_WINDOW_REQUESTS, region.REGION_WINDOW_SECONDS,
        region.REGION_SOLVER_SECONDS, region.REGION_GAP, region.REGION_STATE_AGE, region.REGION_HELD,
        region.REGION_SESSION, region.REGION_CARBON, PROMPT_TOKENS, EXPECTED_OUTPUT_TOKENS,
    ),
)  # fmt: skip

SPANS = (REQUEST, ORCHESTRATION, PROFILE_RUN, FILTERS, SCORING, SCORER, PICK, ENERGY, PLACEMENT)
