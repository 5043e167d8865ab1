"""Experiments that come out as they are told to, and a sampler for them to ignore."""

from __future__ import annotations

import dataclasses
import hashlib
import os

import hypothesis

from specverify.checks.experiment import Plan, Suite
from specverify.checks.verdict import Cell, Family, Status, Verdict
from specverify.contract import Capabilities, sampler


@sampler(Capabilities(greedy=False))
def my_sampler(batch):
    raise AssertionError("the fakes never call their sampler")


@dataclasses.dataclass(frozen=True)
class Fake:
    """An experiment of ``tests`` statistical tests that comes out as ``kind`` says."""

    suite: str
    case: str
    kind: str = "pass"
    tests: int = 1

    def plan(self, capabilities):
        return Plan(self.tests, "it cannot" if self.kind == "unsupported" else None)

    def run(self, subject, settings, progress=None):
        if self.kind == "raise":
            raise ZeroDivisionError("a fault of the harness")
        if self.kind == "interrupt":
            raise KeyboardInterrupt
        if self.kind == "die":
            os._exit(9)
        if self.kind == "empty":
            return []
        if progress is not None:
            progress(50, 100)
        return [self._verdict(settings, index) for index in range(self.tests)]

    def _verdict(self, settings, index):
        digest = hashlib.sha256(f"{settings.root_seed}/{self.case}/{index}".encode()).digest()
        p_value = int.from_bytes(digest[:6], "big") / 2**48
        status = {"fail": Status.FAIL, "inconclusive": Status.INCONCLUSIVE}.get(
            self.kind, Status.PASS
        )
        return Verdict(
            suite=self.suite, case=self.case, check=f"law/check {index}", family=Family.LAW,
            status=status, reason=f"it was told to {self.kind} by {settings.profile.name}",
            trials=settings.trials or 1000, statistic="cressie-read", value=float("inf"),
            p_value=p_value, alpha=settings.alpha * (2 if self.kind == "overspend" else 1),
            power=settings.power, cells=4 + index, tv_requested=0.01, tv_detectable=0.009,
            tv_certified=0.005, confidence=0.999, worst=(Cell("token [1] | *", 3, 2.5),),
        )  # fmt: skip


class HypothesisProbe(Fake):
    """Says in its reason which hypothesis profile is active."""

    def run(self, subject, settings, progress=None):
        default = hypothesis.settings()
        (verdict,) = super().run(subject, settings)
        reason = f"examples={default.max_examples} derandomize={default.derandomize}"
        return [dataclasses.replace(verdict, reason=reason)]


def suite(name, *kinds):
    """A suite with one case of each kind; ``kind*3`` has three tests."""
    experiments = []
    for number, text in enumerate(kinds):
        kind, _, tests = text.partition("*")
        experiments.append(Fake(name, f"{number}-{kind}", kind, int(tests or 1)))
    return Suite(name, f"fakes: {' '.join(kinds)}", tuple(experiments))
