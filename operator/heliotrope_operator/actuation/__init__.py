"""Makes wanted replicas so, one writer per field, and gives every field back with the value that it had."""
