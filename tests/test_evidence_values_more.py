"""Whole records of comparisons, sequences and lists of culprits, from their formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from evidence_cases import uniform_law
from evidence_records import lambda_of, same
from scipy import special, stats

from specverify import evidence
from specverify.evidence import accuracy_power as planning
from specverify.evidence import barnard
from specverify.evidence.accuracies import most_discordant
from specverify.evidence.eprocess import SequentialTest
from specverify.evidence.suspects import Suspect
from specverify.evidence.two_sample import _cell_terms


def test_two_tables_by_the_chi_square_tail() -> None:
    a, b = [120, 80, 60, 240], [260, 150, 190, 400]
    theirs = stats.chi2_contingency([a, b], lambda_="cressie-read", correction=False)
    harmonic = 500 * 1000 / 1500
    same(
        evidence.two_sample_test(a, b, alpha=1e-5, power=0.9),
        statistic="two-sample cressie-read",
        value=float(theirs.statistic),
        p_value=float(theirs.pvalue),
        method="chi-square",
        alpha=1e-5,
        trials_a=500,
        trials_b=1000,
        cells=4,
        detectable_tv=math.sqrt(lambda_of(4, 1e-5, 0.9) / (4 * harmonic)),
        power=0.9,
        permutations=0,
        merged_mass=0.0,
    )


def test_two_tables_of_two_cells_by_the_hypergeometric_law() -> None:
    law = stats.hypergeom(200, 75, 120)
    same(
        evidence.two_sample_test([52, 68], [23, 57], alpha=0.01),
        statistic="two-sample cressie-read",
        value=float(
            stats.chi2_contingency([[52, 68], [23, 57]], lambda_=2 / 3, correction=False).statistic
        ),
        p_value=2 * float(law.sf(51)),
        method="hypergeometric",
        alpha=0.01,
        trials_a=120,
        trials_b=80,
        cells=2,
        detectable_tv=math.sqrt(lambda_of(2, 0.01, 0.999) / (4 * 48)) + 1 / 96,
        power=0.999,
        permutations=0,
        merged_mass=0.0,
    )
    assert evidence.two_sample_test([30, 30], [30, 30], alpha=0.01).p_value == 1.0


def test_two_tables_in_the_far_tail() -> None:
    tables = ([60, 20, 19920], [20, 20, 19960]), ([60, 20, 920], [340, 380, 18280])
    for number, (a, b) in enumerate(tables):  # the larger tail is that of the first, the second
        tails = [
            float(stats.chi2_contingency([a, b], lambda_=name, correction=False).pvalue)
            for name in ("cressie-read", "log-likelihood")
        ]
        found = evidence.two_sample_test(a, b, alpha=1e-9)
        assert (max(tails) < 1e-4, tails.index(max(tails))) == (True, number)
        assert found.p_value == pytest.approx(tails[number], rel=1e-9, abs=0)


def test_the_terms_that_permutations_are_compared_by() -> None:
    arm, expected = np.array([0, 8, 27]), np.array([4.0, 1.0, 8.0])
    np.testing.assert_allclose(_cell_terms(arm, expected), [0, 24, 27 * 1.25], rtol=1e-12)


def test_tables_are_permuted_from_one_in_ten_thousand_on_and_up_to_numpys_limit() -> None:
    near = evidence.two_sample_test([30, 30, 30], [30, 31, 29], alpha=1e-4)
    assert (near.method, near.p_value) == ("permutation", 50 / near.permutations)
    half = np.array([2, 1, 2]) * 10**8
    assert evidence.two_sample_test(half, half, alpha=0.1).method == "chi-square"


def test_merged_cells_of_two_tables_have_a_mass() -> None:
    found = evidence.two_sample_test([90, 5, 5], [88, 7, 5], alpha=1e-5)
    assert (found.cells, found.merged_mass) == (2, pytest.approx(0.11))
    empty = evidence.two_sample_test([0, 0, 0, 0], [4, 3, 2, 1], alpha=0.1)
    assert (empty.cells, empty.value, empty.permutations) == (2, 0.0, 0)


def test_tables_of_one_cell_have_nothing_to_compare() -> None:
    found = evidence.two_sample_test([5], [7], alpha=0.1)
    assert (found.method, found.p_value, found.cells) == ("none", 1.0, 1)


def test_plans_for_two_tables() -> None:
    assert evidence.two_sample_trials_needed(4, 0.1, 1e-5, 0.9) == math.ceil(
        lambda_of(4, 1e-5, 0.9) / 0.02
    )
    assert evidence.two_sample_trials_needed(4, 0.01, 1e-5, 0.9) == math.ceil(
        lambda_of(4, 1e-5, 0.9) / 0.0002
    )
    assert evidence.two_sample_trials_needed(3, 0.9, 0.5, 0.51) == 1
    for tv in (0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5):
        n = evidence.two_sample_trials_needed(2, tv, 0.01, 0.9)
        assert evidence.two_sample_detectable(2, n - 1, n - 1, 0.01, 0.9) > tv
    for n in (50, 400):  # what n trials detect needs no more of them
        tv = evidence.two_sample_detectable(2, n, n, 0.01, 0.9)
        assert evidence.two_sample_trials_needed(2, tv, 0.01, 0.9) == n
    assert evidence.two_sample_detectable(4, 9, 9, 1e-5, 0.9) == 1.0
    assert evidence.two_sample_detectable(4, 300, 600, 1e-5, 0.9) == pytest.approx(
        math.sqrt(lambda_of(4, 1e-5, 0.9) / 800), rel=1e-9
    )


def test_two_accuracies_on_the_same_questions() -> None:
    b, c, n, z = 30, 12, 200, stats.norm.isf(0.05)

    def score(delta: float) -> float:
        """Tango 1998, equation (3), with his maximum-likelihood rate."""
        square, linear, rest = 2 * n, -b - c + (2 * n - b + c) * delta, -c * delta * (1 - delta)
        rate = (math.sqrt(linear**2 - 4 * square * rest) - linear) / (2 * square)
        return (b - c - n * delta) / math.sqrt(n * (2 * rate + delta * (1 - delta)))

    found = evidence.compare_paired(100, b, c, n, alpha=0.02, power=0.8, confidence=0.9)
    assert (score(found.low), score(found.high)) == (pytest.approx(z), pytest.approx(-z))
    same(
        found,
        test="McNemar",
        accuracy_a=0.65,
        accuracy_b=0.56,
        questions_a=200,
        questions_b=200,
        only_a=30,
        only_b=12,
        difference=0.09,
        low=found.low,
        high=found.high,
        confidence=0.9,
        p_value=2 * float(stats.binom.cdf(12, 42, 0.5)),
        alpha=0.02,
        detectable=found.detectable,
        power=0.8,
    )
    assert planning.paired_power(found.detectable, 0.21, n, 0.02) == pytest.approx(0.8, rel=1e-6)
    usual = evidence.compare_paired(100, b, c, n)
    assert (usual.alpha, usual.power, usual.confidence) == (0.05, 0.9, 0.95)


def test_two_accuracies_on_other_questions() -> None:
    found = evidence.compare_unpaired(30, 40, 20, 50, alpha=0.02, power=0.8, confidence=0.9)
    a, b = (stats.binomtest(x, n).proportion_ci(0.9, "wilson") for x, n in ((30, 40), (20, 50)))
    same(
        found,
        test="Barnard",
        accuracy_a=0.75,
        accuracy_b=0.4,
        questions_a=40,
        questions_b=50,
        only_a=None,
        only_b=None,
        difference=0.35,
        low=0.35 - math.hypot(0.75 - a.low, b.high - 0.4),
        high=0.35 + math.hypot(a.high - 0.75, 0.4 - b.low),
        confidence=0.9,
        p_value=barnard.p_value(30, 40, 20, 50),
        alpha=0.02,
        detectable=planning.unpaired_detectable(50 / 90, 40, 50, 0.02, 0.8),
        power=0.8,
    )
    assert not found.paired
    usual = evidence.compare_unpaired(30, 40, 20, 50)
    assert (usual.alpha, usual.power, usual.confidence) == (0.05, 0.9, 0.95)


def test_the_most_discordant_answers_by_trying_all() -> None:
    for gap, n, alpha in ((9, 40, 0.05), (6, 6, 0.05), (6, 7, 0.05), (6, 8, 0.2), (5, 100, 0.05)):
        lawful = [
            most
            for most in range(gap, n + 1, 2)
            if 2 * stats.binom.cdf((most - gap) // 2, most, 0.5) <= alpha
        ]
        assert most_discordant(gap, n, alpha) == max(lawful, default=None)
    assert most_discordant(1, 1, 0.99999) is None
    assert most_discordant(3, 3, 0.25) == 3  # 2 / 2^3, the level itself


def test_a_rate_at_every_look() -> None:
    x, n = 7, 30
    found = evidence.rate_sequence(x, n, 0.9)
    bound = special.betaln(7.5, 23.5) - special.betaln(0.5, 0.5) + math.log(0.1)
    for limit in (found.low, found.high):
        assert x * math.log(limit) + (n - x) * math.log1p(-limit) == pytest.approx(bound, rel=1e-9)
    same(found, estimate=7 / 30, low=found.low, high=found.high, confidence=0.9, trials=30)
    assert found.low < 7 / 30 < found.high
    assert evidence.rate_sequence(0, 0).estimate == 0.5


def test_a_mean_at_every_look() -> None:
    counts, values = np.array([3, 4, 13]), np.array([1.0, 2.0, 5.0])
    found = evidence.mean_sequence(counts, values, 0.9)
    mean = float(counts @ values) / 20
    same(found, estimate=mean, low=found.low, high=found.high, confidence=0.9, trials=20)
    bets = 0.5 ** np.arange(17)
    for limit, x in ((found.low, values - 1), (6 - found.high, 5 - values)):
        ratio = (x / 4) / ((limit - 1) / 4)
        capital = np.prod((1 + np.outer(bets, ratio - 1)) ** counts, axis=1).mean()
        assert capital == pytest.approx(2 / 0.1, rel=1e-6)


def test_a_certificate_at_every_look() -> None:
    sequence = evidence.CertificateSequence([0.5, 0.3, 0.2], planned=100, confidence=0.9)
    sequence.add([4, 4, 2])
    found = sequence.add([56, 14, 20])
    same(found, tv_observed=0.12, tv_upper=0.12 + evidence.tv_drift(100, 0.9, 100), confidence=0.9)
    assert evidence.CertificateSequence([1.0], planned=1).add([1]).confidence == 0.999


def rising(m: int, a: float) -> float:
    return math.lgamma(a + m) - math.lgamma(a) - m * math.log(a)


def dirichlet(counts: list[int], p: list[float]) -> float:
    """The module's formula, cell by cell."""
    live, n = sum(x > 0 for x in p), sum(counts)
    scales = [4.0**i for i in range(1, 8)]
    scales += [max(live - 1, 1) / (4 * tv**2) for tv in (0.3, 0.1, 0.03, 0.01, 0.003)]
    logs = [
        sum(rising(m, c * x) for m, x in zip(counts, p, strict=True) if m) - rising(n, c)
        for c in scales
    ]
    return float(special.logsumexp(logs) - math.log(12))


