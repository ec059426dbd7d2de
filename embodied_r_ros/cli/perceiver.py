# SPDX-License-Identifier: Apache-2.0
"""What verbs that perceive a recording have in common: its source, and who perceives it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.bags.vision_messages import has_boxes, read_boxes
from embodied_r_ros.cli.arguments import given_config, given_settings, some_text, SourceConfig
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.chat.settings import ChatConfig, file_sum
from embodied_r_ros.core.keyframes.selector import KeyframeConfig
from embodied_r_ros.core.perception.classical import ClassicalConfig
from embodied_r_ros.core.perception.detector import DetectorConfig, DetectorPerceiver
from embodied_r_ros.core.pipeline import classical_perceiver, detector_perceiver, vlm_perceiver
from embodied_r_ros.serving.model_files import detector_path
from embodied_r_ros.serving.profiles import load_profile

if TYPE_CHECKING:
    import argparse

    from embodied_r_ros.common.settings import Settings
    from embodied_r_ros.core.perception.perceiver import PairPerceiver

SOURCE_GROUPS: dict[str, type[Settings]] = {'source': SourceConfig, 'keyframe': KeyframeConfig}
_OF_IMAGES = {'source', 'keyframe', 'classical'}
PERCEIVER_GROUPS: dict[str, type[Settings]] = {
    'classical': ClassicalConfig,
    'detector': DetectorConfig,
    'chat': ChatConfig,
}


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what is perceived."""
    add = parser.add_argument
    add('source', type=some_text, metavar='SOURCE', help='video, folder of images, or bag')
    add('--topic', help='image topic of a bag, or stream of a folder, of several')


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
        choices=('auto', 'recorded', 'classical', 'detections', 'detector', 'vlm', 'fused'),
        metavar='KIND',
        help='classical, detections (boxes in the bag), detector, vlm, fused, recorded, or auto; '
        f'default: {default}',
    )
    parser.add_argument('--profile', metavar='NAME', help=profile)


def perceiver_of(args: argparse.Namespace) -> PairPerceiver:
    """The perceiver that the arguments name.

    Raises:
        InputError: There is none, or it cannot be used.
    """
    kind, why = _chosen(args)
    if why or getattr(args, 'why', ''):
        print(why or args.why, file=sys.stderr)
    if kind == 'classical':
        return classical_perceiver(classical_config(args))
    if kind == 'detections':
        boxes = read_boxes(_source(args))
        return DetectorPerceiver(
            None, classical_config(args), boxes_of=boxes.of, boxes_name=boxes.name
        )
    if kind == 'detector':
        return _detector(args)
    chat = given_chat(args)
    if not chat and not args.profile:
        msg = f'--perceiver {kind} needs a server: give --profile, or --set chat.url=URL'
        raise InputError(msg)
    detector = _detector(args) if kind == 'fused' else None
    if chat:
        return vlm_perceiver(chat, detector=detector)
    profile = load_profile(args.profile)
    return vlm_perceiver(profile.client('perceiver'), profile.vlm, detector)


def given_chat(args: argparse.Namespace) -> ChatConfig | None:
    """The server of the perceiver that the arguments name; None: none."""
    return given_config(args, 'chat', ChatConfig) if given_settings(args, 'chat') else None


def perceiver_key(args: argparse.Namespace) -> str:
    """All that decides what the perceiver of the arguments says; no detector is loaded for it.

    Raises:
        InputError: There is no such perceiver, or it cannot be used.
    """
    kind = args.perceiver
    parts: list[object] = [kind, classical_config(args)]
    if kind in {'detector', 'fused'}:
        config = _detector_config(args)
        parts += [config, *(file_sum(path) for path, _ in config.files() if path.is_file())]
    if kind in {'vlm', 'fused'}:
        vlm = load_profile(args.profile).vlm if args.profile and not given_chat(args) else None
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
    given = [one for one in args.settings if one.group in _OF_IMAGES]
    of_images = [f'{one.group}.{one.name}' for one in given]
    if args.topic is not None:
        of_images.append('--topic')
    for option in of_images:
        msg = (
            f'{option} says how images are perceived, and of {source} the deltas are read that '
            'were recorded: leave it out, or perceive the images anew with --perceiver classical'
        )
        raise InputError(msg)
    _chosen(args)  # says with which perceiver the other options go


def _chosen(args: argparse.Namespace) -> tuple[str, str]:
    """Which perceiver, and a line that says why where that was not said.

    Raises:
        InputError: There are options of another one.
    """
    plain = 'detections' if has_boxes(_source(args)) else 'classical'
    kind: str = args.perceiver or plain
    of_vlm = given_settings(args, 'chat').get('url') or args.profile
    of_detector = given_settings(args, 'detector')
    if kind == 'auto':
        path = detector_path(of_detector.get('model', ''))
        there = [of_vlm, path if of_detector or plain == 'classical' else '']
        kinds = {(True, True): 'fused', (True, False): 'vlm', (False, True): 'detector'}
        kind = kinds.get((bool(there[0]), bool(there[1])), plain)
        missing = {
            'classical': 'no server is given and no detector fetched',
            'detections': 'the bag holds boxes of a detector',
        }
        why = ' and '.join(filter(None, there)) or missing[plain]
        return kind, f'embodied-r: perceiver {kind} ({why})'
    if of_vlm and kind not in {'vlm', 'fused'}:
        msg = 'chat.url and --profile are for --perceiver vlm or fused: give it too'
        raise InputError(msg)
    if of_detector and kind not in {'detector', 'fused'}:
        msg = (
            f'detector.{next(iter(of_detector))} is for --perceiver detector or fused: give it too'
        )
        raise InputError(msg)
    return kind, ''


def _source(args: argparse.Namespace) -> Path:
    given = vars(args)
    return Path(next(given[name] for name in ('source', 'bag', 'before') if given.get(name)))


def _detector(args: argparse.Namespace) -> DetectorPerceiver:
    """The perceiver with a detector.

    Raises:
        InputError: There is none, or it cannot be used.
    """
    return detector_perceiver(_detector_config(args), classical_config(args))


def _detector_config(args: argparse.Namespace) -> DetectorConfig:
    """Which detector it is.

    Raises:
        InputError: There is none, or a setting is not allowed.
    """
    config = given_config(args, 'detector', DetectorConfig)
    path = detector_path(config.model)
    if not path:
        msg = (
            f'--perceiver {args.perceiver} needs a detector: embodied-r models fetch detector, or '
            'give --set detector.model=FILE'
        )
        raise InputError(msg)
    return replace(config, model=path)


def classical_config(args: argparse.Namespace) -> ClassicalConfig:
    """How geometry and colour are seen; a field of view that is given is not learned.

    Raises:
        InputError: A setting is not allowed.
    """
    is_known = 'assumed_hfov_rad' in given_settings(args, 'classical')
    return given_config(args, 'classical', ClassicalConfig, learn_hfov=not is_known)
