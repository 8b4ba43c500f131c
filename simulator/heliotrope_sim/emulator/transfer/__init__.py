"""How emulated engines read each other's KV blocks and embeddings, with the fields that vLLM puts into requests."""
