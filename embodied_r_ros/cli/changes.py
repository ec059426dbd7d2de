# SPDX-License-Identifier: Apache-2.0
"""`embodied-r changes BEFORE AFTER`: what changed in a place between two recordings of it."""

from __future__ import annotations

import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.apps.changes_page import place_text, write_changes_page
from embodied_r_ros.cli.arguments import (
    add_settings,
    check_folder_of,
    image_progress,
    say,
    some_path,
)
from embodied_r_ros.cli.map import recipe_of
from embodied_r_ros.cli.perceiver import add_perceiver_arguments, PERCEIVER_GROUPS, SOURCE_GROUPS
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.scene.changes import changes_between
from embodied_r_ros.core.scene.landmark_map import write_scene_map
from embodied_r_ros.data.episodes.offline import check_source
from embodied_r_ros.data.episodes.visits import join, see_visit

if TYPE_CHECKING:
    import argparse

    from embodied_r_ros.core.scene.changes import Change
    from embodied_r_ros.data.episodes.visits import Visit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    add = parser.add_argument
    add('before', type=some_path, metavar='BEFORE', help='recording of the first visit')
    add('after', type=some_path, metavar='AFTER', help='recording of the second one')
    add('--topic', help='image topic of a bag, or stream of a folder, of several')
    add('--json', action='store_true', help='print JSON')
    add(
        '--out',
        type=some_path,
        metavar='HTML',
        help='write a page with keyframes of both visits side by side there',
    )
    add('--map', type=some_path, metavar='MAP.json', help='write the map of both visits there')
    add_perceiver_arguments(parser, 'classical')
    add_settings(parser, {**SOURCE_GROUPS, **PERCEIVER_GROUPS})


def main(args: argparse.Namespace) -> int:
    """Compare two visits; 1: the second could not find itself in the first."""
    check_folder_of(args.out)
    check_folder_of(args.map)
    if args.perceiver == 'recorded':
        msg = '--perceiver recorded: changes looks at the images of both visits, name another one'
        raise InputError(msg)
    recipe = recipe_of(args)
    for path in (args.before, args.after):
        check_source(path, recipe.topic, recipe.rate_hz)
    before, after = (see_visit(path, recipe, image_progress) for path in (args.before, args.after))
    joined = join(before, after)
    found = changes_between(joined.before, joined.after)
    if args.out:
        write_changes_page(args.out, (before, after), joined, found)
    if args.map:
        write_scene_map(args.map, found.scene_map)
    if args.json:
        value = {
            'joined': joined.words,
            'is_metric': joined.is_metric,
            'changes': [_to_json(change, (before, after)) for change in found.changes],
            'same': found.same,
        }
        print(json.dumps(value, indent=1))
        return 0
    for change in found.changes:
        print(f'{change.kind.value:21}{change.label:28}{place_text(change):44}{change.sure_text}')
    stay = 'thing is where it was' if found.same == 1 else 'things are where they were'
    say(f'{found.same} {stay}; {joined.words}')
    return 0


def _to_json(change: Change, visits: tuple[Visit, Visit]) -> dict[str, Any]:
    """A change with the keyframes that show it, by their numbers in their own recordings."""
    shown = [
        None if number is None else visit.keyframes[number]
        for number, visit in zip(change.views, visits, strict=True)
    ]
    views = [one and {'keyframe': one.id, 'stamp_ns': one.stamp_ns} for one in shown]
    return change.to_json() | dict(zip(('shown_before', 'shown_after'), views, strict=True))
