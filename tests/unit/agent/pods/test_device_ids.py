import pytest

from heliotrope_agent.pods.claims import Claim, PodName
from heliotrope_agent.pods.device_ids import Part, Place, place

A = "GPU-0a3ad8ae-1f5b-4b0a-9f0e-000000000001"
B = "GPU-0a3ad8ae-1f5b-4b0a-9f0e-000000000002"
BY_INDEX = {0: A, 1: B}


def placed(device_id: str, *, dynamic: bool = False) -> Place | None:
    return place(Claim(PodName("team", "engine-0"), "engine", device_id, dynamic=dynamic), BY_INDEX)


@pytest.mark.parametrize(
    ("device_id", "expected"),
    [
        (A, Place(A, Part.WHOLE)),
        (f"{B}::3", Place(B, Part.SHARE)),
        (f"{B}-7", Place(B, Part.SHARE)),
        (f"{A}/vgpu0", Place(A, Part.SHARE)),
        (f"MIG-{B}/1/0", Place(B, Part.PARTITION)),
        ("MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f", Place(None, Part.PARTITION)),
        ("0", Place(A, Part.WHOLE)),
        ("nvidia1", Place(B, Part.WHOLE)),
        ("nvidia1/vgpu0", Place(B, Part.SHARE)),
        ("1::0", Place(B, Part.SHARE)),
        ("nvidia0/gi7", Place(A, Part.PARTITION)),
        ("7", Place(None, Part.WHOLE)),
        ("0000:08:00.0", Place(None, Part.WHOLE)),
        ("", Place(None, Part.WHOLE)),
    ],
)
def test_ids_of_known_plugins(device_id: str, expected: Place) -> None:
    assert placed(device_id) == expected


def test_a_gpu_that_the_driver_does_not_have_is_none_of_ours() -> None:
    assert placed("GPU-ffffffff-1f5b-4b0a-9f0e-000000000001") is None
    assert placed("MIG-GPU-ffffffff-1f5b-4b0a-9f0e-000000000001/1/0") is None
    assert placed(f"{A}9") is None


def test_a_resource_claim_may_be_any_gpu() -> None:
    assert placed("node-1/gpu-0", dynamic=True) == Place(None, Part.WHOLE)
