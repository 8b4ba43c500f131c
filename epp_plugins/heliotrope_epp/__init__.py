"""The endpoint picker: an Envoy ext_proc service that chooses where each request runs."""
