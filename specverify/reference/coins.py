"""The coins of a step that brings none: each request's own Philox stream.

The accept coin of draft j stands at ``position + j`` of the request's stream, the final coin at
``position``, under purposes of their own.  The next step starts at ``position + accepted + 1``, so
no coin that decided anything is ever used again: the accept coins that two steps could share lie
behind a rejection, where nobody looked at them.
"""

from __future__ import annotations

import torch

from specverify.contract import Batch, Coins
from specverify.streams import Purpose, request_uniform_run, request_uniforms


def coins_of(batch: Batch) -> Coins:
    """Accept coins [D] and final coins [B], float64 in [0, 1), from seeds and positions."""
    seeds = batch.seeds.cpu().numpy()
    positions = batch.positions.cpu().numpy()
    final = request_uniforms(seeds, positions, Purpose.FINAL)
    width = batch.max_drafts
    if width == 0:
        accept = torch.zeros(0, dtype=torch.float64)
    else:
        grid = torch.from_numpy(request_uniform_run(seeds, positions, width, Purpose.ACCEPT))
        if grid.numel() == batch.num_drafts:  # no ragged request
            accept = grid
        else:
            accept = grid[torch.arange(width) < batch.draft_counts.cpu()[:, None]]
    return Coins(
        accept=accept.reshape(-1).to(batch.device),
        final=torch.from_numpy(final).to(batch.device),
    )
