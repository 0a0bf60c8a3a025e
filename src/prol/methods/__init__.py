"""Learners, one file per method, found by name through `prol.registry`."""
