"""The calibration of docs/calibration.md, scaled down; and that it does find broken statistics."""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import calibrate
from calibration import (
    alarms,
    coverage,
    futility,
    journal,
    looks,
    null,
    pairs,
    power,
    rows,
    sampling,
    stopping,
    tails,
)
from calibration.worlds import LAWS, softmax, trials_for_fault, uniform, worst

from specverify.evidence import SequentialTest, goodness_of_fit

TINY = rows.Size(
    runs=100, power_runs=60, tables=1_000, streams=5, cells=32, look_cells=1_024, seed=1
)


def assert_kept(found):
    assert found
    wrong = [f"{row.name}, {row.setting}: {row.observed}" for row in found if row.ok is False]
    assert not wrong


@pytest.mark.parametrize("index", range(len(null.nulls())))
def test_p_values_are_valid_under_the_null(index):
    assert_kept(null.measure(index, TINY))


def test_sampled_p_values_agree_with_enumerated_ones(monkeypatch):
    monkeypatch.setattr(sampling, "REPEATS", 1)
    assert len(sampling.tasks(TINY)) == 10
    assert_kept(sampling.measure("very skewed", "Cressie-Read", TINY))


@pytest.mark.parametrize("module", [coverage, power, tails, alarms, pairs, futility, stopping])
def test_promises_are_kept(module):
    size = dataclasses.replace(TINY, runs=30) if module is stopping else TINY
    for task in module.tasks(size):
        assert_kept(task())


def test_a_look_is_timed_and_not_judged():
    (row,) = looks.tasks(TINY)[0]()
    assert row.verdict == "shown"


def _one(runs):
    """A task that can be told by its arguments."""
    return [rows.counted("group", "one", f"{runs} runs", 0, runs, 0.5)]


def _interrupted():
    raise KeyboardInterrupt


def test_an_interrupted_run_loses_no_finished_row(tmp_path):
    path = tmp_path / "page.rows.jsonl"
    tasks = [functools.partial(_one, 10), functools.partial(_one, 20), _interrupted]
    with pytest.raises(KeyboardInterrupt):
        list(journal.measured(tasks, 1, journal.Journal(path)))
    with path.open("a", encoding="utf-8") as file:
        file.write('["a line that was cut o')
    known = journal.Journal(path)
    again = [functools.partial(_one, 20), functools.partial(_one, 30), functools.partial(_one, 10)]
    assert [known.known(task) is not None for task in again] == [True, False, True]
    found = {index: said for index, said, _ in journal.measured(again, 1, known)}
    assert [found[i][0].setting for i in range(3)] == ["20 runs", "30 runs", "10 runs"]
    known.remove()
    assert not path.exists()


def test_rows_of_other_code_are_measured_again(tmp_path, monkeypatch):
    path, task = tmp_path / "page.rows.jsonl", functools.partial(_one, 10)
    list(journal.measured([task], 1, journal.Journal(path)))
    assert journal.Journal(path).known(task)
    monkeypatch.setattr(journal, "_code", lambda: "changed")
    assert journal.Journal(path).known(task) is None


def test_single_figures_of_the_size_are_options():
    size = calibrate.sized(calibrate._options(["--runs", "70", "--streams", "3"]))
    assert (size.runs, size.power_runs, size.streams) == (70, 70, 3)
    assert (size.tables, size.costly_runs) == (rows.FULL.tables, 35)


def test_unpooled_chi_square_is_found_to_be_invalid():
    """On a law with rare cells X2 without pooling rejects at 0.001 in 7 % of the null runs."""
    p, n = softmax(1024), 10_000
    tables = np.random.default_rng(1).multinomial(n, p, size=400)
    values = stats.chi2.sf(((tables - n * p) ** 2 / (n * p)).sum(axis=1), len(p) - 1)
    assert (
        null.judged(null.Null("X2", "unpooled", lambda _rng, _runs: values, True), values).ok
        is False
    )


def test_p_values_that_are_too_good_are_found():
    """Shared or quasi-random draws fit too well: p-values near 1, no false alarm at all."""
    values = 1 - np.random.default_rng(2).random(400) * 0.5
    named = null.Null("too good", "", lambda _rng, _runs: values, True)
    assert null.judged(named, values).ok is False
    assert null.judged(dataclasses.replace(named, uniform=False), values).ok is True


