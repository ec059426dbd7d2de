# SPDX-License-Identifier: Apache-2.0
"""Muon for the weight matrices of the layers, AdamW for embeddings and gains.

Muon makes each step of a matrix orthogonal (K. Jordan, 2024). Steps are scaled as in Moonlight
(arXiv:2502.16982, section 2.2), so that one learning rate serves both.
"""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from pytorch_optimizer import Muon

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from trl import SFTConfig


def muon(model: Any, config: SFTConfig) -> Optimizer:
    """An optimizer of a language model's weights, with learning rate and decay as configured."""
    head = {id(model.get_input_embeddings().weight), id(model.get_output_embeddings().weight)}
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    inner = [weight for weight in weights if weight.ndim == 2 and id(weight) not in head]
    of_layers = {id(weight) for weight in inner}
    others = [weight for weight in weights if id(weight) not in of_layers]
    usual = {'lr': config.learning_rate, 'weight_decay': config.weight_decay}
    return Muon(
        [
            {'params': inner, 'use_muon': True, 'use_adjusted_lr': True, **usual},
            {'params': others, 'use_muon': False, 'betas': (0.9, 0.95), **usual},
        ]
    )
