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
from scipy import special

from specverify.evidence import validate

Texts = npt.NDArray[np.int64]

MOST_TEXTS = 10_000
"""Both samples together; the matrix of all pairs has to fit into memory."""

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
        detectable: about the smallest MMD^2 that is found with probability ``power`` at these
            sizes (:func:`mmd_detectable`).
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


def _spread(pairs: npt.NDArray[np.floating], length: int) -> float:
    """Root mean square of the centred kernel over pairs of different texts."""
    centred = pairs / length
    means = centred.mean(axis=1)
    centred = centred - means[:, None] - means[None, :] + means.mean()
    np.fill_diagonal(centred, 0.0)
    total = pairs.shape[0]
    return math.sqrt(float(np.square(centred).sum(dtype=np.float64)) / (total * (total - 1)))


def mmd_detectable(
    spread: float, texts_a: SupportsIndex, texts_b: SupportsIndex, alpha: float, power: float
) -> float:
    """About the smallest MMD^2 that is found with probability ``power``.

    Under one law the estimate has standard deviation sqrt(2) spread (1/n_a + 1/n_b) (Gretton et
    al. 2012, appendix B). Its quantiles are taken from a normal law, and near the null the spread
    under a small deviation is about the same: a planning figure, not a bound.

    Args:
        spread: root mean square of the centred kernel over pairs of different texts, > 0.
        texts_a: number of texts, at least 2.
        texts_b: number of texts, at least 2.
        alpha: false-alarm probability.
        power: of the promise.

    Returns:
        MMD^2 in units of the kernel (1 = texts that agree everywhere against never).

    Raises:
        ValueError: naming the field that is wrong.
    """
    width = validate.positive("spread", spread) * math.sqrt(2)
    n, m = validate.whole("texts_a", texts_a, 2), validate.whole("texts_b", texts_b, 2)
    quantiles = -special.ndtri(validate.inside("alpha", alpha))
    quantiles += special.ndtri(validate.inside("power", power))
    return max(0.0, float(quantiles) * width * (1 / n + 1 / m))


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
        power: of the planning figure.
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
    spread = _spread(pairs, length)
    return TextEvidence(
        mmd_squared=observed,
        threshold=float(np.quantile(null, 1 - alpha, method="higher")),
        p_value=(1 + int((null >= observed).sum())) / (most + 1),
        alpha=alpha,
        texts_a=n,
        texts_b=m,
        length=length,
        permutations=most,
        detectable=mmd_detectable(spread, n, m, alpha, power) if spread else 0.0,
        power=power,
    )
