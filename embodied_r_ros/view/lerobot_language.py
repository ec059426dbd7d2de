# SPDX-License-Identifier: Apache-2.0
"""Language columns of LeRobot: questions and answers on frames, and how the camera moved.

https://huggingface.co/docs/lerobot/language_and_recipes. A question and its answer are a pair of
rows of style `vqa` on one frame, and how the camera moved is a row of style `motion`.
"""

from __future__ import annotations

from itertools import pairwise
import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.reasoning.completions import option_letter
from embodied_r_ros.types.units import NS_PER_S
from embodied_r_ros.view.recorded_frames import plain_name
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.episodes.episode import Episode
    from embodied_r_ros.questions.proofs import RecordedQuestion

EVENTS, PERSISTENT = 'language_events', 'language_persistent'
_NEVER_NULL = ('role', 'timestamp')


class FrameLanguage:
    """Language rows of the frames of an episode, of which each camera has one pair on a frame."""

    def __init__(self, stamps: Sequence[int], keys: Sequence[str], fps: int) -> None:
        self.events: list[list[dict[str, Any]]] = [[] for _ in stamps]
        self.count = 0
        self._stamps, self._keys, self._fps = stamps, keys, fps

    def add_question(self, question: RecordedQuestion) -> None:
        """Put a question and its answer on the frame of its moment, or the next free one."""
        named = f'observation.images.{plain_name(question.camera)}'
        key = named if named in self._keys else self._keys[0]
        wanted = round((question.stamp_ns - self._stamps[0]) * self._fps / NS_PER_S)
        wanted = min(max(wanted, 0), len(self._stamps) - 1)
        order = [*range(wanted, len(self._stamps)), *reversed(range(wanted))]
        free = (at for at in order if all(row['camera'] != key for row in self.events[at]))
        frame = next(free, None)
        if frame is None:  # more questions than frames
            return
        lines = [f'{option_letter(i)}. {text}' for i, text in enumerate(question.options)]
        answer = {
            'label': 'scene',
            'attribute': 'answer',
            'value': question.answer,
            'source': question.source,
        }
        for role, content in (
            ('user', '\n'.join([question.question, *lines])),
            ('assistant', json.dumps(answer, ensure_ascii=False)),
        ):
            row = {'role': role, 'content': content, 'style': 'vqa', 'camera': key}
            self.events[frame].append(row)
        self.count += 1


def motion_rows(episode: Episode, stamps: Sequence[int], fps: int) -> list[dict[str, Any]]:
    """How the camera moved, as rows that hold from a frame until the next row."""
    rows = {}
    for before, delta in pairwise(episode.deltas):
        frame = max(0, round((before.stamp_ns - stamps[0]) * fps / NS_PER_S))
        if delta.action and frame < len(stamps):
            rows[frame] = {
                'role': 'assistant',
                'content': delta.action,
                'style': 'motion',
                'timestamp': float(np.float32(frame / fps)),
                'camera': None,
            }
    return list(rows.values())


def language_column(frames: Sequence[list[dict[str, Any]]], *, is_event: bool) -> Any:
    """A language column as an Arrow array; no row calls a tool."""
    import pyarrow as pa

    rows = [row for frame in frames for row in frame]
    kinds = {'role': pa.string(), 'content': pa.string(), 'style': pa.string()}
    kinds |= {} if is_event else {'timestamp': pa.float32()}
    kinds |= {'camera': pa.string()}
    columns = [pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()]
    calls = pa.list_(pa.json_())
    fields = [pa.field(name, kind, name not in _NEVER_NULL) for name, kind in kinds.items()]
    structs = pa.StructArray.from_arrays(
        [*columns, pa.nulls(len(rows), calls)], fields=[*fields, pa.field('tool_calls', calls)]
    )
    ends = np.cumsum([0, *map(len, frames)])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), structs)
