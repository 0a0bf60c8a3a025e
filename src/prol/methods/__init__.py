"""Learners, one file a method, found by name through `prol.registry`."""
