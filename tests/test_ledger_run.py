"""Runs that share a ledger: what is reserved, recorded, added up, and said."""

from __future__ import annotations

import dataclasses
import functools
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ledger_runs import ALPHA, FIRST, PAIRS, REFERENCE, TOY, accounts, experiment, run, settings

from specverify import replay
from specverify._ledger_certificate import account_certificate
from specverify._options import RunOptions, prepare_ledger
from specverify._runner import answer
from specverify.cases import RequestSpec, make_case
from specverify.checks.account import Shard, group_of, subject_version, with_account
from specverify.checks.experiment import Suite
from specverify.checks.statistical import budget
from specverify.checks.verdict import ACCOUNT_STATISTIC, Family, Status, Verdict
from specverify.checks.watch import TableWatch, looking_alpha
from specverify.checks.watched_trials import watch_trials
from specverify.contract import Capabilities, Emission, sampler
from specverify.evidence import SequentialTest, tv_drift
from specverify.ledger import Account, Ledger, SeedRange, Totals
from specverify.mutants import MUTANTS
from specverify.reference import reference
from specverify.results import Outcome
from specverify.subjects import Subject
from specverify.trials import block_size, run_trials


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "nights.ledger")


def test_a_second_run_goes_on_where_the_first_ended_and_everything_adds_up(path):
    first, second = run(path), run(path)
    trials = budget(settings(), 0.1)[1]
    assert {v.status for v in [*first.values(), *second.values()]} == {Status.PASS}
    assert {v.first_trial for v in first.values()} == {0}
    assert {v.first_trial for v in second.values()} == {trials}
    one, two = first[FIRST], second[FIRST]
    assert (one.trials, two.trials) == (trials, trials)
    assert (one.account_trials, two.account_trials) == (trials, 2 * trials)
    assert one.account_log_e == pytest.approx(one.log_e)
    assert two.account_certified < one.account_certified < 1
    assert first[PAIRS].log_e is first[PAIRS].account_log_e is None
    assert second[PAIRS].account_certified < first[PAIRS].account_certified

    case = TOY.make()
    tables = TOY.tables(case, REFERENCE.capabilities)
    counts = run_trials(REFERENCE, case, tables, root_seed=0, trials=2 * trials)
    stored = accounts(path)
    assert {account.table for account, _ in stored} == counts.keys()
    for account, totals in stored:
        assert np.array_equal(totals.counts, counts[account.table])
        assert totals.ranges == (SeedRange(0, 0, 2 * trials),)
        assert account.group.version == "1.0"


def test_the_certificate_of_an_account_is_the_bound_for_every_look(path):
    run(path)
    last = run(path)[FIRST]
    ((account, totals),) = accounts(path, "request 0: token 0")
    with Ledger.open(path, read_only=True) as ledger:
        law = ledger.law(account)
    observed = 0.5 * np.abs(totals.counts / totals.entries - law).sum()
    # The drift of all nights together, at the number of trials fixed in the documentation.
    planned = (30_000, 300_000, 3_000_000, 30_000_000)
    expected = observed + min(tv_drift(totals.entries, 1 - 0.001 / 4, at) for at in planned)
    assert last.account_certified == pytest.approx(expected, rel=1e-12)
    assert last.confidence == 0.999
    empty = account_certificate(np.zeros(4, dtype=np.int64), np.full(4, 0.25), 0.999)
    assert (empty.tv_observed, empty.tv_upper) == (0.0, 1.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"capabilities": dataclasses.replace(REFERENCE.capabilities, dtypes=("float32",))},
        {"version": "1.1"},
        {"name": "another"},
    ],
)
def test_another_subject_opens_another_account(path, changes):
    run(path)
    other = run(path, dataclasses.replace(REFERENCE, **changes))
    trials = budget(settings(), 0.1)[1]
    assert {v.account_trials for v in other.values()} == {trials}
    assert {v.first_trial for v in other.values()} == {0}
    assert len(accounts(path, "request 0: token 0")) == 2


def test_a_sampler_without_a_version_goes_by_its_source(path):
    subject = dataclasses.replace(REFERENCE, version=None)
    assert subject_version(subject).startswith("sha256:")
    run(path, subject)
    assert accounts(path)[0][0].group.version == subject_version(subject)
    typed = eval("lambda batch: None")
    options = RunOptions(sampler="typed", ledger=Path(path))
    with pytest.raises(ValueError, match=r"^ledger: 'typed' cannot be told by a version"):
        prepare_ledger(options, Subject("typed", typed, Capabilities()))


def test_recorded_rows_of_another_file_are_another_case(path):
    """Trials are drawn by the name of the case, which for recorded rows holds their digest."""
    toy = experiment()
    requests = (RequestSpec(drafts=1),)
    other = dataclasses.replace(
        toy, make=functools.partial(make_case, "toy/0123abcd/plain", 4, requests, True)
    )
    run(path, toy=toy)
    run(path, toy=other)
    assert {account.group.case for account, _ in accounts(path)} == {"plain", "0123abcd/plain"}


