"""Every table is a law with cells that every trial falls into, and an exact simulation follows it.

The simulation is a few lines of numpy, written from Leviathan et al. 2023, Algorithm 1, and shares
nothing with the reference sampler.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scipy import stats

from specverify.cases import Case, FloatArray, RequestSpec, TableRequest, make_case
from specverify.checks import tables as tables_module
from specverify.checks.experiment import Settings
from specverify.checks.judge import Question, judge_table
from specverify.checks.tables import Table, tables_of
from specverify.checks.verdict import Family, Status
from specverify.contract import AcceptanceRule, Capabilities
from specverify.mutants import MUTANTS
from specverify.reference import reference
from specverify.subjects import Subject
from specverify.trials import IntArray, Outcomes, run_trials

r = RequestSpec
ALL = (Family.LAW, Family.COUPLING, Family.INDEPENDENCE)
ALPHA = 1e-7
CAPABLE = Capabilities(placeholders=True, filtering=True, exclusion=True)
MATCH = dataclasses.replace(CAPABLE, acceptance=AcceptanceRule.MATCH)
CASES = {
    "dense": make_case("tables/dense", 3, (r(drafts=2), r(drafts=1)), True),
    "one-hot": make_case("tables/one-hot", 4, (r(drafts=2, temperature=0.75),), False),
    "placeholder": make_case(
        "tables/placeholder", 3, (r(drafts=3, placeholders=frozenset({1})), r(drafts=0)), True
    ),
    "filtered": make_case("tables/filtered", 5, (r(drafts=2, top_k=2), r(drafts=1)), True),
    "greedy": make_case(
        "tables/greedy", 3, (r(drafts=1, temperature=0.0), r(drafts=2, drafting="greedy")), True
    ),
    "two tokens": make_case("tables/two", 2, (r(drafts=3), r(drafts=2, temperature=0.0)), True),
}


def draw(rng: np.random.Generator, rows: FloatArray) -> IntArray:
    """One token from each row."""
    cdf = np.cumsum(rows, axis=1)
    point = rng.random(rows.shape[0]) * cdf[:, -1]
    return np.asarray((cdf <= point[:, None]).sum(axis=1))


def simulate_request(
    rng: np.random.Generator, request: TableRequest, trials: int, one_hot: bool
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Drafts, accepted lengths, last tokens and completions of one request, trial after trial."""
    p, q = request.target_tables("reference"), request.draft_tables()
    vocab, k = p[0].shape[1], request.num_drafts
    drafts = np.zeros((trials, k), dtype=np.int64)
    prefix = np.zeros(trials, dtype=np.int64)
    accepted, last = np.zeros(trials, dtype=np.int64), np.full(trials, -1)
    open_ = np.ones(trials, dtype=bool)
    for j in range(k):
        drafts[:, j] = draw(rng, q[j][prefix])
        row, law = p[j][prefix], q[j][prefix]
        if one_hot:
            law = np.eye(vocab)[drafts[:, j]]
        here = np.arange(trials), drafts[:, j]
        coin = rng.random(trials) * law[here] < row[here]
        left = np.clip(row - law, 0, None)
        if j in request.placeholders:
            coin, left = np.zeros(trials, dtype=bool), row
        left = np.where(left.sum(axis=1, keepdims=True) > 0, left, row)
        last = np.where(open_ & ~coin, draw(rng, left), last)
        open_ &= coin
        accepted += open_
        prefix = prefix * vocab + drafts[:, j]
    last = np.where(open_, draw(rng, p[k][prefix]), last)
    done = np.zeros((trials, k + 1), dtype=np.int64)
    prefix = np.zeros(trials, dtype=np.int64)
    for j in range(k + 1):
        own = draw(rng, p[j][prefix])
        done[:, j] = np.where(accepted > j, drafts[:, min(j, k - 1)] if k else 0, own)
        done[:, j] = np.where(accepted == j, last, done[:, j])
        prefix = prefix * vocab + done[:, j]
    drafts[:, sorted(request.placeholders)] = -1
    return drafts, accepted, last, done


def simulate(case: Case, trials: int, seed: int, one_hot: bool | None = None) -> Outcomes:
    rng = np.random.default_rng(seed)
    bare = not case.dense if one_hot is None else one_hot
    parts = [simulate_request(rng, request, trials, bare) for request in case.requests]
    return Outcomes(
        first_trial=0,
        drafts=[part[0] for part in parts],
        accepted=np.stack([part[1] for part in parts], axis=1),
        last=np.stack([part[2] for part in parts], axis=1),
        completed=[part[3] for part in parts],
    )


