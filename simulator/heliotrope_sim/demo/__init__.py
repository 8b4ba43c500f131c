"""The demo: real Envoy, emulated engines in three regions, the picker, and real traces of requests and carbon."""
