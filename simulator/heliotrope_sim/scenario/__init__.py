"""What-if studies of a user's own: a scenario file, checked; its policies side by side; a report.

- `reading.read`: a YAML file to a `model.Scenario` and the `files.Files` that it names.
- `sweep.points`: a scenario for each combination of a sweep's values.
- `build.build`: a scenario to topology, workload and one arm per policy.
- `study.run`: every arm of every point on a pool of processes; `outcome.Outcome` is what one run gives.
- `report`: what is printed, written as JSON (docs/simulate.md) and as a page.
"""
