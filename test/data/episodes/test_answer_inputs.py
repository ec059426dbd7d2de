# SPDX-License-Identifier: Apache-2.0
"""What answers were given from, where ids of deltas alone do not tell."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from embodied_r_ros.core.reasoning.prompts import build_prompt, image_prompt, shown_image
from embodied_r_ros.core.scene.memory import MemoryConfig
from embodied_r_ros.core.types.answers import Answer, AnswerKind
from embodied_r_ros.core.types.deltas import DeltaKind, SemanticDelta
from embodied_r_ros.core.types.images import encode_image
from embodied_r_ros.core.types.landmarks import Landmark, SceneMap
from embodied_r_ros.data.episodes.answers import AnswerLog, find_inputs, Inputs, Lost
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

SECOND_NS = 1_000_000_000
DEFAULT, SMALL = MemoryConfig(), MemoryConfig(token_budget=200)


def deltas_of_run(start: int, count: int) -> tuple[SemanticDelta, ...]:
    """Deltas of one run of an extractor, from second `start` on; ids count from 1."""
    return tuple(
        SemanticDelta(
            (start + i) * SECOND_NS,
            DeltaKind.CHANGE if i > 1 else DeltaKind.FIRST,
            to_id=i,
            action='moved forward 1.0 m' if i > 1 else '',
            change=f'In view: {"red thing; " * 9}{start + i}.',
        )
        for i in range(1, count + 1)
    )


def answer_from(deltas: Sequence[SemanticDelta], memory: MemoryConfig = DEFAULT) -> Answer:
    prompt = build_prompt('How many doors?', (), deltas, (), memory)
    return Answer(
        'run-1',
        'How many doors?',
        AnswerKind.NUMBER,
        delta_ids=tuple(delta.to_id for delta in deltas[prompt.scene.omitted :]),
        deltas_merged=prompt.scene.merged,
        deltas_omitted=prompt.scene.omitted,
        prompt=prompt.user,
        prompt_sha256=prompt.sha256(),
        observation_stamp_ns=deltas[-1].stamp_ns,
    )


def under_another_system_message(answer: Answer) -> Answer:
    return replace(answer, prompt='', prompt_sha256='0' * 64)


def test_digest_tells_which_run_and_budget_it_was() -> None:
    first, second = deltas_of_run(0, 30), deltas_of_run(100, 30)
    log = AnswerLog(deltas=first + second, memories=(DEFAULT, SMALL))
    found = find_inputs(answer_from(first, SMALL), log)
    assert isinstance(found, Inputs)
    assert (found.deltas, found.memory) == (first, SMALL)


def test_delta_that_only_the_recorder_heard_does_not_hide_the_others() -> None:
    seen = deltas_of_run(0, 5)
    late = replace(seen[0], to_id=77, change='Of an episode that was over.')
    found = find_inputs(answer_from(seen), AnswerLog(deltas=(*seen[:3], late, *seen[3:])))
    assert isinstance(found, Inputs)
    assert found.deltas == seen


def test_scene_map_of_a_prompt_is_found_by_its_revision() -> None:
    seen = deltas_of_run(0, 5)
    maps = [
        SceneMap((Landmark('door', (x, 0.0, 0.0)),), revision=revision)
        for x, revision in ((1.0, 7), (2.0, 8), (3.0, 7))
    ]
    prompt = build_prompt('How many doors?', (), seen, (), DEFAULT, maps[0])
    answer = replace(
        answer_from(seen), prompt=prompt.user, prompt_sha256=prompt.sha256(), map_revision=7
    )
    found = find_inputs(answer, AnswerLog(deltas=seen, maps=tuple(maps)))
    assert isinstance(found, Inputs)
    assert found.scene_map == maps[0]
    lost = find_inputs(answer, AnswerLog(deltas=seen, maps=(maps[1],)))
    assert isinstance(lost, Lost)
    assert lost.reason == 'the scene map of its prompt is not recorded'
    assert isinstance(find_inputs(answer, AnswerLog(deltas=seen, maps=(maps[2],))), Lost)


def test_prompt_of_a_map_alone_is_found() -> None:
    scene_map = SceneMap((Landmark('door', (1.0, 0.0, 0.0)),), revision=1)
    prompt = build_prompt('How many doors?', (), (), (), DEFAULT, scene_map)
    answer = Answer(
        'run-1',
        'How many doors?',
        AnswerKind.NUMBER,
        prompt=prompt.user,
        prompt_sha256=prompt.sha256(),
        map_revision=1,
    )
    found = find_inputs(answer, AnswerLog(deltas=deltas_of_run(0, 3), maps=(scene_map,)))
    assert isinstance(found, Inputs)
    assert (found.deltas, found.scene_map) == ((), scene_map)


def test_omitted_deltas_are_found_too() -> None:
    seen = (*deltas_of_run(0, 3), *deltas_of_run(100, 60))
    # As if the prompt had no room for the first two: they count in the lines that it has.
    ids = tuple(delta.to_id for delta in seen[2:])
    answer = replace(answer_from(seen, SMALL), delta_ids=ids, deltas_omitted=2)
    found = find_inputs(answer, AnswerLog(deltas=seen, memories=(SMALL,)))
    assert isinstance(found, Inputs)
    assert found.deltas == seen
    cut = find_inputs(answer, AnswerLog(deltas=seen[1:], memories=(SMALL,)))
    assert isinstance(cut, Lost)
    assert cut.reason == 'not all deltas of its prompt are recorded'


def test_likeliest_prompt_is_of_the_same_observation_and_budget() -> None:
    first, second = deltas_of_run(0, 30), deltas_of_run(100, 30)
    log = AnswerLog(deltas=first + second, memories=(DEFAULT, SMALL))
    given = answer_from(first, SMALL)
    found = find_inputs(under_another_system_message(given), log)
    assert isinstance(found, Lost)
    assert found.instead is not None
    assert found.instead.user == given.prompt


def test_whole_recorded_text_is_sent_before_any_likely_prompt() -> None:
    seen = deltas_of_run(0, 5)
    given = answer_from(seen)
    found = find_inputs(given, AnswerLog(deltas=(*seen[:4], replace(seen[4], change='No.'))))
    assert isinstance(found, Lost)
    assert found.reason == 'its prompt cannot be built again: another digest'
    assert found.instead is not None
    assert found.instead.user == given.prompt


def test_what_was_shown_is_shown_again_from_the_recorded_keyframe() -> None:
    view = encode_image(np.full((900, 1200, 3), 90, np.uint8))
    prompt = image_prompt('How many doors?', (), shown_image(view))
    answer = replace(
        answer_from(deltas_of_run(0, 2)),
        delta_ids=(),
        prompt=prompt.user,
        prompt_sha256=prompt.sha256(),
        observation_stamp_ns=7,
    )
    found = find_inputs(answer, AnswerLog(images={7: view}))
    assert isinstance(found, Inputs)
    assert (found.deltas, found.prompt) == ((), prompt)
    lost = find_inputs(answer, AnswerLog())
    assert lost == Lost('the image of its prompt is not recorded')
    other = encode_image(np.full((90, 120, 3), 200, np.uint8))
    lost = find_inputs(answer, AnswerLog(images={7: other}))
    assert isinstance(lost, Lost)
    assert lost.reason.startswith('its prompt cannot be built again')
