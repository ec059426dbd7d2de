# SPDX-License-Identifier: Apache-2.0
"""VSI-Bench's own wordings about the layouts of real rooms: right, unknown and wrong by type.

Directions, comparisons and routes are right where they are what the benchmark has as truth. Counts
have to be those of the layout, distances and sizes within 10 % of its boxes, whose sides run
along x, y and z. The order in which things appear is no matter of a layout and left out.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from contextlib import nullcontext
from dataclasses import replace
import json
import math
from pathlib import Path
import re
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.reasoning.question import Question, Refusal
from embodied_r_ros.core.reasoning.reasoner import Reasoner
from embodied_r_ros.core.scene.tools import Scene
from embodied_r_ros.core.types.answers import AnswerKind
from embodied_r_ros.core.types.landmarks import Landmark, SceneMap
from embodied_r_ros.serving.profiles import load_profile, reasoner_config, TOOLS
from embodied_r_ros.serving.served import served_reasoner
from pyarrow import parquet
from tqdm import tqdm

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from embodied_r_ros.core.types.answers import Answer

    Box = tuple[Sequence[float], Sequence[float]]

_WITHIN = 0.1
_LEFT_OUT = 'obj_appearance_order'
_LETTER = re.compile(r'^([A-Z])\. ')
_THINGS = {
    'object_counting': re.compile(r'How many (.+?)\(s\)'),
    'object_size_estimation': re.compile(r'height\) of the (.+?), measured'),
    'object_abs_distance': re.compile(r'between the (.+?) and the (.+?) \(in'),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add('layouts', type=Path, nargs='+', metavar='JSON', help='*_meta_info_val.json of VSI-Bench')
    add('--rows', type=Path, required=True, metavar='PARQUET', help='its questions')
    add('--profile', default=TOOLS, help='whose reasoner answers')
    add('--each', type=int, default=0, metavar='N', help='of each type, at most; 0: all')


def main(args: argparse.Namespace) -> int:
    """Ask, and print what was right; 1: a direction is wrong."""
    layouts = {k: v for path in args.layouts for k, v in json.loads(path.read_text()).items()}
    every = parquet.read_table(args.rows).to_pylist()
    rows = [row for row in every if row['scene_name'] in layouts]
    if not rows:
        msg = f'{args.rows} has no question about the rooms of {", ".join(map(str, args.layouts))}'
        raise InputError(msg)
    has_model = not load_profile(args.profile).has_no_model
    served = served_reasoner(args.profile, print) if has_model else nullcontext()
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    with served as chat:
        config = reasoner_config(profile=args.profile)
        reasoner = Reasoner(HttpChatClient(chat) if chat else None, config)
        for row in tqdm(rows, disable=None):
            counts = outcomes[row['question_type']]
            if row['question_type'] == _LEFT_OUT or (args.each and counts.total() == args.each):
                continue
            counts[outcome_of(reasoner, row, layouts[row['scene_name']])] += 1
    for kind, counts in sorted(outcomes.items()):
        if total := counts.total():
            parts = ', '.join(f'{counts[word]} {word}' for word in ('right', 'unknown', 'wrong'))
            print(f'{kind:32} {total:5}: {parts}')
    return int(any(counts['wrong'] for kind, counts in outcomes.items() if 'direction' in kind))


def outcome_of(reasoner: Reasoner, row: Mapping[str, Any], layout: Mapping[str, Any]) -> str:
    """Ask a question of VSI-Bench about its room: right, unknown or wrong."""
    options = tuple(_LETTER.sub('', option) for option in row['options'] or ())
    try:
        answer = reasoner.ask(Question(row['question'], options), Scene(place=map_of(layout)))
    except Refusal:
        return 'unknown'
    if answer.kind is AnswerKind.UNKNOWN:
        return 'unknown'
    if options:
        is_right = answer.option_index == ord(row['ground_truth']) - ord('A')
    else:
        is_right = any(_is_near(answer, truth) for truth in truths_of(row, layout))
    return 'right' if is_right else 'wrong'


def _is_near(answer: Answer, truth: float) -> bool:
    return abs(answer.number - truth) <= _WITHIN * truth + 1e-9


def map_of(layout: Mapping[str, Any]) -> SceneMap:
    """The map of a room by its boxes."""
    landmarks = [
        Landmark(
            name,
            tuple((low + high) / 2 for low, high in zip(*box, strict=True)),  # type: ignore[arg-type]
            size=tuple(high - low for low, high in zip(*box, strict=True)),  # type: ignore[arg-type]
        )
        for name, boxes in boxes_of(layout).items()
        for box in boxes
    ]
    numbered = [replace(each, id=number) for number, each in enumerate(landmarks, 1)]
    return SceneMap(tuple(numbered), room_area_m2=layout['room_size'])


def boxes_of(layout: Mapping[str, Any]) -> dict[str, list[Box]]:
    """Lowest and highest corner of each box [m], by what it is."""
    value = layout['object_bbox']
    boxes = ast.literal_eval(value) if isinstance(value, str) else value
    return {name: [(box['min'], box['max']) for box in each] for name, each in boxes.items()}


def truths_of(row: Mapping[str, Any], layout: Mapping[str, Any]) -> list[float]:
    """What the boxes say: a number of things, cm (of each such thing), m, or square metres."""
    if row['question_type'] not in _THINGS:
        return [float(layout['room_size'])]
    found = _THINGS[row['question_type']].search(row['question'])
    assert found
    first, *second = (boxes_of(layout)[name] for name in found.groups())
    if second:
        return [min(_gap_m(one, other) for one in first for other in second[0])]
    if row['question_type'] == 'object_counting':
        return [len(first)]
    return [100 * max(high - low for low, high in zip(*box, strict=True)) for box in first]


def _gap_m(one: Box, other: Box) -> float:
    lows, highs = one
    apart = [
        max(low - other_high, other_low - high, 0.0)
        for low, high, other_low, other_high in zip(lows, highs, *other, strict=True)
    ]
    return math.hypot(*apart)
