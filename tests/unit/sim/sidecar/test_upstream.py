from heliotrope_sim.sidecar.upstream import Whole, forwarded, steered

HEADERS = {
    "Host": "a",
    "Connection": "close",
    "Content-Length": "3",
    "X-Prefiller-Host-Port": "p:1",
    "x-encoder-hosts-ports": "e:1",
    "X-KV-Cache-Source-Host-Port": "s:1",
    "Authorization": "Bearer k",
    "Accept-Encoding": "gzip",
    "X-Request-Id": "one",
    "traceparent": "00-1-2-01",
}


def test_routing_and_hop_by_hop_headers_end_here() -> None:
    assert dict(forwarded(HEADERS)) == {
        "Authorization": "Bearer k",
        "Accept-Encoding": "gzip",
        "X-Request-Id": "one",
        "traceparent": "00-1-2-01",
    }


def test_answers_that_are_read_are_not_compressed_and_all_requests_have_one_id() -> None:
    assert steered(HEADERS, "two") == [
        ("Authorization", "Bearer k"),
        ("traceparent", "00-1-2-01"),
        ("accept-encoding", "identity"),
        ("x-request-id", "two"),
    ]


def test_only_what_may_pass_is_asked_for_again() -> None:
    answers = {status: Whole(status, [], b"") for status in (200, 204, 400, 404, 500, 501, 502, 503, 504)}
    assert [status for status, answer in answers.items() if not answer.failed] == [200, 204]
    assert [status for status, answer in answers.items() if answer.worth_a_retry] == [502, 503, 504]
