"""Work of requests on one engine, laid out in time."""

from dataclasses import dataclass

from heliotrope.engine.work_weights import WorkWeights


@dataclass(slots=True, eq=False)
class Work:
    """Units of work as in `WorkWeights`, decode steps left to whoever knows the batch."""

    prompts: float = 0.0
    prompt_tokens: float = 0.0
    prompt_squares: float = 0.0
    tokens: float = 0.0
    """Decoded; a first token comes out of the prefill on the same engine and is none."""
    cached_tokens: float = 0.0
    """Σ over the decode steps of the tokens whose KV was read."""
    decode_seconds: float = 0.0
    firsts: float = 0.0
    """Answers that begin, as the engine counts them."""

    @property
    def generated(self) -> float:
        """Tokens as the engine counts them, those out of prefills included."""
        return self.tokens + self.prompts

    def add(self, other: "Work", share: float = 1.0) -> None:
        """Add a share of other work."""
        if other.firsts or other.prompts:
            self.prompts += share * other.prompts
            self.prompt_tokens += share * other.prompt_tokens
            self.prompt_squares += share * other.prompt_squares
            self.firsts += share * other.firsts
        self.add_decoding(share * other.tokens, share * other.cached_tokens, share * other.decode_seconds)

    def add_decoding(self, tokens: float, cached_tokens: float, seconds: float) -> None:
        """Add decoding."""
        self.tokens += tokens
        self.cached_tokens += cached_tokens
        self.decode_seconds += seconds

    def joules(self, weights: WorkWeights, batch: float) -> float:
        """What it draws by weights, its steps shared by a batch."""
        decoding = (weights.step / batch + weights.token) * self.tokens + weights.cached_token * self.cached_tokens
        if not self.prompts:
            return decoding
        return (
            decoding
            + weights.prompt * self.prompts
            + weights.prompt_token * self.prompt_tokens
            + weights.prompt_square * self.prompt_squares
        )


def prefill_work(uncached: float, cached: float, share: float = 1.0) -> Work:
    """The prefill of one prompt, or a share of it."""
    whole = uncached + cached
    return Work(
        prompts=share,
        prompt_tokens=share * uncached,
        prompt_squares=share * (whole * whole - cached * cached),
        firsts=share,
    )


def decode_work(tokens: float, context: float, seconds: float) -> Work:
    """Decoding of some tokens of one sequence that begins with a context of so many tokens."""
    return Work(tokens=tokens, cached_tokens=tokens * (context + tokens / 2.0), decode_seconds=seconds)
