"""Which pods have which GPUs, told by two sources that do not know of each other."""
