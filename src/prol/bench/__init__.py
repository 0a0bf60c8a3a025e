"""Benchmarks of learning and prediction on this machine, for any method, backbone and precision."""
