"""Results, exams and pages for the tests of the HTML report."""

from __future__ import annotations

from html.parser import HTMLParser

from specverify import results
from specverify.exam_results import ExamResults, MarkRecord, RowRecord
from specverify.results import CellRecord, LookRecord, Outcome, RunStatus, VerdictRecord

VOID = {"meta", "input", "br", "img", "link"}
SHAPES = {"use", "rect", "path", "circle", "polygon", "polyline"}


def verdict(check="law/joint", status=Outcome.PASS, **fields):
    defaults = {
        "suite": "random", "case": "V4", "family": "law", "reason": "as expected",
        "trials": 1000, "alpha": 1e-8, "p_value": 0.5, "power": 0.999, "confidence": 0.999,
        "tv_observed": 0.01, "tv_certified": 0.04, "tv_detectable": 0.05, "tv_requested": 0.05,
    }  # fmt: skip
    return VerdictRecord(check=check, status=status, **{**defaults, **fields})


def failure(check="law/request 0: token 1", **fields):
    cells = (
        CellRecord(label="token 4", observed=104, expected=0.0),
        CellRecord(label="token 2", observed=300, expected=200.0),
    )
    defaults = {"p_value": 1e-40, "worst": cells, "replay": "sv1.abc-DEF_1", "tv_observed": 0.3}
    return verdict(check, Outcome.FAIL, **{**defaults, **fields})


def run_of(*verdicts, outcome=Outcome.FAIL, sampler="mutant:x", capabilities=None, **fields):
    settings = results.RunSettings(
        sampler=results.SamplerRecord(
            name=sampler, version="1.0", capabilities=capabilities or {"dense": True}
        ),
        suites=("random",), seed=7, alpha=1e-6, alpha_per_test=1e-8, tests=100, power=0.999,
        tv=None, confidence=0.999, profile="quick", device="cpu",
        command=("specverify", "run", "--sampler", sampler),
    )  # fmt: skip
    environment = results.Environment(
        python="3.11.7", implementation="CPython", platform="Linux", cpu_count=2,
        packages={"specverify-harness": "0.1.0", "torch": "2.13.0"},
    )  # fmt: skip
    defaults = {
        "status": RunStatus.FINISHED, "started": "2026-01-02T03:04:05+00:00", "seconds": 1.5,
        "cases_planned": 1, "cases_finished": 1,
    }  # fmt: skip
    return results.RunResults(
        verdict=outcome, settings=settings, environment=environment, verdicts=verdicts,
        **{**defaults, **fields},
    )  # fmt: skip


def exam_of(*rows):
    return ExamResults(
        seed=3, alpha=1e-6, tv=0.02, power=0.999, suites=["greedy", "random"], rows=list(rows),
        versions={"specverify-harness": "0.1.0"},
    )  # fmt: skip


def row(subject, role="lossy", right=True, **marks):
    return RowRecord(
        subject=subject, role=role, summary=f"what {subject} does", seen_at="textbook",
        right=right, marks=marks, seconds=1.0,
    )  # fmt: skip


def mark(trials, caught=True, complete=False, supported=True):
    return MarkRecord(
        caught=caught, trials=trials, check="case: check" if caught else None,
        complete=complete, supported=supported,
    )  # fmt: skip


def looking(**fields):
    looks = tuple(
        LookRecord(trials=n, log_e=e, rejects_at=20.0, tv_observed=0.05, tv_certified=bound)
        for n, e, bound in ((1000, -1.0, 0.2), (10_000, 8.0, 0.1), (100_000, 25.0, 0.06))
    )
    return failure(looks=looks, **fields)


class Page(HTMLParser):
    """A document that must be well formed, with its text and its elements."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text, self._open = [], "", []
        self.feed(text)
        self.close()
        assert self._open == []
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in SHAPES
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open[-1:] != ["style"]:
            self.text += f" {data}"

    def all(self, tag, **wanted):
        return [
            a for t, a in self.elements if t == tag and wanted.items() <= {**a, "any": ""}.items()
        ]
