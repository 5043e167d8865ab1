"""Rules that are lossy by design and are presented as lossless here; nobody may be taken in.

Declared as what they are (``Guarantee.LOSSY``, or ``LOSSY_KNOWN_LAW`` for the ensemble) no law is
held against them: :data:`HONEST` are the same rules with that declaration.
"""

from __future__ import annotations

import dataclasses

import torch

from specverify.contract import AcceptanceRule, Batch, Guarantee
from specverify.mutants.mutant import mutant_of
from specverify.reference import ChainSampler, Step
from specverify.reference.chain import CAPABILITIES

LENIENCE = 0.7
"""l of Leviathan et al. 2023, appendix A.5: a draft passes with min(1, p / (l q))."""
EPSILON, DELTA = 0.09, 0.3
"""Of Medusa's typical acceptance (Cai et al. 2024, section 3.3.2)."""
WEIGHT = 0.7
"""Of the target in the ensemble."""


class Lenience(ChainSampler):
    """Accepts with min(1, p / (l q)) for some l < 1, and recovers as if l were 1."""

    def accept_coins(self, step: Step) -> torch.Tensor:
        return super().accept_coins(step) * LENIENCE


class TypicalAcceptance(ChainSampler):
    """Accepts whatever is likely enough for the entropy of p, and else draws from p."""

    def accepts(self, step: Step) -> torch.Tensor:
        rows = step.target[step.draft_rows]
        entropy = -torch.special.xlogy(rows, rows).sum(dim=1)
        threshold = (torch.exp(-entropy) * DELTA).clamp(max=EPSILON)
        passed: torch.Tensor = self.target_at_drafts(step) > threshold
        return passed if step.proposed is None else passed & step.proposed

    def residual(self, step: Step, target: torch.Tensor) -> torch.Tensor:
        return target


class StaticEnsemble(ChainSampler):
    """Verifies against w p + (1 - w) q, and emits that law, not p."""

    def target(self, batch: Batch) -> torch.Tensor:
        law = super().target(batch)
        if batch.draft_probs is None or batch.num_drafts == 0:
            return law
        rows = torch.arange(batch.num_drafts, device=batch.device) + batch.draft_request
        law[rows] = WEIGHT * law[rows] + (1 - WEIGHT) * batch.draft_probs.double()
        return law


class HonestLenience(Lenience):
    """Lenience that says so."""

    capabilities = dataclasses.replace(
        CAPABILITIES, guarantee=Guarantee.LOSSY, acceptance=AcceptanceRule.UNDECLARED
    )


class HonestTypicalAcceptance(TypicalAcceptance):
    """Typical acceptance that says so."""

    capabilities = HonestLenience.capabilities


class HonestStaticEnsemble(StaticEnsemble):
    """An ensemble that says so; its law is known, and not the target's."""

    capabilities = dataclasses.replace(
        HonestLenience.capabilities, guarantee=Guarantee.LOSSY_KNOWN_LAW
    )


HONEST = (HonestLenience, HonestTypicalAcceptance, HonestStaticEnsemble)
"""The same rules, declared: never gated as lossless."""

MUTANTS = (
    mutant_of(Lenience, "lenience", "Leviathan et al. 2023, appendix", "D", "accepted"),
    mutant_of(TypicalAcceptance, "typical-acceptance", "Medusa", "D", "accepted recovered"),
    mutant_of(StaticEnsemble, "static-ensemble", "transformers #45979", "D", "accepted recovered"),
)