def test_a_sampler_seeded_by_the_call_goes_on_at_a_whole_block(path):
    capabilities = dataclasses.replace(REFERENCE.capabilities, per_request_seeds=False)
    subject = dataclasses.replace(REFERENCE, capabilities=capabilities)
    block = block_size(TOY.make())
    trials = budget(settings(), 0.1)[1]
    assert trials % block
    toy = experiment(Family.LAW)
    first, second = run(path, subject, toy), run(path, subject, toy)
    assert first[FIRST].first_trial == 0
    assert second[FIRST].first_trial == -(-trials // block) * block
    assert second[FIRST].account_trials == 2 * trials


def test_a_run_that_dies_loses_its_shard_alone(path):
    run(path)
    case = TOY.make()
    group = group_of(REFERENCE, "toy", "plain", "cpu")
    trials = budget(settings(), 0.1)[1]
    code = (
        f"import os, sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from ledger_runs import REFERENCE, TOY, settings\n"
        "def dying(*given):\n"
        "    if given[0] > 0: os.kill(os.getpid(), 9)\n"
        "TOY.run(REFERENCE, settings(sys.argv[1]), dying)\n"
    )
    here = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", code, path], cwd=here, check=False)
    assert done.returncode == -9
    third = run(path)
    assert third[FIRST].first_trial == 2 * trials
    assert third[FIRST].account_trials == 2 * trials
    ((account, totals),) = accounts(path, "request 0: token 0")
    assert totals.ranges == (SeedRange(0, 0, trials), SeedRange(0, 2 * trials, 3 * trials))
    assert account.group == group
    counts = sum(
        run_trials(REFERENCE, case, [table], root_seed=0, trials=trials, first_trial=first)[
            table.name
        ]
        for table in TOY.tables(case, REFERENCE.capabilities)
        if table.name == account.table
        for first in (0, 2 * trials)
    )
    assert np.array_equal(totals.counts, counts)


def test_a_fault_of_the_sampler_says_where_and_records_nothing(path):
    run(path)

    @sampler(REFERENCE.capabilities)
    def broken(batch):
        return Emission(reference(batch).token_ids, reference(batch).num_emitted * 0 + 9)

    subject = dataclasses.replace(REFERENCE, sampler=broken)
    (verdict,) = run(path, subject).values()
    trials = budget(settings(), 0.1)[1]
    assert (verdict.status, verdict.first_trial) == (Status.FAIL, trials)
    assert {totals.shards for _, totals in accounts(path)} == {1}


# What no single run sees ------------------------------------------------------------------------


def slightly_wrong(path, nights, **changes):
    """Runs of a sampler that is wrong by too little for one night."""
    subject = Subject("slight", MUTANTS["leak-5-percent"].build(), REFERENCE.capabilities, "1.0")
    return [run(path, subject, experiment(Family.LAW), **changes) for _ in range(nights)]


def test_many_runs_together_reject_what_no_single_run_rejects(path):
    nights = slightly_wrong(path, 12, tv=0.1, alpha=1e-9)
    failed = [night for night in nights if any(v.status is Status.FAIL for v in night.values())]
    assert failed
    night = failed[0]
    assert night is not nights[0]
    bad = [v for v in night.values() if v.status is Status.FAIL]
    needed = math.log(4 / 1e-9)  # a quarter of the test's alpha is the account's
    for verdict in bad:
        assert verdict.statistic == ACCOUNT_STATISTIC
        assert verdict.account_log_e >= needed > verdict.log_e
        assert verdict.value == verdict.account_log_e
        assert verdict.p_value == math.exp(-verdict.account_log_e)
        assert "the evidence of all" in verdict.reason
        assert "this run alone does not reject" in verdict.reason
        assert verdict.alpha == 1e-9
    # The same shards by themselves pass: the failure is nobody's but the account's.
    alone = run(None, Subject("slight", MUTANTS["leak-5-percent"].build(),
                              REFERENCE.capabilities, "1.0"),
                experiment(Family.LAW), tv=0.1, alpha=1e-9,
                first_trial=bad[0].first_trial)  # fmt: skip
    assert {v.status for v in alone.values()} == {Status.PASS}


def test_the_evidence_of_an_account_is_the_mean_of_two_lawful_bets(path):
    nights = slightly_wrong(path, 5, tv=0.1)
    case = TOY.make()
    (table,) = (t for t in TOY.tables(case, REFERENCE.capabilities) if t.name in FIRST)
    subject = Subject("slight", MUTANTS["leak-5-percent"].build(), REFERENCE.capabilities, "1.0")
    trials = nights[-1][FIRST].account_trials
    (counts,) = run_trials(subject, case, [table], root_seed=0, trials=trials).values()
    law = table.law()
    bet = SequentialTest(law, alpha=ALPHA, suspects=table.suspects(law)).add(counts).log_e
    product = sum(night[FIRST].log_e for night in nights)
    expected = np.logaddexp(bet, product) - math.log(2)
    assert nights[-1][FIRST].account_log_e == pytest.approx(expected)
    # Going on beats beginning anew: it pays for not knowing the deviation once.
    assert bet > product


def test_a_right_sampler_gains_no_evidence_against_itself(path):
    nights = [run(path, toy=experiment(Family.LAW), tv=0.3) for _ in range(12)]
    assert {v.status for night in nights for v in night.values()} == {Status.PASS}
    assert max(v.account_log_e for v in nights[-1].values()) < 3


def test_accounts_of_a_right_sampler_fail_as_seldom_as_promised():
    """At a looking share of 0.1, by Ville's inequality at most a tenth of accounts ever fail."""
    (table,) = (t for t in TOY.tables(TOY.make(), REFERENCE.capabilities) if t.name in FIRST)
    given = settings("some.ledger", alpha=0.4)
    assert looking_alpha(given) == 0.1
    rng, law, accused = np.random.default_rng(20261130), table.law(), 0
    for _ in range(200):
        counts, log_e, failed = np.zeros(4, dtype=np.int64), 0.0, False
        for shards in range(1, 9):
            watch = TableWatch(table, given, 1)
            watch.look(rng.multinomial(300, law), last=True)
            counts, log_e = counts + watch.counts, log_e + watch.log_e
            totals = Totals(
                counts=counts, trials=int(counts.sum()), entries=int(counts.sum()), ranges=(),
                shards=shards, log_e=log_e,
            )  # fmt: skip
            verdict = Verdict(
                suite="s", case="c", check="k", family=Family.LAW, status=Status.PASS, reason=""
            )
            failed |= with_account(verdict, watch, totals, given).status is Status.FAIL
        accused += failed
    # 20 are allowed on average; 36 or more would have probability 4e-4 if they were that many.
    assert accused < 36


def test_the_alpha_of_a_test_pays_for_its_looks_its_account_and_its_final_test():
    plain = looking_alpha(settings())
    assert plain == ALPHA / 2
    assert looking_alpha(settings("some.ledger")) == plain / 2
    # A replay of a shard looks as the run did.
    assert looking_alpha(settings(first_trial=0)) == plain / 2


# Replays ----------------------------------------------------------------------------------------


def test_a_failure_in_a_ledger_is_replayed_at_its_own_trials_and_writes_nothing(path):
    toy = experiment(Family.LAW)
    subject = Subject("bad", MUTANTS["recover-from-target"].build(), REFERENCE.capabilities, "1")
    run(path, subject, toy)
    options = RunOptions(sampler="mutant:recover-from-target", tv=0.1, ledger=Path(path))
    found = answer(toy, subject, options.settings(ALPHA))
    stamped = replay.stamped(found, options, ALPHA, None)
    bad = next(v for v in stamped.verdicts if v.status is Outcome.FAIL)
    assert bad.first_trial > 0
    token = replay.ReplayToken.decode(bad.replay)
    assert token.first_trial == bad.first_trial
    again = token.options()
    assert (again.ledger, again.settings(ALPHA).ledger) == (None, None)
    before = accounts(path)
    suites = {"toy": Suite("toy", "", (toy,))}
    (verdict,) = replay.rerun(token, again, suites).verdicts
    keep = ("status", "trials", "value", "p_value", "tv_observed", "worst", "looks", "first_trial")
    assert [getattr(verdict, f) for f in keep] == [getattr(bad, f) for f in keep]
    assert verdict.replay == bad.replay
    after = accounts(path)
    assert [t.shards for _, t in after] == [t.shards for _, t in before]


def test_what_only_all_runs_together_show_has_no_replay(path):
    options = RunOptions(sampler="mutant:leak-5-percent", tv=0.1, ledger=Path(path))
    subject = Subject("slight", MUTANTS["leak-5-percent"].build(), REFERENCE.capabilities, "1.0")
    for _ in range(12):
        found = answer(experiment(Family.LAW), subject, options.settings(1e-9))
        stamped = replay.stamped(found, options, 1e-9, None)
        bad = [v for v in stamped.verdicts if v.status is Outcome.FAIL]
        if bad:
            break
    assert bad
    assert {v.replay for v in bad if v.statistic == ACCOUNT_STATISTIC} == {None}


def test_watching_from_a_later_trial_counts_its_looks_from_the_start():
    case = TOY.make()
    tables = TOY.tables(case, REFERENCE.capabilities)
    shifted, done = watch_trials(REFERENCE, case, tables, settings(), 4000, None, first_trial=6000)
    plain = run_trials(REFERENCE, case, tables, root_seed=0, trials=4000, first_trial=6000)
    assert done == 4000
    for watch in shifted:
        assert np.array_equal(watch.counts, plain[watch.table.name])
        assert [look.trials for look in watch.looks][-1:] in ([4000], [])


def test_a_shard_is_rounded_up_to_whole_steps(path):
    group = group_of(REFERENCE, "toy", "plain", "cuda:1")
    assert group.device == "cuda"
    Ledger.open(path).close()
    taken = [Shard.take(path, group, 3, 1001, 8).reservation for _ in range(2)]
    assert [(r.first_trial, r.trials) for r in taken] == [(0, 1008), (1008, 1008)]


def test_the_account_of_a_table_names_its_law(path):
    run(path)
    for account, _ in accounts(path):
        with Ledger.open(path, read_only=True) as ledger:
            assert account == Account.of(account.group, account.table, ledger.law(account))
