"""The part of /metrics about what engines share: multimodal inputs and transfers."""

from heliotrope_sim.emulator.driver import EngineDriver
from heliotrope_sim.emulator.exposition import Page, labels
from heliotrope_sim.emulator.transfer.node import TransferNode
from heliotrope_sim.engine.fixed_point import seconds


def shared_page(driver: EngineDriver, node: TransferNode | None) -> str:
    """The families of one engine; those of transfers only where it exchanges something, as in vLLM."""
    page = Page()
    label_text = labels({"model_name": driver.served_model, "engine": "0"})
    encoder = driver.engine.encoder
    queries, hits = (0, 0) if encoder is None else (encoder.cache.queries, encoder.cache.hits)
    for name, help_text, value in (
        ("queries", "Multi-modal cache queries, in terms of number of queried items.", queries),
        ("hits", "Multi-modal cache hits, in terms of number of cached items.", hits),
    ):
        page.family(f"vllm:mm_cache_{name}_total", "counter", help_text, [(label_text, value)])
    if encoder is not None:
        for name, help_text, amount in (
            ("encoded_images", "Images that were encoded here.", encoder.encoded_images),
            ("encoded_tokens", "Tokens of images that were encoded here.", encoder.encoded_tokens),
            ("encode_seconds", "Engine time of encoding.", seconds(encoder.encoded_ns)),
            ("loaded_images", "Images whose embeddings came from an encoder.", encoder.loaded_images),
            ("encoder_cache_evictions", "Embeddings that made room for others.", encoder.cache.evictions),
        ):
            page.family(f"heliotrope_emulator_{name}_total", "counter", help_text, [(label_text, amount)])
    if node is not None:
        node.write(page, label_text, expired=driver.engine.external.expired_holds)
    return page.text()
