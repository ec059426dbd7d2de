# SPDX-License-Identifier: Apache-2.0
"""`embodied-r questions`: rows with solutions, from what each bag or scene map proves."""

from __future__ import annotations

import argparse
from functools import partial
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.bags.sources import find_bags
from embodied_r_ros.cli.arguments import (
    add_settings,
    given_config,
    given_settings,
    some_path,
    some_text,
)
from embodied_r_ros.cli.fleet import (
    add_fleet_arguments,
    fleet_config,
    FLEET_GROUPS,
    local_paths,
    settings_of,
    work_on_fleet,
)
from embodied_r_ros.cli.perceiver import classical_config
from embodied_r_ros.common.errors import BagError, InputError
from embodied_r_ros.core.perception.classical import ClassicalConfig
from embodied_r_ros.core.pipeline import classical_perceiver, vlm_perceiver
from embodied_r_ros.data.arm_room import arm_room, keyframing_of
from embodied_r_ros.data.episodes.episode import DELTA_SOURCES
from embodied_r_ros.data.episodes.inspect import bag_digest
from embodied_r_ros.data.episodes.manifest import find_recordings
from embodied_r_ros.data.episodes.offline import perceive_path
from embodied_r_ros.data.questions.collect import (
    MAP_SUFFIX,
    rows_of,
    rows_of_fleet,
    RowsRecipe,
    RowsStage,
    shared_map_names,
)
from embodied_r_ros.data.questions.coverage import Coverage, manifest_path, write_manifest
from embodied_r_ros.data.questions.derive import QuestionsConfig
from embodied_r_ros.data.questions.row import write_rows
from embodied_r_ros.serving.profiles import load_profile
from tqdm import tqdm

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from embodied_r_ros.common.settings import Settings
    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.data.episodes.fleet_ray import FleetConfig
    from embodied_r_ros.data.questions.row import Row

_GROUPS: dict[str, type[Settings]] = {
    'questions': QuestionsConfig,
    'classical': ClassicalConfig,
    **FLEET_GROUPS,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.add_argument(
        'bags',
        nargs='+',
        type=some_text,
        metavar='BAG',
        help='bags, folders of bags, or scene maps (MAP.json)',
    )
    parser.add_argument(
        '--out', type=some_path, required=True, metavar='ROWS.jsonl', help='rows file'
    )
    parser.add_argument(
        '--deltas', choices=DELTA_SOURCES, help='default: recorded if there, else classical'
    )
    add_settings(parser, _GROUPS, ['questions.seed', 'questions.maps'])
    parser.add_argument(
        '--robot',
        metavar='NAME_OR_FILE',
        help='of an arm: name in config/robots, or a YAML file (default: as the bag says)',
    )
    parser.add_argument('--force', action='store_true', help='use bags that fail their audit too')
    parser.add_argument('--profile', help='profile of the model servers, for --deltas vlm')
    add_fleet_arguments(parser)


def main(args: argparse.Namespace) -> int:
    """Derive the rows and write their manifest; the coverage report goes to stderr."""
    config = given_config(
        args,
        'questions',
        QuestionsConfig,
        robot=arm_room().load_robot(args.robot) if args.robot else None,
    )
    manifest_path(args.out)  # refused before the work, not after it
    coverage = Coverage()
    _check_options(args)
    if fleet := fleet_config(args):
        rows = _rows_of_fleet(args, config, coverage, fleet)
    else:
        paths = local_paths(args.bags)
        maps = [path for path in paths if path.suffix == MAP_SUFFIX]
        bags = find_bags([path for path in paths if path not in maps])
        shared_names = shared_map_names((str(path), _content_of(path)) for path in maps)
        recipe = _recipe(args, config, shared_names)
        rows = rows_of(tqdm([*bags, *maps], unit=' bags', disable=None), recipe, coverage)
    sight = given_settings(args, 'classical')
    seen_by = f'classical, with {sight}' if sight else args.deltas

    def describe(written: Path) -> None:
        write_manifest(args.out, written, config, seen_by, coverage)

    count = write_rows(args.out, rows, describe)
    for bag in coverage.bags:
        if bag.left_out:
            print(f'left out: {bag.name}: {bag.left_out}', file=sys.stderr)
    print(coverage.table(), file=sys.stderr)
    return 0 if count else 1


def _rows_of_fleet(
    args: argparse.Namespace, config: QuestionsConfig, coverage: Coverage, fleet: FleetConfig
) -> Iterator[Row]:
    """Derive what is due of a fleet, and put the parts together."""
    recordings = find_recordings(args.bags, _bags_and_maps, has_labels=True)
    recordings.sort(key=lambda recording: recording.source.endswith(MAP_SUFFIX))
    folder = args.out.with_name(f'{args.out.name.removesuffix(".jsonl")}.fleet')
    maps = [recording for recording in recordings if recording.source.endswith(MAP_SUFFIX)]
    shared_names = shared_map_names((each.source, each.id) for each in maps)
    stage = RowsStage(folder / 'parts', partial(_recipe, args, config, shared_names))
    # A part that was made when its map alone had its name is of other settings.
    naming = argparse.Namespace(**vars(args), shared_names=sorted(shared_names))
    settings = settings_of(naming if shared_names else args, 'bags')
    failed = work_on_fleet(stage, recordings, folder, fleet, settings)
    reasons = {id_: status.error for id_, status in failed.items()}
    return rows_of_fleet(recordings, stage.folder, reasons, config, coverage)


def _content_of(scene_map: Path) -> str:
    """Digest of the file of a map; of one that cannot be read, of which rows tell, its path."""
    try:
        return bag_digest(scene_map).sha256
    except BagError:
        return str(scene_map)


def _bags_and_maps(paths: Sequence[Path]) -> list[Path]:
    maps = [path for path in paths if path.suffix == MAP_SUFFIX and not path.is_dir()]
    return [*find_bags([path for path in paths if path not in maps]), *maps]


def _check_options(args: argparse.Namespace) -> None:
    """Refuse options that go with others.

    Raises:
        InputError: One lacks its other.
    """
    if (given := given_settings(args, 'classical')) and args.deltas != 'classical':
        msg = (
            f'classical.{next(iter(given))} is for --deltas classical: give both, or leave it out'
        )
        raise InputError(msg)
    if args.profile and args.deltas != 'vlm':
        msg = '--profile is for --deltas vlm: give both, or neither'
        raise InputError(msg)
    if args.deltas == 'vlm' and not args.profile:
        msg = '--deltas vlm needs a model server: give --profile'
        raise InputError(msg)


def _recipe(
    args: argparse.Namespace, config: QuestionsConfig, shared_names: frozenset[str]
) -> RowsRecipe:
    """How the arguments want a recording to become rows.

    Args:
        args: The arguments.
        config: How questions are derived.
        shared_names: Names that several maps among the sources would have.

    Raises:
        InputError: There is no such profile, or its server does not answer.
    """
    if args.deltas == 'vlm':
        profile = load_profile(args.profile)
        vlm = vlm_perceiver(profile.client('perceiver'), profile.vlm)
    sight = classical_config(args)

    def perceive(bag: Path) -> list[SemanticDelta]:
        perceiver = vlm if args.deltas == 'vlm' else classical_perceiver(sight)
        return list(perceive_path(bag, perceiver, keyframing_of(bag, config.robot)))

    return RowsRecipe(config, args.deltas, perceive, args.force, shared_names)
