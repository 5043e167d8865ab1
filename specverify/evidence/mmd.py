"""Whole texts without logits: do two engines write from one law?

Maximum mean discrepancy (Gretton et al. 2012, J. Mach. Learn. Res. 13:723) with the Hamming kernel
of texts of L tokens, k(x, y) = share of positions at which they agree (Gao, Liang & Guestrin 2024,
"Model equality testing"). For this kernel MMD^2 is the mean over positions of
sum_v (a_l(v) - b_l(v))^2, the squared distance of the marginal laws at position l: it needs no
logits and no model, is good for comparing engines end to end, is far too weak for kernels, and is
blind to changes that leave the law of every position as it is.
"""

from __future__ import annotations

import dataclasses
import math
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt
from scipy import optimize, special
from scipy.sparse import linalg

from specverify.evidence import validate

Texts = npt.NDArray[np.int64]

MOST_TEXTS = 10_000
"""Both samples together; the matrix of all pairs has to fit into memory."""

MOST = 2.0
"""MMD^2 never exceeds it: two laws of one token at each position, never the same."""

_SAME = 1e-12  # mean squares of the centred kernel below this are rounding
_BLOCK = 512
_EXACT_IN_FLOAT32 = 2**24


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextEvidence:
    """The answer of one comparison of two samples of texts.

    Attributes:
        mmd_squared: unbiased estimate of MMD^2; may be negative.
        threshold: the estimate that a permutation exceeds with probability alpha (its empirical
            quantile).
        p_value: permutation p-value, exact for every sample size.
        alpha: false-alarm probability the test was asked to spend.
        texts_a, texts_b: sample sizes.
        length: positions compared, padding included.
        permutations: drawn.
        detectable: smallest MMD^2 that is found with probability ``power`` at these sizes
            (:func:`mmd_detectable`, its spectrum taken from these texts).
        power: of the promise.
    """

    mmd_squared: float
    threshold: float
    p_value: float
    alpha: float
    texts_a: int
    texts_b: int
    length: int
    permutations: int
    detectable: float
    power: float

    @property
    def rejected(self) -> bool:
        """Whether one common law is rejected."""
        return self.p_value <= self.alpha


def _texts(field: str, value: npt.ArrayLike) -> Texts:
    texts = np.asarray(value)
    if texts.ndim != 2 or texts.dtype.kind not in "iu" or texts.shape[0] < 2 or texts.shape[1] < 1:
        got = f"{texts.dtype}{list(texts.shape)}"
        raise ValueError(f"{field}: got {got}; expected integers [n >= 2, L >= 1], padded with -1")
    texts = texts.astype(np.int64)
    bad = texts < -1
    bad[:, 1:] |= (texts[:, :-1] == -1) & (texts[:, 1:] != -1)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(
            f"{field}[{row}, {column}]: got {texts[row, column]}; expected a token id >= 0, "
            "or -1 from the end of the text on"
        )
    return texts


def _pair(a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[Texts, Texts]:
    first, second = _texts("a", a), _texts("b", b)
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"b: got texts of {second.shape[1]} positions; expected {first.shape[1]}, as in a "
            "(pad the shorter with -1)"
        )
    if first.shape[0] + second.shape[0] > MOST_TEXTS:
        total = first.shape[0] + second.shape[0]
        raise ValueError(f"a, b: got {total} texts; expected at most {MOST_TEXTS} together")
    return first, second


def agreements(texts: Texts) -> npt.NDArray[np.floating]:
    """Numbers of positions at which each pair of texts agrees; padding agrees with padding.

    Args:
        texts: [N, L] int64.

    Returns:
        [N, N], whole numbers in a floating type that adds N x L of them exactly.
    """
    total, length = texts.shape
    dtype = np.float32 if total * length < _EXACT_IN_FLOAT32 else np.float64
    result = np.zeros((total, total), dtype=dtype)
    for column in texts.T:
        ids = np.unique(column, return_inverse=True)[1].astype(np.int32)
        result += ids[:, None] == ids[None, :]
    return result


def _estimates(pairs: npt.NDArray[np.floating], members: npt.NDArray[np.bool_], length: int
               ) -> npt.NDArray[np.float64]:  # fmt: skip
    """Unbiased MMD^2 of each row of members [P, N]: within both groups minus twice across."""
    chosen = members.astype(pairs.dtype)
    n, m = int(members[0].sum()), int((~members[0]).sum())
    within = np.einsum("pn,pn->p", (chosen @ pairs).astype(np.float64), chosen)
    rows = pairs.sum(axis=1, dtype=np.float64)
    of_first = chosen.astype(np.float64) @ rows
    across, rest = of_first - within, rows.sum() - 2 * of_first + within
    a, b = (within - n * length) / (n * (n - 1)), (rest - m * length) / (m * (m - 1))
    return np.asarray((a + b - 2 * across / (n * m)) / length)


