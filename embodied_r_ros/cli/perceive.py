# SPDX-License-Identifier: Apache-2.0
"""`embodied-r perceive SOURCE`: how the camera moved and what changed, keyframe by keyframe."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
import json
import math
from pathlib import Path
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.bags.sources import open_source
from embodied_r_ros.chat.settings import ChatConfig
from embodied_r_ros.cli.arguments import (
    add_depth_arguments,
    depth_source,
    some_path,
    some_text,
)
from embodied_r_ros.common.errors import ConfigError, InputError
from embodied_r_ros.episodes.episode import read_episode
from embodied_r_ros.episodes.offline import recorded_alone
from embodied_r_ros.keyframes.selector import KeyframeConfig
from embodied_r_ros.perception.classical import ClassicalConfig
from embodied_r_ros.perception.detector import DetectorConfig
from embodied_r_ros.perception.pipeline import (
    classical_perceiver,
    delta_to_json,
    detector_perceiver,
    keyframes_of,
    perceive_keyframes,
    vlm_perceiver,
)
from embodied_r_ros.serving.model_files import detector_path
from embodied_r_ros.serving.profiles import load_profile
from embodied_r_ros.types.deltas import DeltaKind
from embodied_r_ros.view.sheet import KeyframeSample
from tqdm import tqdm

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from embodied_r_ros.perception.perceiver import Perceiver
    from embodied_r_ros.types.deltas import SemanticDelta


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    add = parser.add_argument
    add('source', type=some_path, metavar='SOURCE', help='video, folder of images, or bag')
    add('--topic', help='image topic of a bag, where it has several')
    add(
        '--rate',
        type=float,
        metavar='HZ',
        help='images per second: of a folder (default 10), or instead of the own times of a video',
    )
    add_depth_arguments(parser)
    add(
        '--picture',
        type=some_path,
        metavar='PNG',
        help='draw keyframes with the boxes, names and distances of their items there too',
    )
    add('--json', action='store_true', help='one JSON object per line')
    add(
        '--perceiver',
        choices=('auto', 'recorded', 'classical', 'detector', 'vlm'),
        help='who perceives; recorded: as it was perceived when the bag was made; auto: vlm where '
        'a server is given, else detector where one is given or fetched, else classical; '
        'default: recorded for a bag with deltas and without images, else classical',
    )
    add(
        '--max-interval',
        type=float,
        default=0.0,
        metavar='S',
        help='longest time without a keyframe [s]; 0, the default: no limit',
    )
    classical = parser.add_argument_group('classical')
    classical.add_argument(
        '--hfov',
        type=float,
        metavar='DEG',
        help='horizontal field of view of a camera that does not state it (default: learned)',
    )
    classical.add_argument(
        '--camera-height',
        type=float,
        default=0.0,
        metavar='M',
        help='height above the floor, for distances (default: as odometry says)',
    )
    classical.add_argument(
        '--no-odometry',
        action='store_true',
        help='perceive from images alone, also where a bag has it',
    )
    detector = parser.add_argument_group('detector')
    detector.add_argument(
        '--detector',
        type=some_text,
        metavar='FILE',
        help='ONNX file (default: the one that `embodied-r models fetch detector` got)',
    )
    detector.add_argument(
        '--classes', type=some_text, help='names of its classes: a file, coco, or coco91'
    )
    detector.add_argument(
        '--threshold', type=float, metavar='SCORE', help='least score (default: 0.4)'
    )
    vlm = parser.add_argument_group('vlm')
    vlm.add_argument('--profile', help='model profile whose perceiver is asked')
    vlm.add_argument('--url', help='server of a vision-language model, or URL#MODEL')


def main(args: argparse.Namespace) -> int:
    """Perceive a source; 1: not one keyframe could be perceived."""
    path = Path(args.source)
    if args.picture and not args.picture.parent.is_dir():
        msg = f'cannot write {args.picture}: there is no folder {args.picture.parent}'
        raise InputError(msg)
    if args.perceiver == 'recorded' or (not args.perceiver and recorded_alone(path)):
        if args.picture:
            msg = '--picture draws what is perceived anew: give --perceiver classical too'
            raise InputError(msg)
        _tell(read_episode(path, 'recorded').deltas, as_json=args.json)
        return 0
    keyframing = KeyframeConfig(max_interval_s=args.max_interval)
    perceiver = _perceiver(args)
    with open_source(args.source, args.topic, args.rate, depth_source(args)) as source:
        # disable=None: no bar where stderr is not a terminal.
        images = tqdm(source, total=source.length, unit=' images', disable=None)
        sample = KeyframeSample()
        keyframes = sample.keep(keyframes_of(images, keyframing))
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
    for delta in deltas:
        print(json.dumps(delta_to_json(delta)) if as_json else _paragraph(delta), flush=True)
        kinds[delta.kind] += 1
        error = error or ' '.join(delta.error.split())
    if set(kinds) != {DeltaKind.FAILED}:
        return ''
    return f'none of {kinds.total()} keyframes could be perceived: {error}'


def _perceiver(args: argparse.Namespace) -> Perceiver:
    kind = _chosen(args)
    if kind == 'classical':
        return classical_perceiver(_classical_config(args))
    if kind == 'detector':
        return _detector(args)
    if args.url:
        return vlm_perceiver(ChatConfig(url=args.url))
    if not args.profile:
        msg = '--perceiver vlm needs a server: give --url, or --profile'
        raise InputError(msg)
    profile = load_profile(args.profile)
    return vlm_perceiver(profile.client('perceiver'), profile.vlm)


def _chosen(args: argparse.Namespace) -> str:
    """Which perceiver; where it was not said, stderr says which one and why.

    Raises:
        InputError: There are options of another one.
    """
    kind: str = args.perceiver or 'classical'
    of_vlm = args.url or args.profile
    of_detector = args.detector or args.classes or args.threshold is not None
    if kind == 'auto':
        detector = detector_path(args.detector or '')
        kind = 'vlm' if of_vlm else 'detector' if detector else 'classical'
        why = args.url or args.profile or detector or 'no server is given and no detector fetched'
        print(f'embodied-r: perceiver {kind} ({why})', file=sys.stderr)
    elif of_vlm and kind != 'vlm':
        msg = '--url and --profile are for --perceiver vlm: give it too, or leave them out'
        raise InputError(msg)
    elif of_detector and kind != 'detector':
        msg = '--detector, --classes and --threshold are for --perceiver detector: give it too'
        raise InputError(msg)
    return kind


def _detector(args: argparse.Namespace) -> Perceiver:
    """The perceiver with a detector.

    Raises:
        InputError: There is none, or it cannot be used.
    """
    path = detector_path(args.detector or '')
    if not path:
        msg = (
            '--perceiver detector needs a detector: embodied-r models fetch detector, or give '
            '--detector FILE'
        )
        raise InputError(msg)
    config = DetectorConfig(path, args.classes or '')
    if args.threshold is not None:
        try:
            config = replace(config, threshold=args.threshold)
        except ConfigError as error:
            msg = f'--{error}'
            raise InputError(msg) from None
    return detector_perceiver(config, _classical_config(args))


def _classical_config(args: argparse.Namespace) -> ClassicalConfig:
    config = ClassicalConfig(camera_height_m=args.camera_height, use_odometry=not args.no_odometry)
    if args.hfov is None:
        return config
    try:
        return replace(config, assumed_hfov_rad=math.radians(args.hfov), learn_hfov=False)
    except ConfigError as error:
        msg = f'--hfov {args.hfov:g} degrees: {error}'
        raise InputError(msg) from None


def _paragraph(delta: SemanticDelta) -> str:
    heading = f'{delta.from_id} -> {delta.to_id}  {delta.stamp_ns / 1e9:.3f} s  {delta.kind.name}'
    lines = [line for line in (delta.action, delta.change, delta.error) if line]
    return '\n    '.join([heading, *lines])
