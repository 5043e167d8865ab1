"""The exam's bookkeeping: who is right, what is censored, what is written and shown."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from specverify.reports import matrix

from specverify import exam_pool
from specverify.checks.experiment import PROFILES, Plan, Progress, Settings, Side, Suite
from specverify.checks.verdict import Family, Status, Verdict
from specverify.contract import Capabilities
from specverify.exam import (
    FIRST_STAGE,
    STAGES,
    Mark,
    Role,
    Row,
    examine,
)
from specverify.exam_pool import CORRECT, run_exam, subjects
from specverify.exam_results import (
    EXAM_SCHEMA_VERSION,
    ExamResults,
    MarkRecord,
    RowRecord,
    load_exam,
)
from specverify.mutants import MUTANTS, Kind
from specverify.reference import reference
from specverify.subjects import Subject

ACCEPTANCE = "acceptance"

# --- who is right ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("caught", "right_for"),
    [
        (set(), {Role.CORRECT}),
        ({Side.COUPLING}, {Role.SLOW}),
        ({Side.LAW}, {Role.LOSSY}),
        ({Side.EITHER}, {Role.LOSSY}),
        ({Side.LAW, Side.COUPLING}, {Role.LOSSY}),
        ({Side.LAW, Side.EITHER}, {Role.LOSSY}),
        ({Side.EITHER, Side.COUPLING}, {Role.LOSSY, Role.SLOW}),
        ({Side.LAW, Side.EITHER, Side.COUPLING}, {Role.LOSSY}),
    ],
    # Sorted: sets print in another order in every worker of pytest-xdist.
    ids=lambda names: "+".join(sorted(name.value for name in names)) or "nobody",
)
def test_who_is_right(caught: set[Side], right_for: set[Role]) -> None:
    marks = {side.value: Mark(side in caught, 2000, None, True, side=side) for side in Side}
    assert {role for role in Role if Row("s", role, marks).right} == right_for


def test_without_marks_only_a_correct_sampler_is_right() -> None:
    assert {role for role in Role if Row("s", role, {}).right} == {Role.CORRECT}


def test_roles_of_mutants() -> None:
    assert {Role.of(kind) for kind in Kind} == {Role.LOSSY, Role.SLOW}


# --- stages and censoring -----------------------------------------------------------------------


@dataclasses.dataclass
class FakeExperiment:
    """Fails from some number of trials on; remembers what it was asked."""

    suite: str
    fails_at: int | None = None
    tests: int = 1
    unsupported: str | None = None
    case: str = "fake"
    asked: list[int | None] = dataclasses.field(default_factory=list)

    def plan(self, capabilities: Capabilities) -> Plan:
        return Plan(0 if self.unsupported else self.tests, self.unsupported)

    def run(
        self, subject: Subject, settings: Settings, progress: Progress | None = None
    ) -> list[Verdict]:
        self.asked.append(settings.trials)
        trials = settings.trials or 40
        bad = self.fails_at is not None and trials >= self.fails_at
        return [
            Verdict(
                suite=self.suite,
                case=self.case,
                check=f"law/{number}",
                family=Family.LAW,
                status=Status.FAIL if bad and number == 1 else Status.INCONCLUSIVE,
                reason="",
                trials=trials,
            )
            for number in range(2)
        ]


SIDES = {ACCEPTANCE: Side.COUPLING}


def sit(role: Role, *experiments: FakeExperiment, max_trials: int = 20_000) -> Row:
    profile = dataclasses.replace(PROFILES["quick"], max_trials=max_trials)
    settings = Settings(alpha=1e-9, tv=0.01, profile=profile)
    by_suite: dict[str, list[FakeExperiment]] = {}
    for experiment in experiments:
        by_suite.setdefault(experiment.suite, []).append(experiment)
    suites = [
        Suite(name, "", tuple(found), SIDES.get(name, Side.LAW)) for name, found in by_suite.items()
    ]
    return examine(Subject.of(reference, "subject"), role, suites, settings)


def test_a_correct_sampler_is_followed_to_the_full_budget() -> None:
    law = FakeExperiment("law")
    row = sit(Role.CORRECT, law)
    assert law.asked == [FIRST_STAGE, 20_000]
    assert row.marks == {"law": Mark(False, 20_000, None, True)}
    assert row.right


def test_a_caught_suite_is_not_asked_again() -> None:
    early, late = (
        FakeExperiment("early", fails_at=2_000),
        FakeExperiment(ACCEPTANCE, fails_at=9_000),
    )
    row = sit(Role.SLOW, early, late)
    assert early.asked == [FIRST_STAGE]
    assert row.marks["early"] == Mark(True, FIRST_STAGE, "fake: law/1", False)
    assert late.asked == [FIRST_STAGE, 20_000]
    assert row.marks[ACCEPTANCE] == Mark(True, 20_000, "fake: law/1", True, side=Side.COUPLING)


def test_other_suites_of_a_caught_mutant_are_censored() -> None:
    early, never = FakeExperiment("early", fails_at=2_000), FakeExperiment("never")
    row = sit(Role.LOSSY, early, never)
    assert never.asked == [FIRST_STAGE]
    assert row.marks["never"] == Mark(False, FIRST_STAGE, None, False)
    assert row.right


def test_a_lossy_mutant_caught_by_acceptance_alone_is_followed_to_the_end() -> None:
    coupling, law = FakeExperiment(ACCEPTANCE, fails_at=2_000), FakeExperiment("law")
    row = sit(Role.LOSSY, coupling, law)
    assert law.asked == [FIRST_STAGE, 20_000]
    assert not row.right


def test_exact_experiments_are_asked_once_with_the_layouts_of_the_profile() -> None:
    exact, law = FakeExperiment("mixed", tests=0), FakeExperiment("mixed")
    row = sit(Role.CORRECT, exact, law)
    assert exact.asked == [None]
    assert law.asked == [FIRST_STAGE, 20_000]
    assert row.marks["mixed"].supported
    assert not row.marks["mixed"].exact
    alone = sit(Role.CORRECT, FakeExperiment("exact", tests=0))
    layouts = PROFILES["quick"].examples
    assert alone.marks["exact"] == Mark(False, layouts, None, True, exact=True)


def test_what_nobody_can_ask_is_not_supported() -> None:
    no = FakeExperiment("no", unsupported="it cannot")
    row = sit(Role.CORRECT, no, FakeExperiment("yes"))
    assert no.asked == []
    assert not row.marks["no"].supported
    half = sit(Role.CORRECT, FakeExperiment("half", unsupported="no"), FakeExperiment("half"))
    assert half.marks["half"].supported


def test_small_budgets_are_one_stage() -> None:
    law = FakeExperiment("law")
    assert sit(Role.CORRECT, law, max_trials=1_000).marks["law"].complete
    assert law.asked == [1_000]


def test_stages_are_reported() -> None:
    seen: list[tuple[str, int]] = []
    settings = Settings(tv=0.01, profile=dataclasses.replace(PROFILES["quick"], max_trials=9_000))
    suites = [Suite("law", "", (FakeExperiment("law"),))]
    subject = Subject.of(reference)
    examine(subject, Role.CORRECT, suites, settings, lambda *look: seen.append(look))
    assert seen == [("law", FIRST_STAGE), ("law", 9_000)]


# --- the pool ----------------------------------------------------------------------------------


def test_everybody_sits_the_exam() -> None:
    everybody = subjects()
    assert [name for name, _ in everybody[: len(CORRECT)]] == list(CORRECT)
    assert {name for name, role in everybody if role is Role.CORRECT} == set(CORRECT)
    assert len(everybody) == len(CORRECT) + len(MUTANTS)
    roles = dict(everybody)
    assert roles["mutant:q-dropped"] is Role.SLOW
    assert roles["mutant:accept-all"] is Role.LOSSY


def toy_suites() -> list[Suite]:
    from specverify.suites.declare import COUPLING, case, r

    law = case("random", "exam-toy", 4, r(drafts=2), r(drafts=1))
    rule = case(ACCEPTANCE, "exam-toy", 4, r(drafts=2), families=COUPLING)
    empty = Suite("recorded", "nothing", ())
    return [Suite("random", "", (law,)), Suite(ACCEPTANCE, "", (rule,), Side.COUPLING), empty]


FEW = ("reference", "mutant:accept-all", "mutant:q-dropped", "mutant:min-p-ignored")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only some of the subjects, at few trials; the last one cannot be caught by these suites."""
    chosen = [pair for pair in subjects() if pair[0] in FEW]
    monkeypatch.setattr(exam_pool, "subjects", lambda **_: chosen)
    monkeypatch.setattr(exam_pool, "EXAM_TV", 0.05)


