# SPDX-License-Identifier: Apache-2.0
"""`embodied-r keyframes SOURCE`: which images are worth looking at, and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from embodied_r_ros.bags.sources import open_source
from embodied_r_ros.cli.arguments import (
    add_settings,
    depth_source,
    given_config,
    image_progress,
    rate_of,
    say,
    some_path,
)
from embodied_r_ros.cli.perceiver import SOURCE_GROUPS
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.keyframes.budget import evaluate_images
from embodied_r_ros.core.keyframes.selector import Evaluation, KeyframeConfig
from embodied_r_ros.data.episodes.contents import has_keyframes_alone
from embodied_r_ros.data.episodes.offline import recorded_keyframes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

_HEADING = '   image        time   compared   overlap  inliers  reason\n'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.add_argument(
        'source', type=some_path, metavar='SOURCE', help='video, folder of images, or bag'
    )
    parser.add_argument('--topic', help='image topic of a bag, or stream of a folder, of several')
    parser.add_argument(
        '--all-frames', action='store_true', help='list every image, not only the keyframes'
    )
    parser.add_argument('--json', action='store_true', help='one JSON object per line')
    parser.add_argument(
        '--budget', type=int, default=0, metavar='N', help='keep the N keyframes that show most'
    )
    add_settings(parser, SOURCE_GROUPS, ['source.rate_hz'])


def main(args: argparse.Namespace) -> int:
    """List the keyframes of a source."""
    config = given_config(args, 'keyframe', KeyframeConfig)
    if args.topic is None and has_keyframes_alone(args.source):
        _list(_recorded(args), as_json=args.json)
        return 0
    with open_source(args.source, args.topic, rate_of(args), depth_source(args)) as source:
        images = image_progress(source, source.length)
        keyframes_only = not args.all_frames
        evaluations = evaluate_images(
            images, config, budget=args.budget, keyframes_only=keyframes_only, tell=say
        )
        _list(evaluations, as_json=args.json)
    return 0


def _recorded(args: argparse.Namespace) -> Iterator[Evaluation]:
    """The keyframes that a robot chose, as it chose them; their indices count keyframes.

    Raises:
        InputError: An argument is for images of which keyframes are chosen.
        SourceError: There are no images of keyframes.
    """
    given = [f'{one.group}.{one.name}' for one in args.settings] + ['--budget'] * bool(args.budget)
    if given:
        msg = (
            f'{given[0]} is for images of which keyframes are chosen, and {args.source} has '
            'keyframes alone: leave it out'
        )
        raise InputError(msg)
    places: dict[int, int] = {}
    for index, keyframe in enumerate(recorded_keyframes(args.source)):
        reference = None if keyframe.reference_id == keyframe.id else keyframe.reference_id
        yield Evaluation(
            index,
            keyframe.stamp_ns,
            is_keyframe=True,
            reference_index=None if reference is None else places.get(reference),
            overlap=keyframe.overlap,
            inliers=keyframe.inliers,
            reason=keyframe.reason,
        )
        places[keyframe.id] = index


def _list(evaluations: Iterable[Evaluation], *, as_json: bool) -> None:
    heading = '' if as_json else _HEADING
    for evaluation in evaluations:
        line = json.dumps(evaluation.to_json()) if as_json else _row(evaluation)
        print(heading + line)
        heading = ''


def _row(evaluation: Evaluation) -> str:
    reference = '-' if evaluation.reference_index is None else evaluation.reference_index
    overlap = '-' if evaluation.overlap is None else f'{evaluation.overlap:.2f}'
    reason = evaluation.reason.label if evaluation.reason else ''
    return (
        f'{evaluation.index:8d}  {evaluation.stamp_ns / 1e9:10.3f}   {reference:>8}   '
        f'{overlap:>7}  {evaluation.inliers:7d}  {reason}'
    )
