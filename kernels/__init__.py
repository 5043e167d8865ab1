"""Triton rejection samplers: subjects of the harness like any other."""
