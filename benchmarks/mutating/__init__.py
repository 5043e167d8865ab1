"""The parts of ``benchmarks/mutation.py``: making mutants, trying them, scoring the tests."""