def test_an_e_process() -> None:
    p, counts = [0.4, 0.3, 0.2, 0.1], [9, 4, 11, 1]
    suspects = [Suspect("flat", uniform_law(4)), Suspect("turned", np.array(p[::-1]))]
    test = SequentialTest(p, alpha=0.01, suspects=suspects, pool_at=(50, 60, 100))
    full = dirichlet(counts, p)
    # 20 of 50 or 60 trials make the cells {0.1, 0.2, 0.3 | 0.4} or three, of 100 three
    tables = {each: evidence.pool(p, each) for each in (50, 60, 100)}
    groups = {tables[n].cells: tables[n] for n in (50, 60, 100) if tables[n].cells < 4}
    pooled = [
        dirichlet(np.bincount(g.index, counts).astype(int).tolist(), g.p.tolist())
        for g in groups.values()
    ]
    ratios = [float(np.array(counts) @ np.log(each.law / np.array(p))) for each in suspects]
    parts = full, special.logsumexp(pooled) - math.log(len(pooled)), special.logsumexp(ratios)
    parts = (full, float(parts[1]), float(parts[2]) - math.log(2))
    log_e = float(special.logsumexp(parts)) - math.log(3)
    same(
        test.add(counts),
        log_e=log_e,
        log_e_max=max(0.0, log_e),
        alpha=0.01,
        trials=25,
        log_full=full,
        log_pooled=parts[1],
        log_directed=parts[2],
        suspect="turned" if ratios[1] > ratios[0] else "flat",
        zero_hits=0,
    )
    assert evidence.dirichlet_log_e(counts, p) == pytest.approx(full, rel=1e-9)


