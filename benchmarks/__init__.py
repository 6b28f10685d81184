"""Benchmarks: `python -m benchmarks`. One file a workload, `harness` for what they share."""
