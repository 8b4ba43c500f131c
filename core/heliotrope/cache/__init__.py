"""Where KV caches are, what using, moving, keeping or recomputing them costs, and the sessions that need them."""
