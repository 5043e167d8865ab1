"""The check that says which form of the chain kernel is wrong sees what is wrong, and where."""

from __future__ import annotations

import sys
from pathlib import Path

# isort: off
from kernel_setup import DEVICE  # before triton

# isort: on
import pytest
import torch
from kernel_batches import random_batch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import gpu_forms

from specverify.contract import Emission
from specverify.reference import reference

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(autouse=True)
def few_forms(monkeypatch):
    monkeypatch.setattr(gpu_forms, "VOCABS", (257,))
    monkeypatch.setattr(gpu_forms, "DTYPES", (torch.float32,))
    monkeypatch.setattr(gpu_forms, "VARIED", {"plain": {}, "one warp": {"num_warps": 1}})


def test_right_kernels_pass(capsys):
    assert gpu_forms.forms(DEVICE, requests=2) == (True, "0 of 8 forms are wrong")
    assert capsys.readouterr().out == ""


def test_what_is_wrong_is_counted_by_form(monkeypatch, capsys):
    calls = iter(range(1000))

    def broken(batch, plan, workspace):
        right = reference(batch)
        if plan.num_warps != 1:
            return right
        workspace.pairs(8, zero=True)[3] = 1
        tokens = right.token_ids.clone()
        tokens[0, 0] = 1064630770 + next(calls)
        return Emission(tokens, right.num_emitted)

    monkeypatch.setattr(gpu_forms, "verified", broken)
    good, text = gpu_forms.forms(DEVICE, requests=2)
    assert (good, text) == (False, "4 of 8 forms are wrong")
    first, *others = capsys.readouterr().out.splitlines()
    assert first == (
        "  V=257 float32 full q injected coins, one warp: 1 beyond, 1 outside, 1 unequal, 1 scratch"
    )
    # Own coins with a full q: thinned draws are others, so lengths alone are compared.
    assert others[0].endswith("own coins, one warp: 1 outside, 1 unequal, 1 scratch")


def test_lengths_count_where_tokens_cannot(monkeypatch):
    generator = torch.Generator(device=DEVICE).manual_seed(1)
    batch = random_batch(generator, 31, 4, 3, torch.float32, dense=True, coins=False)
    right = reference(batch)
    shorter = Emission(right.token_ids, right.num_emitted - 1)
    monkeypatch.setattr(gpu_forms, "verified", lambda *_: shorter)
    assert gpu_forms.fault_of(batch, right, gpu_forms.PLAIN).beyond == 4
