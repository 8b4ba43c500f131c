"""The wire side of the picker: one interface, and the implementations that speak Envoy's `ext_proc` behind it."""
