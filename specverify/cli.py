"""The command ``specverify``.

Nothing heavy is imported here: each command imports what it needs when it is called, so that help
and usage errors answer at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import specverify
from specverify._cli_corpus_app import app as corpus_app
from specverify._cli_errors import guarded, user_input
from specverify._cli_ledger_app import app as ledger_app

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Evidence that a speculative-decoding rejection sampler keeps its promise.",
    epilog="Exit codes: 0 pass, 1 fail, 2 bad usage or input, 3 inconclusive "
    "(also when nothing could be verified).",
)
list_app = typer.Typer(
    no_args_is_help=True, help="What there is: samplers, suites, checks, mutants."
)
app.add_typer(list_app, name="list")
app.add_typer(ledger_app, name="ledger")

app.add_typer(corpus_app, name="corpus")

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
Seed = Annotated[int, typer.Option(help="Root of every random number.")]
Profile = Annotated[str, typer.Option(help="How much work: quick, gate or nightly.")]
Alpha = Annotated[float, typer.Option(help="False-alarm probability, at most.")]
Power = Annotated[float, typer.Option(help="Probability of catching the requested deviation.")]
Workers = Annotated[str, typer.Option("-n", "--workers", help="Processes: a count, or auto.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"specverify {specverify.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Evidence that a speculative-decoding rejection sampler keeps its promise."""