def _permuted(pairs: npt.NDArray[np.floating], n: int, length: int, most: int, seed: int
              ) -> npt.NDArray[np.float64]:  # fmt: skip
    rng = np.random.default_rng(seed)
    first = np.arange(pairs.shape[0]) < n
    found = []
    for done in range(0, most, _BLOCK):
        size = min(_BLOCK, most - done)
        members = rng.permuted(np.broadcast_to(first, (size, first.shape[0])), axis=1)
        found.append(_estimates(pairs, members, length))
    return np.concatenate(found)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spectrum:
    """What the spread of MMD^2 depends on: the eigenvalues l_1 >= l_2 .. of the centred kernel.

    Attributes:
        trace: sum of l_i, the mean of h(x, x) (h is the centred kernel).
        spread: root of the sum of l_i^2, the root mean square of h(x, y) for independent x, y.
        largest: l_1, between spread^2 / trace and spread.
    """

    trace: float
    spread: float
    largest: float


def _largest(centred: npt.NDArray[np.floating], spread: float) -> float:
    """The largest eigenvalue, without what chance adds to it in a sample of N texts.

    The matrix h(x_i, x_j) / N without its diagonal is the kernel plus noise whose eigenvalues fill
    [-e, e], e = 2 spread / sqrt(N); an eigenvalue l > e / 2 shows at l + (e / 2)^2 / l, a smaller
    one not at all (Feral & Peche 2007, Comm. Math. Phys. 272:185).
    """
    total, edge = centred.shape[0], spread / math.sqrt(centred.shape[0])
    start = np.asarray(np.random.default_rng(0).normal(size=total), centred.dtype)
    seen = float(linalg.eigsh(centred, 1, which="LA", v0=start, tol=1e-3)[0][0]) / total
    return edge if seen <= 2 * edge else (seen + math.sqrt(seen**2 - 4 * edge**2)) / 2


def _spectrum(pairs: npt.NDArray[np.floating], length: int) -> Spectrum:
    centred = pairs / length
    means = centred.mean(axis=1)
    centred = centred - means[:, None] - means[None, :] + means.mean()
    total = pairs.shape[0]
    trace = float(np.trace(centred, dtype=np.float64)) / (total - 1)
    np.fill_diagonal(centred, 0.0)
    square = float(np.square(centred).sum(dtype=np.float64)) / (total * (total - 1))
    if square < _SAME:
        return Spectrum(trace=0.0, spread=0.0, largest=0.0)
    spread = math.sqrt(square)
    bounds = square / trace, spread
    return Spectrum(
        trace=trace, spread=spread, largest=float(np.clip(_largest(centred, spread), *bounds))
    )


def mmd_spectrum(texts: npt.ArrayLike) -> Spectrum:
    """The spectrum of the Hamming kernel, from texts of one engine: what a plan needs.

    Args:
        texts: [N, L] integer token ids, padded with -1 after the end; a few hundred suffice.

    Returns:
        The spectrum; all zero if the texts do not differ.

    Raises:
        ValueError: naming what is wrong with the texts.
    """
    sample = _texts("texts", texts)
    if not 4 <= sample.shape[0] <= MOST_TEXTS:
        raise ValueError(f"texts: got {sample.shape[0]} texts; expected 4 to {MOST_TEXTS}")
    return _spectrum(agreements(sample), sample.shape[1])


def _missing(distance: float, spectrum: Spectrum, n: int, m: int, alpha: float, power: float
             ) -> float:  # fmt: skip
    """By how much MMD^2 = ``distance`` falls short of being found; see :func:`mmd_detectable`."""
    width, mixed = 1 / n + 1 / m, n * m / (n + m) ** 2 * distance
    trace = spectrum.trace + mixed
    square = spectrum.spread**2 + 2 * spectrum.largest * mixed + mixed**2
    critical = float(special.chdtri(trace**2 / square, alpha)) * square / trace - trace
    deviation = math.sqrt(2 * spectrum.spread**2 + 4 * spectrum.largest * distance / width)
    return width * (critical + float(special.ndtri(power)) * deviation) - distance


