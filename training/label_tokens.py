# SPDX-License-Identifier: Apache-2.0
"""Each label of the classical perceiver as one token.

Byte-level BPE has a token for each word of ` red tall object`. To find that item in a scene, a
small model must then match a colour and a shape at once, and takes items that share one of them
for each other. As a token of its own, the label is matched as any word is.
"""

from __future__ import annotations

from typing import Any

from embodied_r_ros.types.vocabulary import COLOURS, SHAPES
import torch

# With the space before: labels stand inside of sentences, and decoding gives the space back.
_LABELS = [f' {colour.name} {shape} object' for colour in COLOURS for shape in SHAPES]


def add_label_tokens(tokenizer: Any, model: Any) -> int:
    """Add the labels that a tokenizer does not have yet, and their embeddings to its model.

    An embedding begins as the mean of those of colour and shape.

    Returns:
        How many were added.
    """
    new = [label for label in _LABELS if len(tokenizer(label)['input_ids']) > 1]
    parts = [tokenizer(label.removesuffix(' object'))['input_ids'] for label in new]
    first = len(tokenizer)
    tokenizer.add_tokens(new)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    with torch.no_grad():
        embeddings = model.get_input_embeddings().weight
        for number, ids in enumerate(parts):
            embeddings[first + number] = embeddings[ids].mean(0)
    return len(new)