def p_value(table: Table, counts: IntArray) -> float:
    """Pearson's test on the cells that expect ten or more, the others together in one."""
    law = table.law() / table.law().sum()
    if counts[law == 0].any():
        return 0.0
    order = np.argsort(law)
    expected, observed = law[order] * counts.sum(), counts[order].astype(float)
    # The rarest cells together are the first one, and never fewer than the first alone.
    rare = max(1, int((np.cumsum(expected) < 10).sum()) + 1)
    wanted = np.append(expected[:rare].sum(), expected[rare:])
    seen = np.append(observed[:rare].sum(), observed[rare:])
    if wanted.shape[0] < 2:
        return 1.0
    return float(stats.chi2.sf(((seen - wanted) ** 2 / wanted).sum(), wanted.shape[0] - 1))


def tally(table: Table, outcomes: Outcomes) -> IntArray:
    index = table.index(outcomes)
    assert index.min() >= 0
    assert index.max() < table.cells
    return np.bincount(index, minlength=table.cells)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("capabilities", [CAPABLE, MATCH], ids=["ratio", "match"])
def test_tables_are_laws_with_names_of_their_own(name: str, capabilities: Capabilities) -> None:
    case = CASES[name]
    found = tables_of(case, ALL, capabilities)
    assert len({table.name for table in found}) == len(found)
    for table in found:
        law = table.law()
        assert law.shape == (table.cells,), table.name
        assert law.dtype == np.float64
        assert law.min() >= 0, table.name
        assert law.max() <= 1, table.name
        assert law.sum() == pytest.approx(1.0, abs=1e-9), table.name
        assert len(table.axes) == len(table.shape)
        assert len({table.label(cell) for cell in range(table.cells)}) == table.cells


@pytest.mark.parametrize("name", CASES)
def test_exact_simulation_follows_every_table(name: str) -> None:
    case = CASES[name]
    outcomes = simulate(case, 20_000, seed=1)
    for table in tables_of(case, ALL, CAPABLE):
        assert p_value(table, tally(table, outcomes)) > ALPHA, table.name


def test_exact_simulation_of_match_follows_the_tables_of_match() -> None:
    case = CASES["dense"]
    outcomes = simulate(case, 20_000, seed=2, one_hot=True)
    for table in tables_of(case, ALL, MATCH):
        assert p_value(table, tally(table, outcomes)) > ALPHA, table.name
    ratio = tables_of(case, (Family.COUPLING,), CAPABLE)
    assert min(p_value(table, tally(table, outcomes)) for table in ratio) < ALPHA


def counts_of(name: str, case: Case, families: tuple[Family, ...], trials: int = 20_000):  # type: ignore[no-untyped-def]
    """Tables of a case with what a mutant (or the reference) made of them."""
    sampler = reference if name == "reference" else MUTANTS[name].build()
    subject = Subject.of(sampler, name)
    found = tables_of(case, families, subject.capabilities)
    counts = run_trials(subject, case, found, root_seed=3, trials=trials)
    return {table.name: (table, counts[table.name]) for table in found}


@pytest.mark.parametrize(
    ("mutant", "family"),
    [
        ("recover-from-target", Family.LAW),
        ("ratio-inverted", Family.LAW),
        ("row-plus-one", Family.LAW),
        ("q-dropped", Family.COUPLING),
        ("always-reject-recover-p", Family.COUPLING),
        ("reject-some-recover-matching", Family.COUPLING),
    ],
)
def test_a_real_bug_breaks_its_family(mutant: str, family: Family) -> None:
    broken = counts_of(mutant, CASES["dense"], (family,))
    assert min(p_value(*pair) for pair in broken.values()) < ALPHA
    right = counts_of("reference", CASES["dense"], (family,))
    assert min(p_value(*pair) for pair in right.values()) > ALPHA


def test_shared_coins_break_independence() -> None:
    """One stream for all rows of a call: the first tokens of neighbouring trials go together."""
    question = Question(
        suite="s",
        case="c",
        settings=Settings(alpha=1e-9),
        planned=20_000,
        trials=20_000,
        requested_tv=0.2,
    )
    for name, broken in (("coin-same-all-rows", True), ("reference", False)):
        found = counts_of(name, CASES["dense"], (Family.INDEPENDENCE,)).values()
        statuses = {judge_table(table, counts, question).status for table, counts in found}
        assert (Status.FAIL in statuses) is broken


