# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from embodied_r_ros.core.scene.memory import (
    estimate_tokens,
    LiveMemory,
    MemoryConfig,
    question_terms,
    scene_text,
)
from embodied_r_ros.core.types.deltas import (
    change_text,
    DeltaKind,
    Item,
    ItemStatus,
    row_deltas,
    SemanticDelta,
)
from hypothesis import given
from hypothesis import strategies as st
import pytest

SECOND_NS = 1_000_000_000


def delta(index: int, *labels: str, action: str = 'moved forward 1.0 m') -> SemanticDelta:
    items = tuple(Item(label, ItemStatus.APPEARED, 0.5, -0.2, 0.1, 2.0) for label in labels)
    kind = DeltaKind.CHANGE if index else DeltaKind.FIRST
    return SemanticDelta(
        (index + 1) * SECOND_NS,
        kind,
        to_id=index,
        action=action if index else '',
        change=change_text(items),
        items=items,
    )


def long_walk(count: int) -> list[SemanticDelta]:
    return [delta(i, 'green flat object' if i == 3 else 'blue round object') for i in range(count)]


def test_short_history_stands_in_full() -> None:
    scene = scene_text([delta(0, 'red tall object'), delta(1)], frozenset(), MemoryConfig())
    assert scene.text == (
        '[1] 0.0 s: New: red tall object 30° left 10° down 2.0 m.\n'
        '[2] 1.0 s: moved forward 1.0 m. No object stands out.'
    )
    assert (scene.full, scene.merged, scene.omitted) == ((0, 1), 0, 0)


@pytest.mark.parametrize('count', [10, 100, 1000])
def test_any_history_fits_the_budget(count: int) -> None:
    config = MemoryConfig(token_budget=400)
    scene = scene_text(long_walk(count), question_terms('Where is the green one?'), config)
    assert sum(map(estimate_tokens, scene.text.splitlines())) <= config.token_budget
    assert len(scene.full) + scene.merged + scene.omitted == count
    assert scene.text.splitlines()[-1].startswith(f'[{count}]')


def test_what_the_question_is_about_is_kept_in_full() -> None:
    terms = question_terms('Where is the green flat object?')
    assert 3 in scene_text(long_walk(200), terms, MemoryConfig(token_budget=400)).full
    assert 3 not in scene_text(long_walk(200), frozenset(), MemoryConfig(token_budget=400)).full


def test_merged_run_says_the_composed_motion_and_what_was_seen() -> None:
    scene = scene_text(long_walk(100), frozenset(), MemoryConfig(token_budget=300))
    first = scene.text.splitlines()[0]
    assert first.startswith('[1-')
    last = int(first[3 : first.index(']')])
    assert f'moved forward {last - 1}.0 m.' in first
    assert first.endswith('Seen: blue round object; green flat object.')


def test_one_endless_delta_cannot_fill_the_prompt() -> None:
    config = MemoryConfig(token_budget=200)
    runaway = SemanticDelta(SECOND_NS, DeltaKind.FIRST, change='building ' * 20_000)
    scene = scene_text([runaway], frozenset(), config)
    assert len(scene.text) < 2 * config.token_budget + 40


def test_each_delta_of_a_run_that_has_no_room_is_counted_as_left_out() -> None:
    newest = replace(delta(12), change='a.' * 300)
    scene = scene_text([*long_walk(12), newest], frozenset(), MemoryConfig(token_budget=200))
    assert scene.text.startswith('(12 earlier ones are left out)\n[13] ')
    assert (scene.full, scene.merged, scene.omitted) == ((12,), 0, 12)


def test_failed_perception_reads_as_cannot_tell() -> None:
    failed = SemanticDelta(2 * SECOND_NS, DeltaKind.FAILED, error='server gone')
    scene = scene_text([delta(0, 'red tall object'), failed], frozenset(), MemoryConfig())
    assert scene.text.splitlines()[1] == '[2] 1.0 s: cannot tell.'
    assert 'None' not in scene.text


def test_rows_give_the_text_that_was_read_live() -> None:
    live = [*long_walk(60), SemanticDelta(100 * SECOND_NS, DeltaKind.FAILED, error='x')]
    rows = [SemanticDelta.from_row(d.to_row()) for d in live]
    config = MemoryConfig(token_budget=300)
    terms = question_terms('green?')
    assert scene_text(rows, terms, config) == scene_text(live, terms, config)


def test_cameras_are_named_only_where_there_are_several() -> None:
    left = SemanticDelta(SECOND_NS, DeltaKind.FIRST, change='A door.', camera='left')
    right = SemanticDelta(SECOND_NS, DeltaKind.FIRST, change='A wall.', camera='right')
    assert 'left' not in scene_text([left], frozenset(), MemoryConfig()).text
    assert '0.0 s, left: A door.' in scene_text([left, right], frozenset(), MemoryConfig()).text


def two_cameras(count: int) -> list[SemanticDelta]:
    """Two cameras of one robot that drives ahead: one looks ahead, the other to the left."""
    return [
        replace(delta(index, 'blue round object', action=action), camera=camera)
        for index in range(count)
        for camera, action in (
            ('front', 'moved forward 0.5 m, turned left 10°'),
            ('side', 'moved right 0.5 m, turned left 10°'),
        )
    ]


