# SPDX-License-Identifier: Apache-2.0
"""Names in people's words mean the labels of a scene that they name, and no others."""

from __future__ import annotations

from embodied_r_ros.core.scene.names import find_names, resolve
from embodied_r_ros.core.types.things import named_things, plural
from embodied_r_ros.core.types.vocabulary import COCO
import pytest

LABELS = (
    'sofa', 'office chair', 'dining table', 'tv', 'mini fridge', 'backpack', 'orange',
    'red tall object', 'red flat object', 'blue round object', 'computer mouse', 'robot',
)  # fmt: skip


@pytest.mark.parametrize(
    ('words', 'labels'),
    [
        ('couch', ['sofa']),
        ('the television', ['tv']),
        ('Sofas', ['sofa']),
        ('office chairs', ['office chair']),
        ('chair', ['office chair']),
        ('table', ['dining table']),
        ('fridge', ['mini fridge']),
        ('mouse', ['computer mouse']),
        ('mice', ['computer mouse']),
        ('orange', ['orange']),
        ('the robot', ['robot']),
        # Typing errors.
        ('bakpack', ['backpack']),
        ('televison', ['tv']),
        # Colours and shapes.
        ('the red one', ['red tall object', 'red flat object']),
        ('red things', ['red tall object', 'red flat object']),
        ('blue ball', ['blue round object']),
        ('ball', ['blue round object']),
        ('red pillar', ['red tall object']),
        ('red tall object', ['red tall object']),
        ('red round object', []),
        ('blue sofa', []),
        # Things that are not there, though some resemble them.
        ('piano', []),
        ('lamp', []),
        ('green one', []),
        ('wardrobe', []),
        ('bookshelf', []),
        ('quux', []),
        ('', []),
    ],
)
def test_names_mean_labels(words: str, labels: list[str]) -> None:
    assert list(resolve(words, LABELS).labels) == labels


@pytest.mark.parametrize('number_of', [str, plural])
def test_each_thing_of_the_tables_names_itself_among_all_others(number_of: type[str]) -> None:
    every = tuple(dict.fromkeys((*named_things(), *COCO)))
    for name in every:
        assert resolve(number_of(name), every).labels == (name,), name


def test_a_word_that_is_taken_for_another_is_told() -> None:
    assert resolve('bakpack', LABELS).is_guess
    assert resolve('ball', LABELS).is_guess
    assert not resolve('couch', LABELS).is_guess
    assert not resolve('office chairs', LABELS).is_guess


def test_what_has_a_name_of_its_own_is_not_taken_for_what_is_like_it() -> None:
    assert resolve('locker', ['cabinet']).labels == ()
    assert resolve('cupboard', ['cabinet']).labels == ('cabinet',)


def test_names_in_a_sentence_in_its_order() -> None:
    names = find_names('Is the couch nearer to the TV than the blue ball, or 2 chairs?', LABELS)
    assert [name.labels for name in names] == [
        ('sofa',), ('tv',), ('blue round object',), ('office chair',)
    ]  # fmt: skip
    assert [name.is_plural for name in names] == [False, False, False, True]


def test_words_that_are_verbs_name_things_only_after_an_article() -> None:
    assert find_names('Can you watch what I saw?', ['can', 'watch', 'saw']) == []
    (name,) = find_names('Where is the can?', ['can'])
    assert name.labels == ('can',)


def test_who_is_asked_is_no_thing_unless_the_scene_has_one() -> None:
    assert find_names('Which way did the robot turn?', ['sofa']) == []
    (name,) = find_names('Which way did the robot turn?', LABELS)
    assert name.labels == ('robot',)


@pytest.mark.parametrize('label', ['orange round object', 'black round object'])
def test_colours_that_only_a_model_names_are_colours(label: str) -> None:
    assert resolve('round objects', ('blue round object', label)).labels == (
        'blue round object',
        label,
    )
    assert resolve('orange', ('orange',)).kind == 'orange'