def test_requests_that_copy_each_other_break_independence() -> None:
    case = CASES["dense"]
    outcomes = simulate(case, 20_000, seed=4)
    outcomes.completed[1][:, 0] = outcomes.completed[0][:, 0]
    found = {table.name: table for table in tables_of(case, (Family.INDEPENDENCE,), CAPABLE)}
    beside = found["requests 0 and 1: first tokens"]
    assert p_value(beside, tally(beside, outcomes)) < ALPHA
    across = found["trials t and t + 1: first tokens of request 0"]
    assert p_value(across, tally(across, outcomes)) > ALPHA
    outcomes.completed[0][1::2, 0] = outcomes.completed[0][::2, 0]
    assert p_value(across, tally(across, outcomes)) < ALPHA


def test_which_tables_a_case_has() -> None:
    names = [table.name for table in tables_of(CASES["dense"], ALL, CAPABLE)]
    assert names[:7] == [
        "request 0: token 0",
        "request 0: token 1",
        "request 0: token 2",
        "request 0: tokens 0-1",
        "request 0: tokens 1-2",
        "request 0: joint of 3 tokens",
        "request 1: token 0",
    ]
    assert "request 1: joint of 2 tokens" in names
    assert "request 0: bonus" in names
    assert "request 0: last token after 1 accepted" in names
    assert "request 0: recovered at 1 by draft" in names
    families = [table.family for table in tables_of(CASES["dense"], ALL, CAPABLE)]
    assert [families.count(family) for family in ALL] == [9, 16, 2]


def test_placeholders_have_no_draft_tables() -> None:
    names = [t.name for t in tables_of(CASES["placeholder"], (Family.COUPLING,), CAPABLE)]
    assert "request 0: draft 0 accepted" in names
    assert "request 0: draft 1 accepted" not in names
    assert not any(name.startswith("request 1") for name in names)


def test_undeclared_rules_have_no_coupling_tables() -> None:
    undeclared = dataclasses.replace(CAPABLE, acceptance=AcceptanceRule.UNDECLARED)
    assert tables_of(CASES["dense"], (Family.COUPLING,), undeclared) == ()


def test_large_vocabularies_keep_to_small_tables() -> None:
    case = make_case("tables/large", 70, (r(drafts=1), r(drafts=1)), True)
    assert tables_module.JOINT_CELLS < 70**2
    found = tables_of(case, ALL, CAPABLE)
    assert max(table.cells for table in found) <= tables_module.JOINT_CELLS
    assert not [table for table in found if table.family is Family.INDEPENDENCE]
    assert [t.name for t in found if t.family is Family.LAW] == [
        f"request {i}: token {j}" for i in range(2) for j in range(2)
    ]


def test_labels() -> None:
    found = {table.name: table for table in tables_of(CASES["dense"], ALL, CAPABLE)}
    assert found["request 0: tokens 0-1"].label(5) == "token 1, then 2"
    assert found["request 0: accepted length"].label(2) == "accepted 2"
    recovered = found["request 0: recovered at 0 by draft"]
    assert recovered.label(7) == "draft 2, recovered 1"
    assert recovered.label(9) == "any other outcome"


def test_tables_are_made_once_for_all_subjects_of_a_kind() -> None:
    again = dataclasses.replace(CAPABLE, batched=False, devices=("cuda",))
    assert tables_of(CASES["dense"], ALL, CAPABLE) is tables_of(CASES["dense"], ALL, again)
    other = dataclasses.replace(CAPABLE, convention="vllm")
    assert tables_of(CASES["dense"], ALL, CAPABLE) is not tables_of(CASES["dense"], ALL, other)
    law = tables_of(CASES["dense"], ALL, CAPABLE)[0].law
    assert law() is law()


def test_a_law_never_passes_one_by_an_ulp() -> None:
    """With q = p every draft is accepted, and its probability adds up to 1 and perhaps an ulp."""
    target = make_case("tables/equal", 5, (r(drafts=1),), True).requests[0].target
    for shift in range(40):
        moved = tuple(table + 0.01 * shift * table.abs() for table in target)
        request = TableRequest(target=moved, draft=())
        law = request.target_tables("reference")[0]
        equal = dataclasses.replace(request, draft=(torch.from_numpy(law),))
        case = Case(name="equal", requests=(equal,), dense=True)
        for table in tables_of(case, (Family.COUPLING,), CAPABLE):
            assert table.law().min() >= 0
            assert table.law().max() <= 1
