# SPDX-License-Identifier: Apache-2.0
"""What verbs that perceive a recording have in common: its source, and who perceives it."""

from __future__ import annotations

import argparse
from dataclasses import replace
import math
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.cli.arguments import add_depth_arguments, add_mask_argument, some_text
from embodied_r_ros.common.errors import ConfigError, InputError
from embodied_r_ros.core.chat.settings import ChatConfig, file_sum
from embodied_r_ros.core.perception.classical import ClassicalConfig
from embodied_r_ros.core.perception.detector import DetectorConfig
from embodied_r_ros.core.pipeline import classical_perceiver, detector_perceiver, vlm_perceiver
from embodied_r_ros.serving.model_files import detector_path
from embodied_r_ros.serving.profiles import load_profile

if TYPE_CHECKING:
    from embodied_r_ros.core.perception.detector import DetectorPerceiver
    from embodied_r_ros.core.perception.perceiver import PairPerceiver

# Arguments that say which images are perceived, and how.
_OF_IMAGES = (
    'topic', 'rate', 'depth_topic', 'depth_unit', 'mask', 'max_interval', 'hfov', 'camera_height',
    'no_odometry',
)  # fmt: skip


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what is perceived."""
    add = parser.add_argument
    add('source', type=some_text, metavar='SOURCE', help='video, folder of images, or bag')
    add('--topic', help='image topic of a bag, or stream of a folder, of several')
    add(
        '--rate',
        type=float,
        metavar='HZ',
        help='images per second instead of the own times of a folder (else 10) or video',
    )
    add_depth_arguments(parser)
    add_mask_argument(parser)
    add(
        '--max-interval',
        type=float,
        default=0.0,
        metavar='S',
        help='longest time without a keyframe [s]; 0, the default: no limit',
    )


def add_perceiver_arguments(
    parser: argparse.ArgumentParser,
    default: str,
    profile: str = 'model profile whose perceiver is asked',
) -> None:
    """Declare which perceiver to use.

    Args:
        parser: Of the verb.
        default: Which one is used where none is named, in words.
        profile: What the profile is for, in words.
    """
    parser.add_argument(
        '--perceiver',
        choices=('auto', 'recorded', 'classical', 'detector', 'vlm', 'fused'),
        help='which perceiver to use; recorded: the deltas of the bag; fused: vlm and '
        'detector, each thing once; auto: what is there of a server that is given and a detector '
        'that is given or fetched, else classical; '
        f'default: {default}',
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
        help='ONNX or TFLite file, or several with commas between (default: what '
        '`embodied-r models fetch` got)',
    )
    detector.add_argument(
        '--classes',
        type=some_text,
        help='names of its classes: a file, coco, coco91, or objectron; of several with commas',
    )
    detector.add_argument(
        '--threshold',
        type=float,
        metavar='SCORE',
        help='score from which on a name is sure (default: by class and network)',
    )
    vlm = parser.add_argument_group('vlm')
    vlm.add_argument('--profile', metavar='NAME', help=profile)
    vlm.add_argument('--url', help='server of a vision-language model, or URL#MODEL')


def perceiver_of(args: argparse.Namespace) -> PairPerceiver:
    """The perceiver that the arguments name.

    Raises:
        InputError: There is none, or it cannot be used.
    """
    kind, why = _chosen(args)
    if why or getattr(args, 'why', ''):
        print(why or args.why, file=sys.stderr)
    if kind == 'classical':
        return classical_perceiver(_classical_config(args))
    if kind == 'detector':
        return _detector(args)
    if not args.url and not args.profile:
        msg = f'--perceiver {kind} needs a server: give --url, or --profile'
        raise InputError(msg)
    detector = _detector(args) if kind == 'fused' else None
    if args.url:
        return vlm_perceiver(ChatConfig(url=args.url), detector=detector)
    profile = load_profile(args.profile)
    return vlm_perceiver(profile.client('perceiver'), profile.vlm, detector)


def perceiver_key(args: argparse.Namespace) -> str:
    """All that decides what the perceiver of the arguments says; no detector is loaded for it.

    Raises:
        InputError: There is no such perceiver, or it cannot be used.
    """
    kind = args.perceiver
    parts: list[object] = [kind, _classical_config(args)]
    if kind in {'detector', 'fused'}:
        config = _detector_config(args)
        parts += [config, *(file_sum(path) for path, _ in config.files() if path.is_file())]
    if kind in {'vlm', 'fused'}:
        vlm = load_profile(args.profile).vlm if args.profile and not args.url else None
        parts += [perceiver_of(args).info(), vlm]
    return repr(parts)


def choose_perceiver(args: argparse.Namespace) -> str:
    """Name the perceiver in the arguments, where that is left to what is there; returns why.

    Raises:
        InputError: There are options of another one.
    """
    args.perceiver, why = _chosen(args)
    return why


def refuse_options_of_images(args: argparse.Namespace, source: str) -> None:
    """Refuse options of perceiving, where deltas are read that were recorded.

    Args:
        args: Of a verb with `add_source_arguments` and `add_perceiver_arguments`.
        source: What the deltas are of.

    Raises:
        InputError: One is given.
    """
    plain = argparse.ArgumentParser(add_help=False)
    add_source_arguments(plain)
    add_perceiver_arguments(plain, '')
    for name in _OF_IMAGES:
        if getattr(args, name, plain.get_default(name)) != plain.get_default(name):
            msg = (
                f'--{name.replace("_", "-")} says how images are perceived, and of {source} the '
                'deltas are read that were recorded: leave it out, or perceive the images anew '
                'with --perceiver classical'
            )
            raise InputError(msg)
    _chosen(args)  # says with which perceiver the other options go


def _chosen(args: argparse.Namespace) -> tuple[str, str]:
    """Which perceiver, and a line that says why where that was not said.

    Raises:
        InputError: There are options of another one.
    """
    kind: str = args.perceiver or 'classical'
    of_vlm = args.url or args.profile
    of_detector = args.detector or args.classes or args.threshold is not None
    if kind == 'auto':
        there = [of_vlm, detector_path(args.detector or '')]
        kinds = {(True, True): 'fused', (True, False): 'vlm', (False, True): 'detector'}
        kind = kinds.get((bool(there[0]), bool(there[1])), 'classical')
        why = ' and '.join(filter(None, there)) or 'no server is given and no detector fetched'
        return kind, f'embodied-r: perceiver {kind} ({why})'
    if of_vlm and kind not in {'vlm', 'fused'}:
        msg = (
            '--url and --profile are for --perceiver vlm or fused: give it too, or leave them out'
        )
        raise InputError(msg)
    if of_detector and kind not in {'detector', 'fused'}:
        msg = (
            '--detector, --classes and --threshold are for --perceiver detector or fused: give it '
            'too'
        )
        raise InputError(msg)
    return kind, ''


def _detector(args: argparse.Namespace) -> DetectorPerceiver:
    """The perceiver with a detector.

    Raises:
        InputError: There is none, or it cannot be used.
    """
    return detector_perceiver(_detector_config(args), _classical_config(args))


def _detector_config(args: argparse.Namespace) -> DetectorConfig:
    """Which detector it is.

    Raises:
        InputError: There is none, or a setting is not allowed.
    """
    path = detector_path(args.detector or '')
    if not path:
        msg = (
            f'--perceiver {args.perceiver} needs a detector: embodied-r models fetch detector, or '
            'give --detector FILE'
        )
        raise InputError(msg)
    config = DetectorConfig(path, args.classes or '')
    if args.threshold is not None:
        try:
            config = replace(config, threshold=args.threshold)
        except ConfigError as error:
            msg = f'--{error}'
            raise InputError(msg) from None
    return config


def _classical_config(args: argparse.Namespace) -> ClassicalConfig:
    config = ClassicalConfig(camera_height_m=args.camera_height, use_odometry=not args.no_odometry)
    if args.hfov is None:
        return config
    try:
        return replace(config, assumed_hfov_rad=math.radians(args.hfov), learn_hfov=False)
    except ConfigError as error:
        msg = f'--hfov {args.hfov:g} degrees: {error}'
        raise InputError(msg) from None
