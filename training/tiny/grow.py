# SPDX-License-Identifier: Apache-2.0
"""A trained model grows: more words and numbers are tokens of their own, more layers follow.

What it says of other text stays as it was. A small model compares two numbers, or turns from one
direction to another, far sooner where each is one token whose embedding begins as a smooth
function of its value.
"""

from __future__ import annotations

from collections import Counter
import copy
import math
import re
from typing import Any, TYPE_CHECKING

from embodied_r_ros.scene.map_relations import metres_text, ordinal, turn_text
import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Words behind a space, as they stand in sentences, and those that begin a line.
_WORD = re.compile(r' [A-Za-z]{2,}|(?<![A-Za-z ])[A-Z][a-z]{2,}')
# Numbers of the text about a place.
_PLACES = range(1, 51)  # of things in the order of time
_DEGREES = range(0, 360, 10)
_TENTHS_M, _METRES = range(100), range(10, 31)
_CIRCLES = (1, 2, 3, 5, 9, 18)  # waves around the circle, for directions
_HALF_WAVES = (1, 2, 4, 8, 16, 32)  # along a row of numbers
_OWN_SHARE = 0.4  # of an embedding that tells a number from its neighbours


def frequent_words(texts: Iterable[str], tokenizer: Any, count: int) -> list[str]:
    """The words whose tokens cost the most in some texts, the costliest first.

    A word is one that is at least two tokens; its cost is how many tokens it would save.
    """
    counts = Counter(word for text in texts for word in _WORD.findall(text))
    saved = {
        word: many * (len(ids) - 1)
        for word, many in counts.items()
        if len(ids := tokenizer(word, add_special_tokens=False)['input_ids']) > 1
    }
    return sorted(saved, key=lambda word: (-saved[word], word))[:count]


def add_words(tokenizer: Any, model: Any, words: Sequence[str], parts: Sequence[str] = ()) -> None:
    """Make words tokens; the embedding of each begins as the mean of those of its old tokens.

    Args:
        tokenizer: Gets the tokens.
        model: Gets their embeddings.
        words: New ones.
        parts: The texts whose tokens count in place of those of the words.
    """
    ids_of_parts = [
        tokenizer(part, add_special_tokens=False)['input_ids'] for part in parts or words
    ]
    first = len(tokenizer)
    tokenizer.add_tokens(list(words))
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    with torch.no_grad():
        embeddings = model.get_input_embeddings().weight
        for number, ids in enumerate(ids_of_parts):
            embeddings[first + number] = embeddings[ids].mean(0)


def add_layers(model: Any, count: int) -> Any:
    """The same model with more layers, spread among the old ones, that change nothing yet.

    A new layer is a copy of the one before it whose outputs are all zero.

    Args:
        model: Of the Llama family, with its layers in `model.model.layers`.
        count: How many layers it gets.
    """
    old = list(model.model.layers)
    after = {round((number + 1) * len(old) / count) - 1 for number in range(count)}
    layers = []
    for index, layer in enumerate(old):
        layers.append(layer)
        if index in after:
            new = copy.deepcopy(layer)
            with torch.no_grad():
                new.self_attn.o_proj.weight.zero_()
                new.mlp.down_proj.weight.zero_()
            layers.append(new)
    for index, layer in enumerate(layers):
        layer.self_attn.layer_idx = index
    model.model.layers = torch.nn.ModuleList(layers)
    model.config.num_hidden_layers = len(layers)
    model.config.layer_types = ['full_attention'] * len(layers)
    return model


def number_groups() -> dict[str, list[tuple[str, float]]]:
    """Texts of numbers, as they stand behind a space, and where each is along its row, 0 to 1.

    Of directions the row is a circle, whose end is its beginning.
    """
    metres = [value / 10 for value in _TENTHS_M] + [float(value) for value in _METRES]
    turns = [(degrees + 180) % 360 - 180 for degrees in _DEGREES if degrees]
    return {
        # Nearer things are further apart here, as in what is asked of them.
        'metres': [
            (f' {metres_text(value)}', math.log1p(value) / math.log1p(_METRES[-1]))
            for value in metres
        ],
        'directions': [(f' at {degrees}°', degrees / 360) for degrees in _DEGREES],
        'turns': [
            (f' {turn_text(180 if turn == -180 else turn)}', turn % 360 / 360) for turn in turns
        ],
        'first sights': [(f' came {ordinal(n)}', n / _PLACES[-1]) for n in _PLACES],
        'reached': [(f' reached {ordinal(n)}', n / _PLACES[-1]) for n in _PLACES],
    }


def add_number_tokens(tokenizer: Any, model: Any, seed: int = 0) -> int:
    """Add the numbers that a tokenizer does not have yet, and their embeddings to its model.

    Returns:
        How many were added.
    """
    generator = torch.Generator().manual_seed(seed)
    added = 0
    for name, group in number_groups().items():
        new = [(text, at) for text, at in group if len(tokenizer(text)['input_ids']) > 1]
        if not new:
            continue
        scale = model.get_input_embeddings().weight.detach().std()
        first = len(tokenizer)
        add_words(tokenizer, model, [text for text, _ in new])
        is_circle = name in ('directions', 'turns')
        smooth = _smooth([at for _, at in new], is_circle, scale, generator, model)
        with torch.no_grad():
            weight = model.get_input_embeddings().weight
            weight[first:] = weight[first:].mean(0) + smooth
        added += len(new)
    return added


def _smooth(
    places: list[float], is_circle: bool, scale: Any, generator: torch.Generator, model: Any
) -> Any:
    """Embeddings whose neighbours are alike, (N, D), with entries of about a scale."""
    waves, step = (_CIRCLES, math.tau) if is_circle else (_HALF_WAVES, math.pi)
    angles = step * torch.tensor(places)[:, None] * torch.tensor(waves, dtype=torch.float)
    features = torch.cat([angles.cos(), angles.sin()], 1) / math.sqrt(len(waves))
    width = model.get_input_embeddings().weight.shape[1]
    directions = torch.randn(features.shape[1], width, generator=generator)
    own = torch.randn(len(places), width, generator=generator)
    return scale * (features @ directions + _OWN_SHARE * own)
