"""Find a sampler by the name that a user gives.

Four kinds of name: one registered by an installed package in the entry-point group
``specverify.samplers``, ``mutant:NAME`` for a sampler with one known bug, ``lawful:NAME`` for a
correct one that is not the reference, and
``package.module:attribute`` for any callable that can be imported, the current directory included.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import cast

from specverify._optional import DISTRIBUTION, how_to_install, is_installed, version_of
from specverify.contract import Sampler, capabilities_of
from specverify.subjects import Subject

GROUP = "specverify.samplers"
"""Entry-point group in which a package registers its samplers."""

_MUTANT = "mutant:"
_LAWFUL = "lawful:"


@dataclasses.dataclass(frozen=True)
class SamplerEntry:
    """A registered sampler, whether or not it can run here.

    Attributes:
        name: what ``resolve`` takes.
        origin: the ``module:attribute`` it is registered as.
        available: whether ``resolve`` would return it.
        reason: why not, ``None`` when available.
        version: of the distribution that is put to the test, ``None`` when unknown.
    """

    name: str
    origin: str
    available: bool
    reason: str | None = None
    version: str | None = None


def resolve(name: str) -> Subject:
    """The sampler of that name, ready to be put to the test.

    Args:
        name: a registered name, ``mutant:NAME``, ``lawful:NAME`` or ``package.module:attribute``.
            A class is instantiated without arguments; a function is the sampler itself and is not
            called.

    Raises:
        ValueError: if there is no such sampler, it cannot be imported (with the original error),
            it is not callable with one batch, or the package that it drives is absent.
    """
    entry_point = _entry_points().get(name)
    if entry_point is not None:
        return _registered(entry_point)
    if name.startswith(_MUTANT):
        return _mutant(name)
    if name.startswith(_LAWFUL):
        return _lawful(name)
    if ":" in name:
        return _imported(name)
    raise ValueError(_unknown(name))


def available() -> list[SamplerEntry]:
    """Every registered sampler by name, with the reason where it cannot run; never raises."""
    return [_entry(entry_point) for _, entry_point in sorted(_entry_points().items())]


def _entry_points() -> dict[str, metadata.EntryPoint]:
    return {entry_point.name: entry_point for entry_point in metadata.entry_points(group=GROUP)}


def _entry(entry_point: metadata.EntryPoint) -> SamplerEntry:
    try:
        subject = _registered(entry_point)
    except Exception as error:  # a list must come out whatever one package does
        return SamplerEntry(entry_point.name, entry_point.value, False, str(error))
    return SamplerEntry(entry_point.name, entry_point.value, True, None, subject.version)


def _registered(entry_point: metadata.EntryPoint) -> Subject:
    name = entry_point.name
    try:
        found = entry_point.load()
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"sampler {name!r} is registered as {entry_point.value}, which does not load: "
            f"{_said(error)}"
        ) from error
    package = getattr(found, "requires", None)
    if isinstance(package, str):
        if not is_installed(package):
            raise ValueError(f"sampler {name!r}: {how_to_install(package, 'engines')}")
        return _subject(name, found, version_of(package))
    return _subject(name, found, entry_point.dist.version if entry_point.dist else None)


def _mutant(name: str) -> Subject:
    from specverify.mutants import MUTANTS

    mutant = MUTANTS.get(name.removeprefix(_MUTANT))
    if mutant is None:
        raise ValueError(
            f"sampler {name!r}: there is no such mutant"
            f"{_did_you_mean(name, [_MUTANT + known for known in MUTANTS]) or '.'} "
            "`specverify list mutants` names them all"
        )
    return _subject(name, mutant.build(), version_of(DISTRIBUTION))


def _lawful(name: str) -> Subject:
    from specverify.mutants.lawful import LAWFUL

    variant = LAWFUL.get(name.removeprefix(_LAWFUL))
    if variant is None:
        raise ValueError(
            f"sampler {name!r}: there is no such lawful variant; expected one of "
            f"{', '.join(_LAWFUL + known for known in LAWFUL)}"
        )
    return _subject(name, variant.build(), version_of(DISTRIBUTION))


def _imported(name: str) -> Subject:
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute or "/" in name or module_name.endswith(".py"):
        stem = Path(module_name).stem or "my_file"
        raise ValueError(
            f"sampler {name!r}: expected package.module:attribute, for example "
            f"{stem}:{attribute or 'my_sampler'}, with the file in the current directory"
        )
    found: object = _module(name, module_name)
    for part in attribute.split("."):
        if not hasattr(found, part):
            where = getattr(found, "__name__", type(found).__name__)
            raise ValueError(
                f"sampler {name!r}: {where} has no attribute {part!r}"
                f"{_did_you_mean(part, [known for known in dir(found) if known[0] != '_'])}"
            )
        found = getattr(found, part)
    return _subject(name, found, _version_of_module(module_name))


def _module(name: str, module_name: str) -> ModuleType:
    # As with `python -m`, and left in place: a sampler may import its neighbours when it is called.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise ValueError(
                f"sampler {name!r}: importing {module_name} failed: {_said(error)}"
            ) from error
        raise ValueError(
            f"sampler {name!r}: there is no module {error.name!r}, neither installed nor in the "
            "current directory"
        ) from error
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"sampler {name!r}: importing {module_name} failed: {_said(error)}"
        ) from error


def _subject(name: str, found: object, version: str | None) -> Subject:
    if inspect.isclass(found):
        try:
            found = found()
        except Exception as error:
            raise ValueError(
                f"sampler {name!r}: the class could not be instantiated without arguments: "
                f"{_said(error)}"
            ) from error
    if not callable(found):
        raise ValueError(
            f"sampler {name!r}: got {type(found).__name__}, which is not callable; expected a "
            "function of one Batch that returns an Emission, or a class of such callables"
        )
    if not _takes_one_argument(found):
        raise ValueError(
            f"sampler {name!r}: takes {inspect.signature(found)}; expected a callable that takes "
            "one Batch (a factory is not called: name what it returns)"
        )
    try:
        return Subject(name, cast("Sampler", found), capabilities_of(found), version)
    except ValueError as error:
        raise ValueError(f"sampler {name!r}: {error}") from error


def _takes_one_argument(found: object) -> bool:
    try:
        inspect.signature(found).bind(None)  # type: ignore[arg-type]
    except TypeError:
        return False
    except ValueError:  # compiled callables may have no signature
        return True
    return True


def _version_of_module(module_name: str) -> str | None:
    package = module_name.partition(".")[0]
    distributions = metadata.packages_distributions().get(package)
    return version_of(distributions[0]) if distributions else None


def _unknown(name: str) -> str:
    known = sorted(_entry_points())
    return (
        f"sampler {name!r}: no sampler of that name is registered"
        f"{_did_you_mean(name, known) or '.'} Registered: {', '.join(known) or 'none'}. "
        "A sampler of your own is named package.module:attribute, for example my_file:my_sampler; "
        "a mutant mutant:NAME"
    )


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=3)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def _said(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