def mmd_detectable(
    spectrum: Spectrum, texts_a: SupportsIndex, texts_b: SupportsIndex, alpha: float, power: float
) -> float:
    """The smallest MMD^2 that is found with probability ``power``, in whatever direction it lies.

    Let w = 1/n + 1/m. Near the null MMD^2 / w is sum_i l_i [(z_i + s_i)^2 - 1], z standard normal,
    and the deviation is w sum_i l_i s_i^2 (Gretton et al. 2012, theorem 12). So

    - the threshold, without s, is that of chi-square with d = (sum l)^2 / sum l^2 degrees of
      freedom in units of sum l^2 / sum l (two moments: Satterthwaite 1946; Box 1954). Permutations
      mix both samples, which adds rho (1 - rho) times the deviation to the spectrum, rho = n/(n+m);
    - with s the variance is 2 sum l^2 + 4 sum l^2 s^2, largest if all of s lies along l_1. A sum of
      squares is skewed to the right, so a normal law with this variance overstates its lower tail.

    Limits: l_1 is estimated, and for a few texts (n < 20) the limit law is not reached yet.

    Args:
        spectrum: of the kernel, by :func:`mmd_spectrum`.
        texts_a: number of texts, at least 2.
        texts_b: number of texts, at least 2.
        alpha: false-alarm probability.
        power: of the promise.

    Returns:
        MMD^2 in units of the kernel (1 = texts that agree everywhere against never), at most 2;
        2 when nothing is promised.

    Raises:
        ValueError: naming the field that is wrong.
    """
    validate.positive("spectrum.spread", spectrum.spread)
    n, m = validate.whole("texts_a", texts_a, 2), validate.whole("texts_b", texts_b, 2)
    level, promise = validate.inside("alpha", alpha), validate.inside("power", power)

    def missing(distance: float) -> float:
        return _missing(distance, spectrum, n, m, level, promise)

    if missing(0.0) <= 0:
        return 0.0
    return float(optimize.brentq(missing, 0.0, MOST)) if missing(MOST) < 0 else MOST


def mmd_texts_needed(spectrum: Spectrum, distance: float, alpha: float, power: float) -> int:
    """Texts of each engine after which MMD^2 = ``distance`` is found with probability ``power``.

    The inverse of :func:`mmd_detectable` for samples of equal size, under the same conditions.

    Args:
        spectrum: of the kernel, by :func:`mmd_spectrum`.
        distance: MMD^2 > 0, the mean over positions of sum_v (a_l(v) - b_l(v))^2.
        alpha: false-alarm probability.
        power: of the promise.

    Returns:
        n >= 2 for each.

    Raises:
        ValueError: naming the field that is wrong.
    """
    wanted, high = validate.positive("distance", distance), 2
    while mmd_detectable(spectrum, high, high, alpha, power) > wanted:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        found = mmd_detectable(spectrum, middle, middle, alpha, power) <= wanted
        low, high = (low, middle) if found else (middle, high)
    return max(2, high)


def mmd_test(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    alpha: float,
    power: float = 0.99,
    permutations: SupportsIndex | None = None,
    seed: SupportsIndex = 0,
) -> TextEvidence:
    """Hamming-kernel MMD test of two samples of texts, with a permutation p-value.

    Args:
        a: [n, L] integer token ids, padded with -1 after the end.
        b: [m, L], likewise.
        alpha: false-alarm probability.
        power: of the promise ``detectable``.
        permutations: at least 1/alpha - 1; the larger of 999 and 10/alpha if not given.
        seed: of the permutations.

    Returns:
        The evidence.

    Raises:
        ValueError: naming the field that is wrong.
    """
    first, second = _pair(a, b)
    alpha, power = validate.inside("alpha", alpha), validate.inside("power", power)
    most, root = max(999, math.ceil(10 / alpha)), validate.whole("seed", seed)
    if permutations is not None:
        most = validate.whole("permutations", permutations, math.ceil(1 / alpha) - 1)
    n, m, length = first.shape[0], second.shape[0], first.shape[1]
    pairs = agreements(np.concatenate([first, second]))
    observed = float(_estimates(pairs, np.arange(n + m)[None, :] < n, length)[0])
    null = _permuted(pairs, n, length, most, root)
    spectrum = _spectrum(pairs, length)
    return TextEvidence(
        mmd_squared=observed,
        threshold=float(np.quantile(null, 1 - alpha, method="higher")),
        p_value=(1 + int((null >= observed).sum())) / (most + 1),
        alpha=alpha,
        texts_a=n,
        texts_b=m,
        length=length,
        permutations=most,
        detectable=mmd_detectable(spectrum, n, m, alpha, power) if spectrum.spread else 0.0,
        power=power,
    )
