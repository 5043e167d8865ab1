"""A small case, and runs of it that share a ledger, for the tests of such runs."""

from __future__ import annotations

import functools

from specverify.cases import RequestSpec, make_case
from specverify.checks.experiment import Settings
from specverify.checks.statistical import StatisticalExperiment
from specverify.checks.verdict import Family
from specverify.contract import capabilities_of
from specverify.ledger import Ledger
from specverify.reference import reference
from specverify.subjects import Subject

ALPHA = 1e-7
FIRST = "law/request 0: token 0"
PAIRS = "independence/trials t and t + 1: first tokens of request 0"


def experiment(*families):
    requests = (RequestSpec(drafts=1), RequestSpec(drafts=1))
    return StatisticalExperiment(
        suite="toy",
        case="plain",
        make=functools.partial(make_case, "toy/plain", 4, requests, True),
        families=families or (Family.LAW, Family.INDEPENDENCE),
    )


TOY = experiment()
REFERENCE = Subject("reference", reference, capabilities_of(reference), "1.0")


def settings(path=None, **changes):
    return Settings(**({"alpha": ALPHA, "tv": 0.1, "ledger": path} | changes))


def run(path, subject=REFERENCE, toy=TOY, **changes):
    return {v.check: v for v in toy.run(subject, settings(path, **changes))}


def accounts(path, table=None):
    with Ledger.open(path, read_only=True) as ledger:
        assert ledger.verify() == []
        found = [(account, ledger.totals(account)) for account in ledger.accounts()]
    return [pair for pair in found if table in (None, pair[0].table)]
