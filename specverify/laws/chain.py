"""What chain verification does to drafts of a table drafter: the exact joint law and its marginals.

The outcome is (draft path, accepted length L, last token y). Written out it has
V**k * (k + 1) * V cells; every marginal below instead runs forward over the prefixes that are
still alive, of which there are V**j at position j, or one where no later table depends on them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from specverify.laws import _fields
from specverify.laws._fields import Floats
from specverify.laws.prefixes import extend, over_prefixes
from specverify.laws.steps import StepLaw, one_hot_step, ratio_step


@dataclasses.dataclass(frozen=True, eq=False)
class ChainOutcomeLaw:
    """The law of one verified chain. Made by :func:`chain_outcome_law`, which checks its fields.

    Attributes:
        targets: k + 1 target tables, table j [V**j, V] or [1, V] float64.
        drafts: k draft tables alike.
        one_hot: the rule is not shown q.
        slots: number of slots before the first placeholder; k without one. No longer length
            than this can be accepted.
    """

    targets: tuple[Floats, ...]
    drafts: tuple[Floats, ...]
    one_hot: bool
    slots: int

    @property
    def vocab_size(self) -> int:
        """V, the number of tokens."""
        return int(self.targets[0].shape[1])

    def length_law(self) -> Floats:
        """[k + 1] float64: P(L = l).

        Source: sums of :meth:`last_token_law`; for rates a_j that do not depend on the prefix it
        is a_0 .. a_{l-1} (1 - a_l).
        """
        return np.array([self.last_token_law(j).sum() for j in range(len(self.targets))])

    def last_token_law(self, j: int) -> Floats:
        """[V] float64: P(L = j, last token = y).

        Position j = k is the bonus token; at the first placeholder, the target's own token;
        before it, the recovered one; after it, zeros.

        Raises:
            ValueError: if j is outside [0, k].

        Source: Leviathan et al. 2023, Algorithm 1.
        """
        j = _fields.index("j", j, len(self.targets))
        if j > self.slots:
            return np.zeros(self.vocab_size)
        rows = self.targets[j] if j == self.slots else self._steps[j].recovered
        return over_prefixes(self._reached[j], rows)

    def accept_by_draft(self, j: int) -> Floats:
        """[V, 2] float64: P(j reached, draft at j = d, rejected) and the same with accepted.

        What is missing to 1 is the probability that position j is not reached, which is 1 for
        a placeholder and after it.

        Raises:
            ValueError: if j is outside [0, k).

        Source: P(accept | d) = min(1, p/q), or p(d) for a rule that does not see q.
        """
        j = _fields.index("j", j, len(self.drafts))
        if j >= self.slots:
            return np.zeros((self.vocab_size, 2))
        step, mass = self._steps[j], self._reached[j]
        branches = [over_prefixes(mass, step.rejected), over_prefixes(mass, step.accepted)]
        return np.stack(branches, axis=1)

    def stopped_law(self, j: int) -> Floats:
        """[V, V] float64: P(L = j by a rejection, draft at j = d, last token = y).

        Zeros for a placeholder, where there is no draft to reject (:meth:`last_token_law` has
        its tokens), and after it.

        Raises:
            ValueError: if j is outside [0, k), or V**2 is more than ``2**27`` cells.

        Source: P(d rejected) times the residual given d, summed over the prefixes.
        """
        j = _fields.index("j", j, len(self.drafts))
        _fields.affordable("stopped_law", self.vocab_size**2)
        if j >= self.slots:
            return np.zeros((self.vocab_size, self.vocab_size))
        left, right = self._rejections(j)
        mass = self._reached[j]
        # Rows shared by all prefixes need only the total mass of these.
        if left.shape[0] == right.shape[0] == 1:
            mass = mass.sum(keepdims=True)
        law = (mass[:, None] * left).T @ np.broadcast_to(right, (mass.size, self.vocab_size))
        if self.one_hot:
            np.fill_diagonal(law, 0.0)
        return law

    def joint(self) -> Floats:
        """[V**m, k + 1, V] float64: P(draft path, L = l, last token = y), for small V**m.

        The path has the m = ``slots`` drafts before the first placeholder: no others are ever
        looked at. Its index is the base-V number of its tokens, the first most significant.

        Raises:
            ValueError: if it has more than ``2**27`` cells.

        Source: the conditional law of each path times the probability of the path.
        """
        vocab, m = self.vocab_size, self.slots
        paths = vocab**m
        _fields.affordable("joint", paths * len(self.targets) * vocab)
        law = np.zeros((paths, len(self.targets), vocab))
        accepted = np.ones(1)  # of each prefix: P(prefix drafted, all of it accepted)
        for j in range(m):
            left, right = self._rejections(j)
            stop = (accepted[:, None] * left)[:, :, None] * right[:, None, :]
            if self.one_hot:
                stop[:, np.arange(vocab), np.arange(vocab)] = 0.0
            law[:, j] = self._spread(stop.reshape(-1, vocab), j + 1)
            accepted = extend(accepted, self._steps[j].accepted)
        law[:, m] = accepted[:, None] * self.targets[m]
        return law

    def _spread(self, mass: Floats, length: int) -> Floats:
        """[V**m, V]: the mass of each prefix shared out among the paths that begin with it."""
        for table in self.drafts[length : self.slots]:
            mass = (mass[:, None, :] * table[:, :, None]).reshape(-1, self.vocab_size)
        return mass

    def _rejections(self, j: int) -> tuple[Floats, Floats]:
        """Two [N or 1, V] factors of P(draft d rejected, recovered y); one-hot: for y != d only."""
        if self.one_hot:
            # q(d) (1 - p(d)) * p(y) / (1 - p(d)): the probability of the rejection cancels.
            return self.drafts[j], self.targets[j]
        step = self._steps[j]
        mass = step.rejected.sum(axis=-1, keepdims=True)
        return step.rejected, step.recovered / np.where(mass > 0, mass, 1.0)

    @cached_property
    def _steps(self) -> list[StepLaw]:
        rule = one_hot_step if self.one_hot else ratio_step
        pairs = zip(self.targets[: self.slots], self.drafts[: self.slots], strict=True)
        return [rule(p, q) for p, q in pairs]

    @cached_property
    def _reached(self) -> list[Floats]:
        """[V**j] for j = 0 .. slots: P(prefix drafted, all accepted); [1] where that suffices."""
        masses = [np.ones(1)]
        for j, step in enumerate(self._steps):
            if self._rows_are_shared_from(j + 1):
                total = over_prefixes(masses[j], step.accepted).sum(keepdims=True)
                masses.append(total)
            else:
                masses.append(extend(masses[j], step.accepted))
        return masses

    def _rows_are_shared_from(self, j: int) -> bool:
        later = self.targets[j : self.slots + 1] + self.drafts[j : self.slots]
        return all(table.shape[0] == 1 for table in later)


def chain_outcome_law(
    target_tables: Sequence[ArrayLike],
    draft_tables: Sequence[ArrayLike],
    *,
    one_hot: bool,
    placeholders: Collection[int] = (),
) -> ChainOutcomeLaw:
    """The law of drafts drawn from ``draft_tables`` and verified by the ratio rule.

    Args:
        target_tables: k + 1 tables, table j [V**j, V], or [1, V] if the row is independent of the
            prefix. Row index: the prefix as a base-V number, its first token most significant.
        draft_tables: k tables alike. Those of a placeholder and after it are never used.
        one_hot: True if the rule is not shown q, so that it accepts d with p(d). The rule that
            draws from p and accepts iff it equals the draft has the same law.
        placeholders: slots in [0, k) that are never proposed; the first one ends verification.

    Returns:
        An object whose methods give the marginals, each exact and unconditional.

    Raises:
        ValueError: if a table has the wrong shape or holds no distributions, if the numbers of
            tables do not fit, or a placeholder is outside [0, k).

    Source: Leviathan et al. 2023, Algorithm 1.
    """
    targets = _fields.target_tables(target_tables)
    drafts = _fields.draft_tables(draft_tables, targets)
    first = _fields.placeholders(placeholders, len(drafts))
    return ChainOutcomeLaw(targets, drafts, one_hot, first[0] if first else len(drafts))
