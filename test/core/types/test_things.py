# SPDX-License-Identifier: Apache-2.0
"""The names of things: sizes that can be, near misses, and which names are held out."""

from __future__ import annotations

from embodied_r_ros.core.types.things import (
    BENCHMARK_NAMES,
    is_held_out_name,
    named_things,
    near_misses,
    other_names,
    plural,
    with_article,
)
import pytest


def test_vocabulary_is_wide_and_its_sizes_can_be() -> None:
    things = named_things()
    assert len(things) >= 300
    for thing in things.values():
        assert all(0.005 < extent < 3 for extent in thing.size), thing
        assert thing.support in {'floor', 'wall', 'top', 'ceiling'}
        assert thing.group


def test_near_misses_are_other_things_of_the_kind() -> None:
    assert {'stool', 'armchair', 'bench'} <= set(near_misses('chair'))
    assert 'chair' not in near_misses('chair')
    assert near_misses('unheard of') == ()


@pytest.mark.parametrize(
    ('name', 'same'), [('sofa', 'couch'), ('trash bin', 'trash can'), ('office chair', 'chair')]
)
def test_what_a_thing_may_be_called_as_well_is_no_near_miss(name: str, same: str) -> None:
    assert same not in near_misses(name)
    assert same in other_names(name)


def test_nearly_every_thing_has_a_near_miss() -> None:
    assert sum(not near_misses(name) for name in named_things()) == 0


def test_some_names_are_held_out_always_the_same() -> None:
    held_out = [name for name in named_things() if is_held_out_name(name)]
    assert 0.15 < len(held_out) / len(named_things()) < 0.27
    # Written down: what a model was trained on must not change with the table.
    names = ('bench', 'office chair', 'cooker', 'thermos', 'armchair', 'desk', 'wardrobe')
    assert [name for name in names if is_held_out_name(name)] == list(names[:4])


def test_names_of_the_benchmark_are_known_and_in_training() -> None:
    assert set(named_things()) >= BENCHMARK_NAMES
    assert not any(map(is_held_out_name, BENCHMARK_NAMES))


@pytest.mark.parametrize(
    ('name', 'several', 'one'),
    [
        ('bookshelf', 'bookshelves', 'a bookshelf'),
        ('box', 'boxes', 'a box'),
        ('orange', 'oranges', 'an orange'),
        ('glass', 'glasses', 'a glass'),
        ('battery', 'batteries', 'a battery'),
        ('toy', 'toys', 'a toy'),
        ('scissors', 'scissors', 'scissors'),
        ('utensil', 'utensils', 'a utensil'),
    ],
)
def test_grammar_of_one_and_several(name: str, several: str, one: str) -> None:
    assert (plural(name), with_article(name)) == (several, one)
