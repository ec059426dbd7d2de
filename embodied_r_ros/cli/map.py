# SPDX-License-Identifier: Apache-2.0
"""`embodied-r map SOURCE --out MAP.json`: the landmark map of a recording."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.apps.map_picture import write_map_picture
from embodied_r_ros.bags.sources import find_sources
from embodied_r_ros.cli.arguments import (
    add_settings,
    check_folder_of,
    depth_source,
    given_config,
    image_progress,
    rate_of,
    some_path,
)
from embodied_r_ros.cli.fleet import (
    add_fleet_arguments,
    fleet_config,
    FLEET_GROUPS,
    local_paths,
    settings_of,
    work_on_fleet,
)
from embodied_r_ros.cli.perceiver import (
    add_perceiver_arguments,
    add_source_arguments,
    classical_config,
    PERCEIVER_GROUPS,
    perceiver_of,
    refuse_options_of_images,
    SOURCE_GROUPS,
)
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import alone_in, whole_file
from embodied_r_ros.core.keyframes.selector import KeyframeConfig
from embodied_r_ros.core.scene.landmark_map import scene_map_text
from embodied_r_ros.data.episodes.manifest import find_recordings
from embodied_r_ros.data.episodes.offline import MapRecipe, MapStage

if TYPE_CHECKING:
    import argparse

    from embodied_r_ros.data.episodes.fleet_ray import FleetConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    add_source_arguments(parser)
    parser.add_argument(
        '--out',
        type=some_path,
        required=True,
        metavar='MAP.json',
        help='file for the map; with --ray, folder for the maps',
    )
    parser.add_argument(
        '--picture', type=some_path, metavar='PNG', help='draw the map from above there too'
    )
    add_perceiver_arguments(parser, 'recorded for a bag with deltas, else classical')
    add_settings(parser, {**SOURCE_GROUPS, **PERCEIVER_GROUPS, **FLEET_GROUPS})
    add_fleet_arguments(parser)


def main(args: argparse.Namespace) -> int:
    """Map a source; 1: nothing in it has a place."""
    if fleet := fleet_config(args):
        return _map_fleet(args, fleet)
    (source,) = local_paths([args.source])
    check_folder_of(args.out)
    check_folder_of(args.picture)
    recipe = recipe_of(args)
    if recipe.reads_deltas(source):
        refuse_options_of_images(args, str(source))
    landmarks = recipe.map_of(source, image_progress)
    scene_map = landmarks.scene_map()
    with alone_in(args.out.parent), whole_file(args.out) as unfinished:
        unfinished.write_text(scene_map_text(scene_map), encoding='utf-8')
        if args.picture:
            write_map_picture(args.picture, replace(scene_map, path=landmarks.path), str(source))
    print(landmarks.summary(), file=sys.stderr)
    return 0 if scene_map.landmarks else 1


def _map_fleet(args: argparse.Namespace, fleet: FleetConfig) -> int:
    if args.picture:
        msg = '--picture is for one recording: leave it out, or leave --ray out'
        raise InputError(msg)
    if args.perceiver == 'recorded':
        refuse_options_of_images(args, args.source)
    args.out.mkdir(parents=True, exist_ok=True)
    recordings = find_recordings([args.source], find_sources)
    stage = MapStage(args.out, recipe_of(args))
    settings = settings_of(args, 'source', 'picture')
    return 1 if work_on_fleet(stage, recordings, args.out / 'fleet', fleet, settings) else 0


def recipe_of(args: argparse.Namespace) -> MapRecipe:
    """How the arguments want recordings mapped."""
    return MapRecipe(
        partial(perceiver_of, args),
        None if not args.perceiver else args.perceiver == 'recorded',
        args.topic,
        rate_of(args),
        depth_source(args),
        given_config(args, 'keyframe', KeyframeConfig),
        use_poses=classical_config(args).use_odometry,
    )
