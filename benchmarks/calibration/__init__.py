"""How well the statistics keep their promises, measured on laws where the truth is known.

Each module measures one kind of promise and answers with rows of the table that
``benchmarks/calibrate.py`` prints. Numpy, scipy and ``specverify.evidence`` only: no sampler.
"""