def test_an_excluded_draw_is_infinite_evidence_for_every_bet_and_names_the_best_suspect() -> None:
    p = [0.4, 0.3, 0.2, 0.1, 0.0]
    suspects = [Suspect("far", np.array([0.1, 0.1, 0.4, 0.4, 0.0])), Suspect("near", np.array(p))]
    found = SequentialTest(p, alpha=0.01, suspects=suspects, pool_at=(50,)).add([5, 4, 2, 1, 3])
    assert found.log_full == found.log_pooled == found.log_directed == found.log_e == math.inf
    assert (found.suspect, found.zero_hits, found.trials) == ("near", 3, 15)


def test_an_alarm_is_raised_at_one_over_alpha_exactly() -> None:
    common = {"trials": 1, "zero_hits": 0, "suspect": None, "log_pooled": None}
    for log_e in (-math.log(0.05), math.nextafter(-math.log(0.05), 0)):
        one = evidence.AnytimeEvidence(
            log_e=0.0, log_e_max=log_e, alpha=0.05, log_full=0.0, log_directed=None, **common
        )
        two = evidence.TwoSampleAnytime(
            log_e=0.0, log_e_max=log_e, alpha=0.05, trials_a=1, trials_b=1
        )
        assert one.rejected == two.rejected == (log_e >= -math.log(0.05))
        assert one.p_value == two.p_value == pytest.approx(0.05)