def sat(workers: int = 1, done: Callable[[RowRecord, int, int], None] | None = None) -> ExamResults:
    return run_exam(toy_suites(), profile="quick", seed=4, workers=workers, done=done)


@pytest.mark.usefixtures("few")
def test_run_exam() -> None:
    seen: list[tuple[str, int, int]] = []
    results = sat(done=lambda row, finished, total: seen.append((row.subject, finished, total)))
    assert results.suites == ["random", ACCEPTANCE]  # a suite without experiments is no column
    assert [row.subject for row in results.rows] == [
        "reference", "mutant:accept-all", "mutant:min-p-ignored", "mutant:q-dropped",
    ]  # fmt: skip
    assert [one[1:] for one in seen] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    by_name = {row.subject: row for row in results.rows}
    assert by_name["reference"].summary == "correct"
    assert by_name["reference"].seen_at == ""
    assert by_name["mutant:accept-all"].seen_at == MUTANTS["accept-all"].seen_at
    assert by_name["mutant:accept-all"].marks["random"].caught
    assert by_name["mutant:q-dropped"].marks[ACCEPTANCE].caught
    assert not by_name["mutant:q-dropped"].marks["random"].caught
    assert results.survivors == ["mutant:min-p-ignored"]
    assert results.accused == []
    assert not results.passed
    assert "torch" in results.versions
    again = sat()
    strip = {"rows": {"__all__": {"seconds"}}}
    assert results.model_dump(exclude=strip) == again.model_dump(exclude=strip)


