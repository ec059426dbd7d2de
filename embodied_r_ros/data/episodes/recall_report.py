# SPDX-License-Identifier: Apache-2.0
"""What recall found, for people and programs: lines, JSON, pictures; and a model's word on each.

Texts of recordings are data: each stands on one line, without what could pass for a tag.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone
import re
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.files import make_empty_folder, write_whole
from embodied_r_ros.common.untrusted import as_data
from embodied_r_ros.core.reasoning.question import Refusal
from embodied_r_ros.core.types.answers import AnswerKind
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.core.types.images import decode_image, encode_image, image_format
from embodied_r_ros.data.episodes.episode import read_keyframes
from embodied_r_ros.data.episodes.offline import ask_about, map_of_episode, RecordingScene
from embodied_r_ros.data.episodes.recall import Order, read_safely, recording_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from embodied_r_ros.core.chat.settings import ChatConfig
    from embodied_r_ros.core.reasoning.question import Question, ReasonerConfig
    from embodied_r_ros.data.episodes.recall import (
        Reader,
        RecallHit,
        RecallResult,
        RecordingRecall,
    )

_CLOCK_IS_SET_NS = 10**18  # 2001


def keyframe_pictures(
    bag: Path, stamps: Iterable[tuple[str, int]], max_side_px: int = 0
) -> dict[tuple[str, int], bytes]:
    """The pictures of keyframes, as JPEG or as they were recorded.

    Args:
        bag: The recording.
        stamps: Cameras and stamps [ns] of the keyframes.
        max_side_px: Make them as small as this; 0: as they are.

    Raises:
        BagError: It is no readable bag.
        ImageError: A picture cannot be decoded.
    """
    wanted = set(stamps)
    pictures: dict[tuple[str, int], bytes] = {}
    for keyframe in read_keyframes(bag, wanted):
        data = keyframe.image.data
        if data and max_side_px:
            data = encode_image(decode_image(data), max_side_px=max_side_px).data
        if data:
            pictures[keyframe.camera, keyframe.stamp_ns] = data
        if len(pictures) == len(wanted):
            break
    return pictures


def write_keyframes(out: Path, result: RecallResult, bags: Iterable[Path]) -> list[str]:
    """Write the keyframes that show what was found as pictures; returns their paths.

    Raises:
        InputError: The folder is not empty, or cannot be written.
    """
    make_empty_folder(out)
    by_name = {recording_name(bag): bag for bag in bags}
    paths = []
    for one in result.recordings:
        hits = {(hit.camera, hit.stamp_ns): hit for hit in one.hits}
        for at, data in keyframe_pictures(by_name[one.name], hits).items():
            camera = re.sub(r'[^\w-]+', '-', hits[at].camera) or 'camera'
            ending = '.jpg' if image_format(data) == 'jpeg' else f'.{image_format(data)}'
            path = out / f'{one.name}-{camera}-{hits[at].keyframe_id}{ending}'
            write_whole(path, data)
            paths.append(str(path))
    return sorted(paths)


@dataclass(frozen=True)
class RecordingAnswer:
    """What a model says of one recording."""

    recording: str
    text: str = ''  # empty: unknown, or there is no answer
    think: str = ''
    model: str = ''
    keyframes: int = 0  # whose deltas it could read
    problem: str = ''  # why there is none


def ask_each(
    bags: Iterable[Path],
    question: Question,
    chat: ChatConfig | None,
    config: ReasonerConfig,
    *,
    read: Reader | None = None,
) -> Iterator[RecordingAnswer]:
    """Ask a model about each of many recordings, by what was perceived when it was made.

    Args:
        bags: The recordings; one that cannot be read, or was not perceived, says so.
        question: The question.
        chat: Where the model is served; None: the tools of each scene answer.
        config: How it is asked.
        read: Reads a recording; None: from its file.

    Raises:
        InputError: The model server does not answer.
    """
    for bag in bags:
        one = RecordingAnswer(recording_name(bag))
        episode, problem = read_safely(bag, read)
        if episode is None:
            yield replace(one, problem=problem)
            continue
        scene = RecordingScene(episode.deltas, scene_map=map_of_episode(episode))
        one = replace(one, keyframes=len(episode.deltas))
        try:
            answer = ask_about(scene, question, chat, config, lambda *_: None)
        except Refusal as refusal:
            yield replace(one, problem=str(refusal))
            continue
        text = '' if answer.kind is AnswerKind.UNKNOWN else answer.text
        yield replace(one, text=text, think=answer.think, model=answer.model.name)


def answer_line(answer: RecordingAnswer) -> str:
    """What a model says of a recording, for people."""
    text = answer.text or (f'no answer ({answer.problem})' if answer.problem else 'unknown')
    return f'{answer.recording}: {as_data(text)}'


def recall_to_json(result: RecallResult) -> dict[str, Any]:
    """Plain JSON values of what was found; texts of recordings are data, on one line each."""
    query = result.query
    return {
        'question': query.text,
        'looked_for': query.in_words(),
        'searched': result.searched,
        'recordings': [_recording_to_json(one) for one in result.recordings],
        'problems': [{'recording': one.name, 'problem': one.problem} for one in result.problems],
    }


def _recording_to_json(one: RecordingRecall) -> dict[str, Any]:
    return {
        'recording': one.name,
        'scene_id': as_data(one.scene_id),
        'keyframes': one.keyframes,
        'failed': one.failed,
        'hits': one.count,
        'first_ns': one.first_ns or None,
        'last_ns': one.last_ns or None,
        'shown_by': [_hit_to_json(hit) for hit in one.hits],
    }


def _hit_to_json(hit: RecallHit) -> dict[str, Any]:
    return {
        'camera': as_data(hit.camera),
        'keyframe': hit.keyframe_id,
        'stamp_ns': hit.stamp_ns,
        'offset_s': round(hit.offset_s, 3),
        'label': as_data(hit.label),
        'direction': hit.direction,
        'distance_m': None if hit.distance_m is None else round(hit.distance_m, 2),
        'confidence': None if hit.confidence is None else round(hit.confidence, 2),
        'box': [round(edge, 4) for edge in hit.box] if hit.box else None,
        'position': [round(value, 2) for value in hit.position] if hit.position else None,
        'frame_id': as_data(hit.frame_id),
    }


def recall_lines(result: RecallResult) -> list[str]:
    """What was found, for people."""
    query, count = result.query, len(result.recordings)
    verb = 'shows' if count == 1 else 'show'
    what = query.in_words()
    readable = ' that can be searched' if result.problems else ''
    many = f'{count} of {result.searched} recordings{readable} {verb} {what}'
    if not count:
        many = f'none of {result.searched} recordings{readable} shows {what}'
    lines = [many + '.']
    newest = result.newest
    if query.order is Order.LAST and newest and newest.hits:
        lines.append(f'last: {newest.name}, {_hit_line(newest.hits[-1])}')
    for one in result.recordings:
        failed = f', {one.failed} more not perceived' if one.failed else ''
        scene = f' ({as_data(one.scene_id)})' if one.scene_id not in {'', one.name} else ''
        times = f', {_time_text(one.first_ns)} to {_time_text(one.last_ns)}' if one.count else ''
        shown = f'{one.count} of {one.keyframes} keyframes{failed}{times}'
        lines.append(f'{one.name}{scene}: {shown}')
        lines += [f'  {_hit_line(hit)}' for hit in one.hits]
    return lines


def _time_text(stamp_ns: int) -> str:
    """A stamp in words: a time of day, where the clock of the recording was set."""
    if stamp_ns < _CLOCK_IS_SET_NS:
        return f'{stamp_ns / NS_PER_S:.1f} s'
    return datetime.fromtimestamp(stamp_ns / NS_PER_S, timezone.utc).strftime(
        '%Y-%m-%d %H:%M:%S UTC'
    )


def _hit_line(hit: RecallHit) -> str:
    far = '' if hit.distance_m is None else f'{hit.distance_m:.1f} m'
    sure = '' if hit.confidence is None else f'({100 * hit.confidence:.0f} % sure)'
    seen = ' '.join(filter(None, (as_data(hit.label), hit.direction, far, sure)))
    return f'keyframe at {hit.offset_s:.1f} s ({as_data(hit.camera)}): {seen}'