def test_two_samplers_while_they_run() -> None:
    test = evidence.SequentialTwoSample(2, alpha=0.02)
    first = test.add([3, 1], [1, 4])
    assert first.log_e == pytest.approx(0, abs=1e-12)  # both guesses were one half
    batch, scales = (np.array([2, 2]), np.array([0, 5])), 4.0 ** np.arange(1, 11)
    pooled = np.array([4.5, 5.5]) / 10
    logs = []
    for c in scales:
        a, b = (np.array([3, 1]) + c * pooled) / (4 + c), (np.array([1, 4]) + c * pooled) / (5 + c)
        mixed = (4 * a + 5 * b) / 9
        logs.append(batch[0] @ np.log(a / mixed) + batch[1] @ np.log(b / mixed))
    log_e = float(special.logsumexp(logs)) - math.log(10)
    same(
        test.add(*batch),
        log_e=log_e,
        log_e_max=max(log_e, first.log_e_max),
        alpha=0.02,
        trials_a=8,
        trials_b=10,
    )


def test_a_batch_of_one_arm_alone_tells_nothing() -> None:
    test = evidence.SequentialTwoSample(2, alpha=0.02)
    before = test.add([3, 1], [1, 4]).log_e
    assert test.add([1, 0], [0, 0]).log_e == pytest.approx(before, abs=1e-12)
    assert test.add([0, 0], [0, 1]).log_e == pytest.approx(before, abs=1e-12)


def test_culprits() -> None:
    same(
        evidence.holm([0.6, 0.01, 0.9], 0.05),
        rule="holm",
        alpha=0.05,
        tests=3,
        culprits=(1,),
        adjusted=(1.0, 0.03, 1.0),
    )
    for name, rule in (("e-holm", evidence.e_holm), ("e-closed", evidence.e_closed),
                       ("e-bh", evidence.e_bh)):  # fmt: skip
        found = rule([5.0, -1.0], 0.04)
        assert (found.rule, found.alpha, found.tests, found.culprits) == (name, 0.04, 2, (0,))


def test_evidence_on_the_bound_itself_is_enough() -> None:
    assert evidence.holm([0.05], 0.05).culprits == (0,)
    for rule in (evidence.e_holm, evidence.e_closed, evidence.e_bh):
        assert rule([-math.log(0.05)], 0.05).culprits == (0,)
        assert rule([math.nextafter(-math.log(0.05), 0)], 0.05).culprits == ()


def test_equal_culprits_come_by_number() -> None:
    p = np.where(np.arange(200) % 3 == 0, 1e-9, 1e-6)
    order = (*range(0, 200, 3), *(i for i in range(200) if i % 3))
    assert evidence.holm(p, 0.05).culprits == order
    for rule in (evidence.e_holm, evidence.e_closed, evidence.e_bh):
        assert rule(-np.log(p), 0.05).culprits == order
