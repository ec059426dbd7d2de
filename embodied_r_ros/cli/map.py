# SPDX-License-Identifier: Apache-2.0
"""`embodied-r map SOURCE --out MAP.json`: the landmark map of a recording."""

from __future__ import annotations

from pathlib import Path
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.bags.sources import open_source
from embodied_r_ros.cli.arguments import depth_source, some_path
from embodied_r_ros.cli.perceiver import (
    add_perceiver_arguments,
    add_source_arguments,
    perceiver_of,
)
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.episodes.offline import has_recorded_deltas
from embodied_r_ros.episodes.scene_maps import map_of_images, map_of_recorded
from embodied_r_ros.keyframes.selector import KeyframeConfig
from embodied_r_ros.scene.map_files import write_scene_map
from embodied_r_ros.view.map_picture import write_map_picture
from tqdm import tqdm

if TYPE_CHECKING:
    import argparse

    from embodied_r_ros.scene.landmark_map import LandmarkMap


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    add_source_arguments(parser)
    parser.add_argument(
        '--out', type=some_path, required=True, metavar='MAP.json', help='file for the map'
    )
    parser.add_argument(
        '--picture', type=some_path, metavar='PNG', help='draw the map from above there too'
    )
    add_perceiver_arguments(parser, 'recorded for a bag with deltas, else classical')


def main(args: argparse.Namespace) -> int:
    """Map a source; 1: nothing in it has a place."""
    for file in (args.out, args.picture):
        if file and not file.parent.is_dir():
            msg = f'cannot write {file}: there is no folder {file.parent}'
            raise InputError(msg)
    landmarks = _map(args)
    scene_map = landmarks.scene_map()
    write_scene_map(args.out, scene_map)
    if args.picture:
        write_map_picture(args.picture, scene_map, str(args.source))
    print(landmarks.summary(), file=sys.stderr)
    return 0 if scene_map.landmarks else 1


def _map(args: argparse.Namespace) -> LandmarkMap:
    path = Path(args.source)
    if args.perceiver == 'recorded' or (not args.perceiver and has_recorded_deltas(path)):
        return map_of_recorded(path)
    perceiver = perceiver_of(args)
    with open_source(path, args.topic, args.rate, depth_source(args)) as source:
        images = tqdm(source, total=source.length, unit=' images', disable=None)
        keyframing = KeyframeConfig(max_interval_s=args.max_interval)
        return map_of_images(images, perceiver, keyframing, use_poses=not args.no_odometry)
