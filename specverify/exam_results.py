"""The schema of an exam's results: what ``specverify mutants`` writes and reports read."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

EXAM_SCHEMA_VERSION = 2


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MarkRecord(_Record):
    """One cell of the matrix."""

    caught: bool
    """Whether a check of the suite failed."""
    trials: int
    """Trials at detection, or where the suite stopped looking."""
    check: str | None
    """Case and check that failed first."""
    complete: bool
    """Whether the suite was followed to its full budget."""
    supported: bool
    """Whether the suite could ask the subject anything."""
    side: str = "law"
    """What a rejection by the suite says: law, coupling or either."""
    exact: bool = False
    """Whether the suite runs no trials; ``trials`` are layouts then."""


class RowRecord(_Record):
    """One subject of the exam."""

    subject: str
    """As ``specverify run --sampler`` takes it."""
    role: str
    """``lossy`` and ``slow`` mutants must be caught, ``correct`` samplers must not."""
    summary: str
    """What is wrong with it, in one line."""
    seen_at: str
    """Public reference of the bug."""
    right: bool
    """Whether the harness said the right thing."""
    layers: list[str] = []
    """Suites, one of which must catch it; of a correct sampler none."""
    formula: bool = False
    """Whether it is a wrong formula, which must be caught within 20,000 trials."""
    detected: int | None = None
    """Trials (layouts, of exact suites) at which the first of its ``layers`` caught it."""
    marks: dict[str, MarkRecord]
    """By suite."""
    seconds: float
    """Wall time."""


class ExamResults(_Record):
    """A whole exam."""

    schema_version: int = EXAM_SCHEMA_VERSION
    seed: int
    """Root seed."""
    alpha: float
    """False-alarm probability for each subject, over all suites, tests and stages."""
    tv: float
    """Deviation that the full budget is powered for."""
    power: float
    """With this probability."""
    suites: list[str]
    """Columns of the matrix."""
    rows: list[RowRecord]
    """Correct samplers first, then the mutants."""
    versions: dict[str, str]
    """Of the packages that matter."""
    shortcuts: list[str] = []
    """What was left out to be quick, in sentences; nothing in a full exam."""

    @property
    def survivors(self) -> list[str]:
        """Mutants that were not caught, or not by a suite that they name, or not in time."""
        return [
            row.subject
            for row in self.rows
            if row.role != "correct" and not row.right and row.subject not in self.misjudged
        ]

    @property
    def misjudged(self) -> list[str]:
        """Lossless mutants of which a suite said that their text is wrong."""
        return [
            row.subject
            for row in self.rows
            if row.role == "slow"
            and any(mark.caught and mark.side == "law" for mark in row.marks.values())
        ]

    @property
    def accused(self) -> list[str]:
        """Correct samplers that some suite rejected."""
        return [row.subject for row in self.rows if row.role == "correct" and not row.right]

    @property
    def passed(self) -> bool:
        """Somebody sat the exam, nothing survived and nobody was falsely accused."""
        return bool(self.rows) and not (self.survivors or self.misjudged or self.accused)


def load_exam(path: Path) -> ExamResults:
    """Read an exam's results.

    Raises:
        ValueError: if the file is damaged or of another schema.
    """
    try:
        results = ExamResults.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name}: not the results of an exam: {error}") from error
    if results.schema_version != EXAM_SCHEMA_VERSION:
        raise ValueError(
            f"{path.name}: schema_version: got {results.schema_version}; "
            f"expected {EXAM_SCHEMA_VERSION}"
        )
    return results