def test_merged_run_of_several_cameras_tells_the_motion_of_each() -> None:
    straight = [
        replace(d, action=d.action.partition(',')[0] if d.action else '') for d in two_cameras(40)
    ]
    line = scene_text(straight, frozenset(), MemoryConfig(token_budget=400)).text.splitlines()[0]
    last = int(line[3 : line.index(']')])
    moves = {'front': (last + 1) // 2 - 1, 'side': last // 2 - 1}
    assert f' front: moved forward {0.5 * moves["front"]:.1f} m.' in line
    assert f' side: moved right {0.5 * moves["side"]:.1f} m.' in line
    assert line.endswith('Seen: blue round object.')


def test_camera_that_ended_early_does_not_hide_the_motion_of_another() -> None:
    front = [replace(delta(index), camera='front') for index in range(2)]
    rear = [
        replace(delta(index, action='turned left 10°' if index > 2 else ''), camera='rear')
        for index in range(2, 60)
    ]
    line = scene_text([*front, *rear], frozenset(), MemoryConfig(token_budget=400)).text
    line = line.splitlines()[0]
    last = int(line[3 : line.index(']')])
    assert f' front: moved forward 1.0 m. rear: turned left {10 * (last - 3)}°.' in line


def test_rows_of_several_cameras_give_the_text_that_was_read_live() -> None:
    live = two_cameras(30)
    rows = [SemanticDelta.from_row(d) for d in row_deltas(live)]
    for budget in (300, 600, 5000):
        config = MemoryConfig(token_budget=budget)
        assert scene_text(rows, frozenset(), config) == scene_text(live, frozenset(), config)


def test_rows_name_cameras_only_where_there_are_several() -> None:
    assert {d['camera'] for d in row_deltas(two_cameras(3))} == {'front', 'side'}
    one = [replace(d, camera='front') for d in long_walk(3)]
    assert all(set(d) == {'stamp_ns', 'action', 'change', 'items'} for d in row_deltas(one))


@pytest.mark.parametrize(
    'text',
    ['前方に赤い椅子があり、左側に大きな冷蔵庫が見えます。', 'красный стул', '🪑🪑', 'كرسي', '٣'],
)
def test_estimate_of_other_scripts_is_no_less_than_their_bytes(text: str) -> None:
    assert estimate_tokens(text) > len(text.replace(' ', '').encode())


def test_estimate_of_our_own_words_stays() -> None:
    assert estimate_tokens('turned left 30°. New: red tall object 10° down 2.1 m.') == 24


@pytest.mark.parametrize('count', [1, 10, 100])
def test_scene_in_another_script_fits_the_budget(count: int) -> None:
    text = '前方に赤い椅子があり、左側に大きな冷蔵庫が見えます。' * 40
    seen = [SemanticDelta(i * SECOND_NS, DeltaKind.CHANGE, change=text) for i in range(count)]
    scene = scene_text(seen, frozenset(), MemoryConfig(token_budget=400))
    beyond_ascii = ''.join(char for char in scene.text if not char.isascii())
    assert len(beyond_ascii.encode()) <= 410
    assert '椅子' in scene.text


def test_each_delta_is_looked_at_a_few_times_however_many_there_are() -> None:
    looks = 0

    class Counted(SemanticDelta):
        def __getattribute__(self, name: str) -> object:
            nonlocal looks
            looks += name == 'camera'
            return super().__getattribute__(name)

    walk = [Counted(i * SECOND_NS, DeltaKind.CHANGE, change='A door.') for i in range(300)]
    scene_text(walk, frozenset(), MemoryConfig())
    assert looks <= 10 * len(walk)


def test_backward_jump_of_the_stamps_forgets() -> None:
    memory = LiveMemory(MemoryConfig())
    memory.add(delta(5))
    assert memory.resets == 0
    memory.add(delta(2))
    assert memory.resets == 1
    assert [d.to_id for d in memory.deltas()] == [2]


def test_another_camera_that_lags_is_no_jump() -> None:
    memory = LiveMemory(MemoryConfig())
    memory.add(delta(5))
    memory.add(SemanticDelta(3 * SECOND_NS, DeltaKind.FIRST, camera='rear'))
    assert memory.resets == 0
    assert len(memory.deltas()) == 2


def test_memory_is_bounded() -> None:
    memory = LiveMemory(MemoryConfig(max_deltas=3))
    for index in range(5):
        memory.add(delta(index))
    assert [d.to_id for d in memory.deltas()] == [2, 3, 4]
    assert memory.reset() == 3


@given(st.lists(st.text(max_size=60), max_size=12), st.integers(200, 400))
def test_any_text_fits_any_budget(texts: list[str], budget: int) -> None:
    deltas = [
        SemanticDelta((i + 1) * SECOND_NS, DeltaKind.CHANGE, action='stationary', change=text)
        for i, text in enumerate(texts)
    ]
    scene = scene_text(deltas, frozenset(), MemoryConfig(token_budget=budget))
    assert len(scene.full) + scene.merged + scene.omitted == len(texts)


def test_cameras_that_are_not_in_step_are_no_jump_of_time() -> None:
    memory = LiveMemory(MemoryConfig())
    for second, camera in ((1, 'front'), (5, 'rear'), (3, 'front')):
        memory.add(SemanticDelta(second * SECOND_NS, DeltaKind.CHANGE, camera=camera))
    assert memory.resets == 0
    assert len(memory.deltas()) == 3
