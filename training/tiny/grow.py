# SPDX-License-Identifier: Apache-2.0
"""A trained model grows: more words are tokens of their own, and more layers follow the old ones.

Both leave what it says of other text as it was.
"""

from __future__ import annotations

from collections import Counter
import copy
import re
from typing import Any, TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Words behind a space, as they stand in sentences, and those that begin a line.
_WORD = re.compile(r' [A-Za-z]{2,}|(?<![A-Za-z ])[A-Z][a-z]{2,}')


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


def deepened(model: Any, count: int) -> Any:
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
