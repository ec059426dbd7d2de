# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

pytest.importorskip('torch')
pytest.importorskip('transformers')

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from training.run.shared_prefix import give_room


def caches(tokens: int, rows: int = 3) -> tuple[DynamicCache, DynamicCache]:
    """A plain cache and a roomy one that were told the same."""
    rng = torch.Generator().manual_seed(0)
    plain, roomy = DynamicCache(), DynamicCache()
    for cache in (plain, roomy):
        cache.layers = [DynamicLayer(), DynamicLayer()]
    give_room(roomy)
    for _ in range(tokens):
        for layer in range(2):
            keys, values = torch.randn(2, rows, 2, 1, 4, generator=rng)
            told = [cache.update(keys, values, layer) for cache in (plain, roomy)]
            for one, other in zip(*told, strict=True):
                torch.testing.assert_close(one, other)
    return plain, roomy


def test_it_holds_what_a_plain_cache_holds_also_beyond_its_room() -> None:
    plain, roomy = caches(200)
    assert roomy.get_seq_length() == plain.get_seq_length() == 200


def test_a_token_is_written_where_the_others_are() -> None:
    _, roomy = caches(5)
    place = roomy.layers[0].keys.data_ptr()
    roomy.update(torch.ones(3, 2, 1, 4), torch.ones(3, 2, 1, 4), 0)
    assert roomy.layers[0].keys.data_ptr() == place
    assert roomy.layers[0].keys.shape == (3, 2, 6, 4)


def test_rows_that_are_taken_out_take_no_others_with_them() -> None:
    plain, roomy = caches(5)
    for cache in (plain, roomy):
        cache.batch_select_indices(torch.tensor([2, 0]))
        cache.update(torch.ones(2, 2, 1, 4), torch.zeros(2, 2, 1, 4), 0)
    torch.testing.assert_close(roomy.layers[0].keys, plain.layers[0].keys)
    torch.testing.assert_close(roomy.layers[0].values, plain.layers[0].values)


def test_a_cache_that_holds_something_is_left_alone() -> None:
    plain, _ = caches(2)
    layers = list(plain.layers)
    give_room(plain)
    assert all(one is other for one, other in zip(plain.layers, layers, strict=True))
