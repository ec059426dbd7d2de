# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from copy import deepcopy
from itertools import pairwise
from typing import Any, TYPE_CHECKING

import pytest

pytest.importorskip('torch')
pytest.importorskip('trl')

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM
from trl.trainer.utils import add_fused_lm_head

from training.data.batches import SceneCollator, scenes_together
from training.run.shared_prefix import share_prefixes, shared_columns

if TYPE_CHECKING:
    from torch import Tensor

PAD, END, WORDS = 0, 1, 24


@pytest.fixture
def models() -> tuple[Any, Any]:
    """The same random weights twice: as they come, and with shared prefixes."""
    torch.manual_seed(0)
    plain = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=WORDS,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            pad_token_id=PAD,
            eos_token_id=END,
        )
    )
    sharing = deepcopy(plain)
    for model in (plain, sharing):
        add_fused_lm_head(model, outputs=('log_probs', 'entropy'))
    share_prefixes(sharing)
    return plain, sharing


def groups(sizes: list[int], prompt: int, longest: int) -> tuple[Tensor, Tensor]:
    """Prompts of different lengths, each with completions of different lengths: ids and mask."""
    rng = torch.Generator().manual_seed(1)
    ids, mask = [], []
    for number, size in enumerate(sizes):
        own = torch.randint(2, WORDS, (prompt,), generator=rng)
        for row in range(size):
            said = torch.randint(2, WORDS, (longest,), generator=rng)
            ids.append(torch.cat([own, said]))
            there = torch.ones(prompt + longest, dtype=torch.long)
            there[: 3 * number] = 0
            there[prompt + 2 + (11 * (row + number)) % (longest - 2) :] = 0
            mask.append(there)
    told = torch.stack(mask)
    return torch.stack(ids) * told, told


def computed_positions(model: Any, **inputs: Any) -> tuple[Any, int]:
    counted = []
    hook = model.get_input_embeddings().register_forward_hook(
        lambda _, given, __: counted.append(given[0].numel())
    )
    output = model(**inputs)
    hook.remove()
    return output, sum(counted)


@pytest.mark.parametrize('sizes', [[8, 8], [3, 5, 1], [2, 17]])
def test_shared_prompts_change_neither_figures_nor_gradients(
    models: tuple[Any, Any], sizes: list[int]
) -> None:
    prompt, longest = 40, 60
    ids, mask = groups(sizes, prompt, longest)
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :prompt] = -100
    gradients, positions, figures = [], [], []
    for model in models:
        output, count = computed_positions(
            model, input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True
        )
        said = output.log_probs[:, -longest:]
        # Each row weighs differently, as advantages do.
        (said * torch.linspace(-1, 1, len(ids))[:, None]).sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
        positions.append(count)
        figures.append(torch.stack([said.detach(), output.entropy[:, -longest:].detach()]))
    torch.testing.assert_close(figures[1], figures[0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-5, rtol=1e-4)
    assert positions[1] < 0.75 * positions[0]


@pytest.mark.parametrize('temperature', [0.0, 1.5])
def test_generation_says_the_same_and_leaves_out_what_has_ended(
    models: tuple[Any, Any], temperature: float
) -> None:
    ids, mask = groups([4, 4], prompt=30, longest=3)
    ids, mask = ids[:, :30], mask[:, :30]
    how: dict[str, Any] = {'do_sample': temperature > 0, 'suppress_tokens': [PAD]}
    if temperature:
        how['temperature'] = temperature
    said, positions = [], []
    for model in models:
        torch.manual_seed(7)
        counted: list[int] = []
        hook = model.get_input_embeddings().register_forward_hook(
            lambda _, given, __, counted=counted: counted.append(given[0].numel())
        )
        said.append(model.generate(ids, attention_mask=mask, max_new_tokens=40, **how))
        hook.remove()
        positions.append(counted)
    assert torch.equal(*said)
    assert positions[1][0] + positions[1][1] < positions[0][0]  # the prompts
    if temperature:
        ended = (said[0] == PAD)[:, 30:].any(1)
        assert ended.any(), 'no completion ended before the others: nothing was tested'
        assert positions[1][-1] < positions[0][-1]


@pytest.mark.parametrize('pad', [PAD, None])
def test_models_whose_config_names_no_padding_generate_too(
    models: tuple[Any, Any], pad: int | None
) -> None:
    ids, mask = groups([4, 4], prompt=30, longest=3)
    said = []
    for model in models:
        model.config.pad_token_id, model.generation_config.pad_token_id = None, pad
        said.append(model.generate(ids[:, :30], attention_mask=mask[:, :30], max_new_tokens=10))
    assert torch.equal(*said)


def shared_prefix_of(ids: Tensor, mask: Tensor, limit: int) -> tuple[int, list[int]] | None:
    found = shared_columns(ids, mask, limit)
    return found and (found[0], found[1].tolist())


def test_as_many_columns_are_shared_as_save_most() -> None:
    ids = torch.tensor([[5, 6, 7, 8, 9], [5, 6, 7, 8, 2], [5, 6, 3, 3, 3], [5, 6, 3, 3, 4]])
    mask = torch.ones_like(ids)
    assert shared_prefix_of(ids, mask, 4) == (4, [0, 0, 1, 1])
    assert shared_prefix_of(ids, mask, 2) == (2, [0, 0, 0, 0])
    assert shared_columns(ids, mask, 0) is None
    assert shared_columns(ids[:1], mask[:1], 4) is None
    # Padding is no token: what stands in its place is not looked at.
    assert shared_columns(torch.tensor([[1, 2], [3, 2]]), torch.tensor([[0, 1], [0, 1]]), 2)


def test_questions_about_a_scene_are_laid_out_so_that_it_ends_in_one_column(
    models: tuple[Any, Any],
) -> None:
    scenes = [[9] * 30, [8] * 20, [7] * 25]
    rows = [scene + [2 + n] * (2 + n) + [4, 5] for scene in scenes for n in range(3)]
    examples = [{'input_ids': r, 'labels': [-100] * (len(r) - 2) + [4, 5]} for r in rows]
    batch = SceneCollator(PAD, pad_to_multiple_of=8)([dict(e) for e in examples])
    ids, mask = batch['input_ids'], batch['attention_mask']
    assert ids.shape[1] % 8 == 0
    assert [ids[i][mask[i].bool()].tolist() for i in range(len(rows))] == rows
    assert shared_prefix_of(ids, mask, ids.shape[1]) == (32, [0, 0, 0, 1, 1, 1, 2, 2, 2])
    plain, sharing = models
    fused = {**batch, 'fused_lm_head': True}
    assert sharing(**fused).log_probs.sum().item() == pytest.approx(
        plain(**fused).log_probs.sum().item(), rel=1e-4
    )


def test_scenes_stay_together_in_batches_of_like_length() -> None:
    scenes = [number // 5 for number in range(400)]
    examples = [{'prompt': [{'content': 'x' * (scene * 37 % 80)}]} for scene in scenes]
    order = scenes_together(examples, scenes, 20, seed=3)
    assert sorted(order) == list(range(400))
    lengths = [scenes[index] * 37 % 80 for index in order]
    torn = 0
    spreads = []
    for start in range(0, 400, 20):
        batch = order[start : start + 20]
        torn += sum(scenes[a] != scenes[b] for a, b in pairwise(batch))
        spreads.append(max(lengths[start : start + 20]) - min(lengths[start : start + 20]))
    assert torn == 20 * 3, 'four scenes of five in each batch of twenty'
    assert sum(spreads) / len(spreads) < 25
    assert order != scenes_together(examples, scenes, 20, seed=4)
