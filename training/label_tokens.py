# SPDX-License-Identifier: Apache-2.0
"""Labels of the classical perceiver as one token each.

Byte-level BPE has a token for each word of ` red tall object`. To find that item in a scene, a
small model must then match a colour and a shape at once, and takes items that share one of them
for each other. As a token of its own, the label is matched as any word is. That takes training:
a label that hardly any text has stays the words that it is made of, and so that these are still
read well, a share of the scenes is told in words.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.vocabulary import COLOURS, SHAPES
from tokenizers import Tokenizer
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from datasets import Dataset

# With the space before: labels stand inside of sentences, and decoding gives the space back.
_LABELS = [f' {colour.name} {shape} object' for colour in COLOURS for shape in SHAPES]
# Questions about what is not there name a label now and then that no scene has.
_MIN_SHARE = 0.01


def set_label_tokens(tokenizer: Any, model: Any, texts: Sequence[str]) -> tuple[Any, list[str]]:
    """Make tokens of the labels that at least one text in a hundred has, and of no others.

    The embedding of a new one begins as the mean of those of colour and shape.

    Returns:
        The tokenizer, and the labels that have a token.
    """
    had = {label: tokenizer(label)['input_ids'] for label in _LABELS}
    found: Counter[str] = Counter()
    for text in texts:
        found.update(label for label in _LABELS if label in text)
    labels = [label for label in _LABELS if found[label] >= max(1, _MIN_SHARE * len(texts))]

    tokenizer = in_words(tokenizer)
    words = len(tokenizer)
    tokenizer.add_tokens(labels)
    old = model.get_input_embeddings().weight.detach().clone()
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    with torch.no_grad():
        embeddings = model.get_input_embeddings().weight
        for number, label in enumerate(labels):
            ids = had[label]
            alone = ids if len(ids) == 1 else tokenizer(label.removesuffix(' object'))['input_ids']
            embeddings[words + number] = old[alone].mean(0)
    return tokenizer, labels


def in_words(tokenizer: Any) -> Any:
    """The same tokenizer without tokens for labels."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    state['added_tokens'] = [
        token for token in state['added_tokens'] if token['content'] not in _LABELS
    ]
    plain = type(tokenizer)(
        tokenizer_object=Tokenizer.from_str(json.dumps(state)),
        eos_token=tokenizer.eos_token,
        pad_token=tokenizer.pad_token,
        extra_special_tokens=tokenizer.all_special_tokens,
    )
    plain.chat_template = tokenizer.chat_template
    return plain


def label_words(tokenizer: Any) -> dict[int, list[int]]:
    """The words of each label that is a token: token ids by its id."""
    plain = in_words(tokenizer)
    known = tokenizer.get_added_vocab()
    return {known[label]: plain(label)['input_ids'] for label in _LABELS if label in known}


def encoded(rows: Dataset, tokenizer: Any) -> Dataset:
    """Conversations as token ids for TRL; those with `in_words` without tokens for labels."""
    words = label_words(tokenizer)

    def ids(messages: list[dict[str, str]], in_words: bool, **options: bool) -> list[int]:
        told = tokenizer.apply_chat_template(messages, return_dict=True, **options)['input_ids']
        return list(chain.from_iterable(words.get(i, [i]) for i in told)) if in_words else told

    def encode(row: dict[str, Any]) -> dict[str, list[int]]:
        prompt = ids(row['prompt'], row['in_words'], add_generation_prompt=True)
        whole = ids(row['prompt'] + row['completion'], row['in_words'])
        return {'input_ids': whole, 'labels': [-100] * len(prompt) + whole[len(prompt) :]}

    return rows.map(encode, remove_columns=rows.column_names)
