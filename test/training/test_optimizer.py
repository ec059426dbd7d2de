# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

pytest.importorskip('torch')
pytest.importorskip('trl')

from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForCausalLM
from trl import SFTConfig

from test.tiny_models import save_language_model
from training.sft import muon

if TYPE_CHECKING:
    from pathlib import Path

RATE = 0.01


@pytest.fixture
def model(tmp_path: Path) -> torch.nn.Module:
    save_language_model(tmp_path)
    made: torch.nn.Module = AutoModelForCausalLM.from_pretrained(tmp_path)
    return made


def optimizer_of(model: torch.nn.Module, out: Path) -> torch.optim.Optimizer:
    return muon(model, SFTConfig(str(out), use_cpu=True, bf16=False, learning_rate=RATE))


def test_matrices_of_layers_alone_are_learned_by_muon(
    model: torch.nn.Module, tmp_path: Path
) -> None:
    names = {id(weight): name for name, weight in model.named_parameters()}
    groups = optimizer_of(model, tmp_path).param_groups
    by_muon, others = ({names[id(weight)] for weight in group['params']} for group in groups)
    assert by_muon == {name for name in names.values() if name.endswith('_proj.weight')}
    assert 'model.embed_tokens.weight' in others
    assert by_muon | others == set(names.values())
    assert len(groups[0]['params']) + len(groups[1]['params']) == len(names)


def test_frozen_weights_are_left_out(model: torch.nn.Module, tmp_path: Path) -> None:
    for weight in model.parameters():
        weight.requires_grad = False
    kept = next(weight for name, weight in model.named_parameters() if 'q_proj.weight' in name)
    kept.requires_grad = True
    groups = optimizer_of(model, tmp_path).param_groups
    assert [weight is kept for group in groups for weight in group['params']] == [True]


def test_step_of_a_matrix_turns_and_has_the_size_of_one_of_adamw(
    model: torch.nn.Module, tmp_path: Path
) -> None:
    weight = next(weight for name, weight in model.named_parameters() if 'up_proj' in name)
    before = weight.detach().clone()
    optimizer = optimizer_of(model, tmp_path)
    left, _, right = torch.linalg.svd(before, full_matrices=False)
    weight.grad = left @ torch.diag(torch.linspace(1, 10, left.shape[1])) @ right
    optimizer.step()
    step = before - weight.detach()
    strengths = torch.linalg.svdvals(step)  # those of the gradient go from 1 to 10
    assert strengths[0] < 2 * strengths[-1]
    assert 0.05 * RATE < step.square().mean().sqrt() < 0.5 * RATE