@app.command()
def run(
    sampler: Annotated[str, typer.Option(help="Registered name, or package.module:attribute.")],
    suites: Annotated[
        list[str] | None, typer.Argument(metavar="[SUITE]...", help="Suites; all if none is named.")
    ] = None,
    alpha: Annotated[float, typer.Option(help="False-alarm probability of the whole run.")] = 1e-6,
    tv: Annotated[
        float | None, typer.Option(help="Total variation to catch; the profile's if not given.")
    ] = None,
    power: Power = 0.999,
    profile: Profile = "quick",
    seed: Seed = 0,
    device: Annotated[str, typer.Option(help="Torch device that the sampler runs on.")] = "cpu",
    workers: Workers = "1",
    out: Annotated[Path, typer.Option(help="Folder for results.")] = Path("specverify-out"),
    cases: Annotated[
        Path | None, typer.Option(help="File of recorded rows to verify on (specverify record).")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Also write the report as this file.")] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(help="File in which evidence adds up from run to run; made if absent."),
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="File of replay tokens that are run first.")
    ] = None,
    corpus_all: Annotated[
        bool, typer.Option("--corpus-all", help="Run the tokens of other samplers in it, too.")
    ] = False,
    corpus_add: Annotated[
        bool, typer.Option("--corpus-add", help="Add the failures that are printed to it.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Verify a sampler and give a verdict.

    Writes results.json, summary.md and junit.xml into the folder --out. Neither the number of
    workers nor their order changes a verdict.

    With --ledger, a run takes trials that no run before it has used, and its evidence is added to
    theirs: see `specverify ledger --help`.

    With --corpus, the replay tokens in that file are run first, and a failure that is back ends the
    run: see `specverify corpus --help`.

    Examples:
    `specverify run --sampler reference`

    `specverify run random acceptance --sampler my_file:my_sampler --profile gate -n auto`

    `specverify run --sampler mutant:recover-from-target`

    `specverify run random --sampler my_file:my_sampler --ledger nightly.ledger`
    """
    with guarded(debug):
        from specverify import _cli_run
        from specverify._options import RunOptions

        with user_input():
            _cli_run.ready_corpus(corpus, corpus_add)
            options = RunOptions(
                sampler=sampler, alpha=alpha, power=power, tv=tv, profile=profile, seed=seed,
                device=device, out=out, cases=cases, ledger=ledger, corpus=corpus,
                corpus_all=corpus_all,
            )  # fmt: skip
        code = _cli_run.run(options, suites or [], workers, html=html, keep=corpus_add)
    raise typer.Exit(code)


@app.command()
def report(
    results: Annotated[Path, typer.Argument(help="The results.json of a run.")],
    html: Annotated[
        Path | None, typer.Option(help="File to write: one page that needs nothing else.")
    ] = None,
    exam: Annotated[
        Path | None, typer.Option(help="The exam.json of `specverify mutants`, to show as well.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Show the results of a run: as an HTML file, or in the terminal if none is named.

    Nothing is run again. Exits with 0 whatever the verdict was; `specverify run` gives the verdict.

    Example: `specverify report specverify-out/results.json --html report.html`
    """
    with guarded(debug):
        from specverify import _cli_report

        _cli_report.report(results, html, exam)


@app.command()
def replay(
    token: Annotated[str, typer.Argument(help="As printed by the check that did not pass.")],
    cases: Annotated[
        Path | None, typer.Option(help="Where the file of recorded rows is now.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Run one check again from its token: same seed, same trials, same verdict.

    The case of the check is run by itself. A sampler from a file must be in the current folder, as
    it was. Exit codes are those of `specverify run`.

    Example: `specverify replay sv2.pJ3...`
    """
    with guarded(debug):
        from specverify import _cli_replay

        code = _cli_replay.replay(token, cases)
    raise typer.Exit(code)


@app.command()
def power(
    cells: Annotated[int, typer.Option(help="Cells of the table of counts.")] = 64,
    tv: Annotated[float, typer.Option(help="Total variation to catch.")] = 0.01,
    alpha: Alpha = 1e-9,
    power: Power = 0.999,
    confidence: Annotated[float, typer.Option(help="Of the certificate.")] = 0.999,
    trials: Annotated[
        int | None, typer.Option(help="Also show what this number of trials detects.")
    ] = None,
    debug: Debug = False,
) -> None:
    """How many trials a test needs, and what a number of trials detects.

    Example: `specverify power --cells 64 --tv 0.01 --alpha 1e-9 --power 0.999`
    """
    with guarded(debug), user_input():
        from specverify import _cli_power

        _cli_power.power(cells, tv, alpha, power, confidence, trials)


@app.command()
def memory(
    batch: Annotated[int, typer.Option(help="Requests in a step.")],
    drafts: Annotated[int, typer.Option(help="Drafts of each request.")],
    vocab: Annotated[int, typer.Option(help="Tokens of the vocabulary.")],
    dtype: Annotated[str, typer.Option(help="Of the target logits.")] = "bfloat16",
    draft_dtype: Annotated[str, typer.Option(help="Of the draft probabilities.")] = "float32",
    debug: Debug = False,
) -> None:
    """What one verification step takes: logits, draft probabilities, scratch and outputs.

    Example: `specverify memory --batch 256 --drafts 10 --vocab 128256 --dtype float32`
    """
    with guarded(debug), user_input():
        from specverify.memory import Shape, table

        text = table(Shape(batch, drafts, vocab, dtype=dtype, draft_dtype=draft_dtype))
    typer.echo(text)


@app.command()
def accuracy(
    a: Annotated[float | None, typer.Option(help="Accuracy of A, from 0 to 1.")] = None,
    b: Annotated[float | None, typer.Option(help="Accuracy of B.")] = None,
    n: Annotated[int | None, typer.Option("--n", help="Questions asked of each.")] = None,
    files: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="Instead: results of A and B by question (JSONL or CSV: id, correct)."),
    ] = None,
    discordance: Annotated[
        float | None, typer.Option(help="Share of questions answered differently, to plan with.")
    ] = None,
    alpha: Alpha = 0.05,
    power: Annotated[float, typer.Option(help="Probability of finding the difference.")] = 0.9,
    confidence: Annotated[float, typer.Option(help="Of the interval.")] = 0.95,
    debug: Debug = False,
) -> None:
    """Do two benchmark scores differ, and how many questions would tell?

    Examples:
    `specverify accuracy --a 0.79 --b 0.77 --n 1319`

    `specverify accuracy --files without.jsonl with.jsonl`
    """
    with guarded(debug), user_input():
        from specverify import _cli_accuracy

        _cli_accuracy.accuracy(
            a=a, b=b, n=n, files=files, discordance=discordance, alpha=alpha, power=power,
            confidence=confidence,
        )  # fmt: skip


@app.command()
def mutants(
    profile: Profile = "quick",
    seed: Seed = 0,
    workers: Workers = "1",
    out: Annotated[Path | None, typer.Option(help="Folder for the matrix; none if absent.")] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Every suite about everybody, without shortcuts.")
    ] = False,
    debug: Debug = False,
) -> None:
    """The harness's own exam: samplers with one real bug each must be caught.

    Exits with 1 if a mutant survives, is not caught by a suite that it names or not in time, or if
    a correct sampler is accused.
    """
    with guarded(debug):
        from specverify import _cli_exam, _cli_run
        from specverify._options import RunOptions, prepare_out

        with user_input():
            RunOptions(sampler="reference", profile=profile, seed=seed)
            count = _cli_run.worker_count(workers)
            if out is not None:
                prepare_out(out)
        code = _cli_exam.main(profile=profile, seed=seed, workers=count, out=out, full=full)
    raise typer.Exit(code)


@app.command()
def record(
    prompts: Annotated[Path, typer.Option(help="Text file, one prompt a line.")],
    out: Annotated[Path, typer.Option(help="The file to write (safetensors).")],
    model: Annotated[
        str, typer.Option(help="smollm2, or a folder that holds a transformers model.")
    ] = "smollm2",
    drafter: Annotated[
        str, typer.Option(help="early-exit:N (the first N layers) or prompt-lookup.")
    ] = "early-exit:28",
    drafts: Annotated[int, typer.Option(help="Drafts a step.")] = 4,
    steps: Annotated[int, typer.Option(help="Verification steps to record.")] = 16,
    temperature: Annotated[float, typer.Option(help="Of every request; 0 is greedy.")] = 1.0,
    seed: Seed = 0,
    debug: Debug = False,
) -> None:
    """Record rows of a real language model, for `specverify run --cases FILE`.

    Example: `specverify record --prompts prompts.txt --out rows.safetensors`
    """
    with guarded(debug), user_input():
        from specverify import _cli_record

        _cli_record.record(
            model=model, prompts=prompts, drafter=drafter, out=out, drafts=drafts, steps=steps,
            temperature=temperature, seed=seed,
        )  # fmt: skip


@app.command()
def doctor(debug: Debug = False) -> None:
    """What is installed, which devices there are, and which samplers can run here."""
    with guarded(debug):
        from specverify import _cli_list

        _cli_list.doctor()


@list_app.command("samplers")
def list_samplers(debug: Debug = False) -> None:
    """Registered samplers, and why some cannot run here."""
    with guarded(debug):
        from specverify import _cli_list

        _cli_list.samplers()


@list_app.command("suites")
def list_suites(debug: Debug = False) -> None:
    """Suites, with the number of their cases."""
    with guarded(debug):
        from specverify import _cli_list

        _cli_list.suites()


@list_app.command("checks")
def list_checks(
    sampler: Annotated[str, typer.Option(help="Count the tests for this sampler.")] = "reference",
    debug: Debug = False,
) -> None:
    """Cases of every suite, with the number of statistical tests among which alpha is split."""
    with guarded(debug), user_input():
        from specverify import _cli_list

        _cli_list.checks(sampler)


@list_app.command("mutants")
def list_mutants(debug: Debug = False) -> None:
    """Samplers with one known bug each; run one with `--sampler mutant:NAME`."""
    with guarded(debug):
        from specverify import _cli_list

        _cli_list.mutants()


@list_app.command("lawful")
def list_lawful(debug: Debug = False) -> None:
    """Correct samplers that are not the reference; run one with `--sampler lawful:NAME`."""
    with guarded(debug):
        from specverify import _cli_list

        _cli_list.lawful()


def main() -> None:
    """Entry point of the command."""
    app()