def test_a_fixed_test_looked_at_again_and_again_is_found_to_break_alpha():
    """What an e-process is for: chi-square at 0.1 at every look alarms in far more streams."""
    rng, p, alarmed = np.random.default_rng(3), uniform(4), 0
    for _ in range(200):
        counts, seen = np.zeros(4), False
        for new in coverage.looks(rng, p):
            counts = counts + new
            n = counts.sum()
            seen |= n >= 20 and stats.chi2.sf(((counts - n / 4) ** 2 / (n / 4)).sum(), 3) <= 0.1
        alarmed += seen
    row = rows.counted("", "", "", alarmed, 200, 0.1)
    assert row.verdict == "NOT"


def test_an_interval_that_is_too_short_is_found():
    """Wald's interval at a rate of 0.03 and 100 trials covers 0.9 in name only."""
    hits = np.random.default_rng(4).binomial(100, 0.03, size=1_000)
    reach = 1.645 * np.sqrt(hits / 100 * (1 - hits / 100) / 100)
    missed = int((np.abs(hits / 100 - 0.03) > reach).sum())
    assert rows.counted("", "", "", missed, 1_000, 0.1).ok is False


def test_a_far_tail_that_is_too_heavy_is_found(monkeypatch):
    """Cressie-Read without its guard, three cells of expectation 20 beside a large one."""
    n = 10**5
    p = np.array([20, 20, 20, n - 60]) / n
    monkeypatch.setattr(goodness_of_fit, "FAR_TAIL", 0.0)
    found = tails.ratios(p, n, 3_000, np.random.default_rng(8))
    assert [tails.judged("", 1e-9, 4, 3_000, answer, False).ok for answer in found][1] is False


def test_a_plan_with_half_of_the_trials_is_found():
    p, n = uniform(64), 4303 // 2
    tables = np.random.default_rng(5).multinomial(n, worst(p, 0.1), size=100)
    values = stats.chi2.sf(((tables - n * p) ** 2 / (n * p)).sum(axis=1), 63)
    row = rows.counted("", "", "", int((values <= 1e-9).sum()), 100, 0.999, least=True)
    assert row.ok is False


def test_bounds_are_exact_and_two_sided():
    for runs, rate in ((1_000, 0.1), (20_000, 1e-3)):
        high, low = rows.at_most(rate, runs), rows.at_least(rate, runs)
        assert stats.binom.sf(high, runs, rate) <= rows.ERROR < stats.binom.sf(high - 1, runs, rate)
        assert stats.binom.cdf(low - 1, runs, rate) <= rows.ERROR < stats.binom.cdf(low, runs, rate)
    assert math.exp(-2 * 500 * rows.band(500) ** 2) == pytest.approx(rows.ERROR)


def test_excess_is_that_of_the_distribution_function():
    above, below = rows.excess(np.array([0.2, 0.2, 0.9, 1.0]))
    assert above == pytest.approx(0.3)  # half of the values at 0.2
    assert below == pytest.approx(0.4)  # still half just before 0.9


def test_the_fixed_test_finds_a_fault_that_it_was_told():
    p = LAWS["softmax"](64)
    faulty = worst(p, 0.1)
    n = trials_for_fault(p, faulty, 1e-6, 0.9)
    assert trials_for_fault(p, faulty, 1e-6, 0.999) > n > 100


def test_a_stream_that_is_faulty_alarms():
    test = SequentialTest(uniform(4), alpha=0.01)
    found = [test.add(new) for new in coverage.looks(np.random.default_rng(6), softmax(4))]
    assert found[-1].rejected


def test_the_page_says_what_it_rests_on(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(calibrate, "QUICK", TINY)
    page = tmp_path / "calibration.md"
    arguments = ["--quick", "--only", "looks", "--seed", "7", "--write", str(page)]
    assert calibrate.main(arguments) == 0
    text = page.read_text(encoding="utf-8")
    for part in ("a **quick** run", "--only looks", "numpy", "cores", "seed 7", "| shown |"):
        assert part in text
    assert "2 rows, 0 NOT as promised" in capsys.readouterr().out


def test_a_broken_promise_is_the_exit_code(monkeypatch, capsys):
    broken = rows.counted("Group", "name", "setting", 99, 100, 0.1)

    class Section:
        @staticmethod
        def tasks(_size):
            return [lambda: [broken]]

    monkeypatch.setitem(calibrate.SECTIONS, "looks", Section)
    assert calibrate.main(["--only", "looks"]) == 1
    assert "| NOT |" in capsys.readouterr().out
