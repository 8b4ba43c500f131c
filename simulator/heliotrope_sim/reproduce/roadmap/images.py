"""Images on their way: as an engine sees them in a prompt, and what moving their embeddings takes."""

from collections.abc import Mapping, Sequence

from heliotrope.cache.costs import Transfer
from heliotrope.cache.links import Link
from heliotrope.engine.encoder import DEFAULT_ENCODER
from heliotrope.units import bits_from_bytes
from heliotrope_sim.engine import ImageInput
from heliotrope_sim.reproduce.roadmap.workloads import Picture


def embedding(tokens: int, link: Link) -> Transfer:
    """Moving the embedding of an image."""
    size_bytes = tokens * DEFAULT_ENCODER.bytes_per_token
    bits = bits_from_bytes(size_bytes)
    return Transfer(
        seconds=link.latency_seconds + size_bytes / link.bytes_per_second,
        sender_joules=bits * link.sender_joules_per_bit,
        network_joules=bits * link.network_joules_per_bit,
        receiver_joules=bits * link.receiver_joules_per_bit,
    )


def images_of(
    pictures: Sequence[Picture], prompt_tokens: int, loads: Mapping[str, tuple[int, int]]
) -> tuple[ImageInput, ...]:
    """The images at the end of a prompt."""
    found = []
    end = prompt_tokens - sum(picture.tokens for picture in pictures)
    for picture in pictures:
        end += picture.tokens
        load_ns, load_picojoules = loads.get(picture.key, (None, 0))
        found.append(ImageInput(picture.key, picture.tokens, end, load_ns, load_picojoules))
    return tuple(found)