def test_alpha_is_shared_by_tests_and_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []

    class Spy(FakeExperiment):
        def run(
            self, subject: Subject, settings: Settings, progress: Progress | None = None
        ) -> list[Verdict]:
            shares.append(settings.alpha)
            return super().run(subject, settings, progress)

    monkeypatch.setattr(exam_pool, "subjects", lambda **_: [("reference", Role.CORRECT)])
    run_exam([Suite("law", "", (Spy("law", tests=4),))], profile="quick", seed=1, alpha=1e-3)
    assert set(shares) == {1e-3 / (4 * STAGES)}
    assert len(shares) == STAGES  # every stage is paid for


# --- results and the matrix --------------------------------------------------------------------


def mark(**changes: object) -> MarkRecord:
    fields = {
        "caught": False, "trials": 8_000, "check": None, "complete": False, "supported": True,
    }  # fmt: skip
    return MarkRecord(**{**fields, **changes})  # type: ignore[arg-type]


def row(subject: str, role: str, right: bool, **marks: MarkRecord) -> RowRecord:
    return RowRecord(
        subject=subject, role=role, summary="The residual is |p - q|", seen_at="vllm #1",
        right=right, marks=marks, seconds=1.0,
    )  # fmt: skip


def results(*rows: RowRecord) -> ExamResults:
    return ExamResults(
        seed=9, alpha=1e-6, tv=0.02, power=0.999, suites=["greedy", ACCEPTANCE], rows=list(rows),
        versions={"torch": "2"},
    )  # fmt: skip


