# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip('torch')
pytest.importorskip('transformers')

from datasets import Dataset
import torch
from transformers import AutoModelForCausalLM

from training.label_tokens import encoded, in_words, set_label_tokens
from training.nano import build_model, load_tokenizer, NanoSize, train_tokenizer

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

SCENE = '[3] 2.0 s: New: red tall object 5° left; blue flat object ahead 1.2 m. Gone: red object.'
RED, BLUE = ' red tall object', ' blue flat object'


def _start() -> tuple[Any, Any]:
    tokenizer = train_tokenizer([SCENE, ' red blue tall flat turned'] * 5, 320)
    return tokenizer, build_model(NanoSize(hidden_size=24, layers=1), tokenizer).eval()


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text)['input_ids']
    return ids


def test_a_label_is_one_token_that_begins_between_its_words(tmp_path: Path) -> None:
    words, model = _start()
    red, tall = (_ids(words, word) for word in (' red', ' tall'))
    turned = torch.tensor([_ids(words, 'turned left')])
    known = len(words)
    before = model(turned).logits
    tokenizer, labels = set_label_tokens(words, model, [SCENE])
    assert labels == [RED, BLUE]
    assert len(tokenizer) == known + 2

    ids = _ids(tokenizer, SCENE)
    assert tokenizer.decode(ids, skip_special_tokens=True) == SCENE
    told = [tokenizer.decode(token) for token in ids]
    assert told.count(RED) == told.count(BLUE) == 1
    # What no row had, and what is no label, is said in words as before.
    for text in (' blue tall object', ' red object', 'turned left'):
        assert _ids(tokenizer, text) == _ids(words, text)
    after = model(turned).logits
    assert torch.allclose(after[..., :known], before)
    embeddings = model.get_input_embeddings().weight
    assert torch.allclose(embeddings[_ids(tokenizer, RED)[0]], embeddings[red + tall].mean(0))

    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.allclose(loaded(turned).logits, after)
    again = load_tokenizer(tmp_path)
    conversation = [{'role': 'user', 'content': SCENE}]
    assert again.apply_chat_template(conversation) == tokenizer.apply_chat_template(conversation)
    assert again.all_special_tokens == words.all_special_tokens


def test_tokens_of_labels_that_no_row_has_are_dropped() -> None:
    words, model = _start()
    tokenizer, _ = set_label_tokens(words, model, [SCENE])
    with torch.no_grad():
        learned = model.get_input_embeddings().weight[_ids(tokenizer, BLUE)[0]].normal_().clone()
    tokenizer, labels = set_label_tokens(tokenizer, model, ['a blue flat object'] * 199 + [SCENE])
    assert labels == [BLUE]
    assert _ids(tokenizer, RED) == _ids(words, RED)
    kept = model.get_input_embeddings().weight[_ids(tokenizer, BLUE)[0]]
    assert torch.equal(kept, learned)
    assert in_words(tokenizer).get_vocab() == words.get_vocab()


def test_a_row_in_words_is_read_as_if_labels_had_no_tokens() -> None:
    words, model = _start()
    tokenizer, _ = set_label_tokens(words, model, [SCENE])
    row = {
        'prompt': [{'role': 'user', 'content': SCENE}],
        'completion': [{'role': 'assistant', 'content': 'red tall object'}],
    }
    rows = Dataset.from_list([row | {'in_words': False}, row | {'in_words': True}])
    for read, by in zip(encoded(rows, tokenizer), (tokenizer, words), strict=True):
        whole = by.apply_chat_template(row['prompt'] + row['completion'])['input_ids']
        assert read['input_ids'] == whole
        answered = [token for token in read['labels'] if token != -100]
        assert by.decode(answered) == 'red tall object<|im_end|>\n'
        assert read['labels'] == [-100] * (len(whole) - len(answered)) + whole[-len(answered) :]
