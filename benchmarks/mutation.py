"""Mutation testing of the harness's own mathematics: would the tests notice a changed formula?

    python benchmarks/mutation.py [--workers 2] [--seconds 480] [--modules evidence.binomial ...]
    python benchmarks/mutation.py --retest --examples 100   # the survivors again, more examples
    python benchmarks/mutation.py --report                  # what the results file holds

mutmut makes the mutants of ``specverify/laws`` and ``specverify/evidence`` (its trampolines hold
every mutant of a function beside the original, and a name switches one on); this script runs them.
It collects the tests once, learns in a forked child which tests call which function, and then forks
a child for every mutant that runs those tests, the fastest first, until one fails.

Results are JSON lines, appended as they come: a run that is stopped goes on where it was, and the
mutants are ordered by turns over the functions, at random (seed 0) within each, so that a run cut
short is a stratified sample.  A mutant whose own diff is unchanged is not run again.  Exit code 1
if a mutant survives that ``benchmarks/equivalent_mutants.json`` does not explain.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from mutating.children import say
from mutating.making import ROOT, Mutant, in_turns, write_mutants
from mutating.scoring import excuse, excuses, report, stored
from mutating.trying import run

RESULTS = ROOT / "specverify-out" / "mutation.jsonl"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start none later")
    parser.add_argument("--modules", nargs="*", help="such as laws.chain evidence.binomial")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--examples", type=int, default=25, help="of every hypothesis test")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds of tests each")
    parser.add_argument("--tests", nargs="*", help="use these files only, for a first look")
    parser.add_argument("--retest", action="store_true", help="the unexplained survivors")
    parser.add_argument("--report", action="store_true", help="run nothing")
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.tests = [str(Path(path).resolve()) for path in options.tests or []]
    return options


def due(mutants: list[Mutant], options: argparse.Namespace) -> list[Mutant]:
    """Those without a result, or with ``--retest`` the unexplained survivors, in turns."""
    known, reasons = stored(options.out), excuses()
    if not options.retest:
        return [one for one in in_turns(mutants) if one.key not in known]
    left = {
        key
        for key, record in known.items()
        if record["status"] == "survived" and not excuse(record, reasons)
    }
    return [one for one in in_turns(mutants) if one.key in left]


def main() -> int:
    """Make the mutants, run those that are due, print the score."""
    options = arguments()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        mutants = write_mutants(Path(folder), options.modules)
        chosen = [] if options.report else due(mutants, options)
        if chosen:
            say(f"{len(mutants)} mutants, {len(chosen)} to try")
            code = run(Path(folder), options, chosen)
            if code:
                return code
    now = stored(options.out)
    return int(report([now[one.key] for one in mutants if one.key in now], len(mutants)) > 0)


if __name__ == "__main__":
    raise SystemExit(main())