GOOD = results(
    row("reference", "correct", True, greedy=mark(complete=True), acceptance=mark(complete=True)),
    row("mutant:a", "lossy", True, greedy=mark(caught=True, trials=412), acceptance=mark()),
)
MISJUDGED = results(
    row("reference", "correct", True, greedy=mark(complete=True)),
    row("mutant:slow", "slow", False, greedy=mark(caught=True), acceptance=mark(caught=True)),
)
BAD = results(
    row("reference", "correct", False, greedy=mark(caught=True), acceptance=mark(complete=True)),
    row("mutant:a", "slow", False, greedy=mark(supported=False)),
)


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "exam.json"
    path.write_text(GOOD.model_dump_json(), encoding="utf-8")
    assert load_exam(path) == GOOD


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema_version": EXAM_SCHEMA_VERSION + 1}, "schema_version: got 3; expected 2"),
        ({"surprise": 1}, "not the results of an exam"),
        ({"rows": "none"}, "not the results of an exam"),
    ],
)
def test_other_schemas_are_refused(tmp_path: Path, change: dict[str, object], words: str) -> None:
    path = tmp_path / "exam.json"
    path.write_text(json.dumps({**GOOD.model_dump(), **change}), encoding="utf-8")
    with pytest.raises(ValueError, match=words) as caught:
        load_exam(path)
    assert str(caught.value).startswith("exam.json: ")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]"])
def test_damaged_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "exam.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"exam\.json: not the results of an exam"):
        load_exam(path)


def test_survivors_and_accused() -> None:
    assert GOOD.passed
    assert (GOOD.survivors, GOOD.accused) == ([], [])
    assert not BAD.passed
    assert (BAD.survivors, BAD.accused) == (["mutant:a"], ["reference"])


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (None, "."),
        (mark(supported=False), "-"),
        (mark(caught=True, trials=0), "fault"),
        (mark(caught=True, trials=412), "412"),
        (mark(caught=True, trials=8_000), "8k"),
        (mark(caught=True, trials=999_499), "999k"),
        (mark(caught=True, trials=999_999), "1M"),
        (mark(caught=True, trials=1_234_000), "1.23M"),
        (mark(trials=32_000), "> 32k"),
        (mark(complete=True), "ok"),
    ],
)
def test_cells(found: MarkRecord | None, text: str) -> None:
    assert matrix.cell(found) == text


def test_verdict_of_an_exam() -> None:
    assert matrix.verdict(GOOD).startswith(
        "PASS: all 1 mutants were caught by a suite that they name, 0 wrong "
    )
    assert "at most 1e-06 for each" in matrix.verdict(GOOD)
    assert matrix.verdict(BAD) == "FAIL: 1 survived: mutant:a; falsely accused: reference"


def test_a_lossless_mutant_of_wrong_text_did_not_survive() -> None:
    assert not MISJUDGED.passed
    assert (MISJUDGED.survivors, MISJUDGED.misjudged) == ([], ["mutant:slow"])
    assert matrix.verdict(MISJUDGED) == (
        "FAIL: 1 lossless, yet their text was rejected: mutant:slow"
    )


def test_shortcuts_are_said() -> None:
    assert matrix.shortcuts(GOOD) == "Full exam: nothing was left out."
    quick = GOOD.model_copy(update={"shortcuts": ["few layouts"]})
    assert "--full leaves nothing out: few layouts." in matrix.shortcuts(quick)
    assert "few layouts" in matrix.markdown(quick)


def shown(found: ExamResults, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(matrix.table(found))
    return out.getvalue()


def test_terminal_fits_80_columns_and_holds_every_mark() -> None:
    text = shown(GOOD, 80)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    for word in ("subject", "greedy", "accept", "reference", "ok", "412", "> 8k"):
        assert word in text
    assert "mutant:" not in text
    assert " - " in shown(BAD, 80) + " "


def test_markdown_is_one_table() -> None:
    text = matrix.markdown(GOOD)
    assert text.startswith("**PASS: ")
    assert "seed 9" in text
    assert matrix.LEGEND in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 4
    # The borders of the cells, and not the bars of |p - q|.
    borders = {line.replace("\\|", "").count("|") for line in lines}
    assert borders == {len(GOOD.suites) + 5}
    assert "`a` | 412 | > 8k |  | The residual is \\|p - q\\| | vllm #1 |" in lines[3]
    assert "| `reference` | ok | ok |" in lines[2]
