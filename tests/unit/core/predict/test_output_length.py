from heliotrope.predict.output_length import PRIOR_TOKENS, OutputLengths


def test_the_prior_holds_until_something_was_seen_and_the_requests_limit_always() -> None:
    lengths = OutputLengths()
    assert lengths.expected_tokens("m", None) == PRIOR_TOKENS
    assert lengths.expected_tokens("m", 16) == 16.0
    assert lengths.expected_tokens("m", 0) == 1.0


def test_it_follows_what_is_observed_per_model() -> None:
    lengths = OutputLengths()
    for _ in range(500):
        lengths.observe("short", 10)
        lengths.observe("long", 900)
    assert abs(lengths.expected_tokens("short", None) - 10) < 2
    assert abs(lengths.expected_tokens("long", None) - 900) < 20
    lengths.observe("short", -5)
    assert lengths.expected_tokens("short", None) < 12


def test_memory_is_bounded() -> None:
    lengths = OutputLengths(max_models=2)
    for name in ("a", "b", "a", "c"):
        lengths.observe(name, 1000)
    assert lengths.expected_tokens("b", None) == PRIOR_TOKENS  # pushed out
    assert lengths.expected_tokens("a", None) > PRIOR_TOKENS
