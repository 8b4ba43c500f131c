"""Many engines in many regions, simulated from arrival to last token: a deterministic discrete-event simulator.

Engines advance in a compiled kernel with the semantics of `heliotrope_sim.engine.Engine`; schedulers come unchanged
from `heliotrope.place`, endpoint decisions from `heliotrope.decide`. Times are whole nanoseconds since the start of a
run, energies whole picojoules, so that equal inputs give equal results on every machine.

Entry points:

- `topology.Topology` of `Site`s (one region of `heliotrope.place` each) and `SchedulerSite`s.
- `workload.Workload`: requests as arrays; made by `arrivals.poisson`, `arrivals.azure`, `arrivals.mooncake`,
  `arrivals.diurnal`, or from arrays of your own by `workload.workload`. `lengths` has the papers' means,
  `network.aws_rtt_seconds` round trips.
- `settings.RunSettings`: scheduler, policy, window, polls, how long decisions take, what engines are told to do.
- `endpoints.EndpointTier`: a `RunSettings.picker` that asks `heliotrope.decide` request by request, for small fleets.
- `simulate.simulate(topology, workload, settings) -> results.Results`: arrays per request, energy per site, interval
  and line, `Results.summary()` and `Results.trace_hash()`.
- `simulate.compile_kernel()`: before a pool of processes is started.
- `perfetto.write`: a run as a trace that Perfetto and chrome://tracing open.
"""
