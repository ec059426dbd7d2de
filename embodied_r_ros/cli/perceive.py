# SPDX-License-Identifier: Apache-2.0
"""`embodied-r perceive SOURCE`: how the camera moved and what changed, keyframe by keyframe."""

from __future__ import annotations

from collections import Counter
import json
from pathlib import Path
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.apps.sheet import KeyframeSample
from embodied_r_ros.bags.sources import open_source
from embodied_r_ros.cli.arguments import (
    add_settings,
    check_folder_of,
    depth_source,
    given_config,
    image_progress,
    rate_of,
    some_path,
)
from embodied_r_ros.cli.perceiver import (
    add_perceiver_arguments,
    add_source_arguments,
    PERCEIVER_GROUPS,
    perceiver_of,
    refuse_options_of_images,
    SOURCE_GROUPS,
)
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.keyframes.selector import KeyframeConfig, Keyframer
from embodied_r_ros.core.pipeline import perceive_keyframes
from embodied_r_ros.core.types.deltas import DeltaKind
from embodied_r_ros.data.episodes.contents import recorded_alone

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from embodied_r_ros.core.types.deltas import SemanticDelta


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    add_source_arguments(parser)
    parser.add_argument(
        '--picture',
        type=some_path,
        metavar='PNG',
        help='draw keyframes with the boxes, names and distances of their items there too',
    )
    parser.add_argument('--json', action='store_true', help='one JSON object per line')
    add_perceiver_arguments(
        parser, 'recorded for a bag with deltas and without images, else classical'
    )
    add_settings(parser, {**SOURCE_GROUPS, **PERCEIVER_GROUPS})


def main(args: argparse.Namespace) -> int:
    """Perceive a source; 1: not one keyframe could be perceived."""
    path = Path(args.source)
    check_folder_of(args.picture)
    if args.perceiver == 'recorded' or (not args.perceiver and recorded_alone(path)):
        if args.picture:
            msg = '--picture draws what is perceived anew: give --perceiver classical too'
            raise InputError(msg)
        from embodied_r_ros.data.episodes.episode import read_episode

        refuse_options_of_images(args, str(path))
        _tell(read_episode(path, 'recorded').deltas, as_json=args.json)
        return 0
    keyframing = given_config(args, 'keyframe', KeyframeConfig)
    perceiver = perceiver_of(args)
    with open_source(args.source, args.topic, rate_of(args), depth_source(args)) as source:
        images = image_progress(source, source.length)
        sample = KeyframeSample()
        keyframes = sample.keep(Keyframer(keyframing).stream(images))
        deltas = sample.note(perceive_keyframes(keyframes, perceiver))
        failure = _tell(deltas, as_json=args.json)
    if args.picture:
        sample.write(args.picture, str(path))
    if failure:
        print(f'embodied-r: failed: {failure}', file=sys.stderr)
    return 1 if failure else 0


def _tell(deltas: Iterable[SemanticDelta], *, as_json: bool) -> str:
    """Print deltas; why all of them failed, empty: not all did."""
    kinds: Counter[DeltaKind] = Counter()
    error = ''
    for number, delta in enumerate(deltas, 1):
        print(json.dumps(delta.to_json()) if as_json else _paragraph(number, delta), flush=True)
        kinds[delta.kind] += 1
        error = error or ' '.join(delta.error.split())
    if set(kinds) != {DeltaKind.FAILED}:
        return ''
    return f'none of {kinds.total()} keyframes could be perceived: {error}'


def _paragraph(number: int, delta: SemanticDelta) -> str:
    skipped = f', {delta.skipped} keyframes before it left out' if delta.skipped else ''
    heading = f'[{number}]  {delta.stamp_ns / 1e9:.3f} s  {delta.kind.name}{skipped}'
    lines = [line for line in (delta.action, delta.change, delta.error) if line]
    return '\n    '.join([heading, *lines])
