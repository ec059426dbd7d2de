# SPDX-License-Identifier: Apache-2.0
"""`embodied-r collect BAG… --out DIR`: plain camera bags become episodes, several at a time."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from embodied_r_ros.bags.sources import find_sources
from embodied_r_ros.cli.arguments import (
    add_settings,
    given_config,
    some_path,
    some_text,
)
from embodied_r_ros.cli.fleet import (
    add_fleet_arguments,
    fleet_config,
    FLEET_GROUPS,
    local_paths,
    work_on_fleet,
)
from embodied_r_ros.data.episodes.collect import CollectConfig
from embodied_r_ros.data.episodes.collect_jobs import collect, collection, CollectStage
from embodied_r_ros.data.episodes.manifest import find_recordings
from tqdm import tqdm

if TYPE_CHECKING:
    import argparse

    from embodied_r_ros.data.episodes.collect_jobs import CollectedBag
    from embodied_r_ros.data.episodes.fleet_ray import FleetConfig

_OPTIONS = ['collect.perceiver', 'collect.profile', 'collect.topic']


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    add = parser.add_argument
    add(
        'bags',
        nargs='+',
        type=some_text,
        metavar='SOURCE',
        help='camera bags, videos, folders of images, or folders of bags or videos',
    )
    add(
        '--out',
        type=some_path,
        required=True,
        metavar='DIR',
        help='folder of the episodes; what a run before has finished in it is skipped',
    )
    add('--jobs', type=int, default=1, metavar='N', help='bags at the same time, 1')
    add_settings(parser, {'collect': CollectConfig, **FLEET_GROUPS}, _OPTIONS)
    add('--force', action='store_true', help='collect bags that fail their audit too')
    add_fleet_arguments(parser)


def main(args: argparse.Namespace) -> int:
    """Collect; each episode is a line on stdout, and at the end stderr has the failures."""
    config = given_config(args, 'collect', CollectConfig)
    if fleet := fleet_config(args):
        return _collect_fleet(args, config, fleet)
    bags = find_sources(local_paths(args.bags))
    failures = []
    # disable=None: no bar where stderr is not a terminal.
    results = collect(bags, args.out, config, args.jobs, is_forced=args.force)
    for result in tqdm(results, total=len(bags), unit=' bags', disable=None):
        if result.reason:
            failures.append(result)
        else:
            print(f'{result.bag}\t{args.out / result.episode}\t{_result_text(result)}', flush=True)
    for failure in sorted(failures, key=lambda result: result.bag):
        print(f'failed: {failure.bag}: {failure.reason}', file=sys.stderr)
    print(f'{len(bags) - len(failures)} of {len(bags)} bags are episodes', file=sys.stderr)
    return 1 if failures else 0


def _collect_fleet(args: argparse.Namespace, config: CollectConfig, fleet: FleetConfig) -> int:
    out = args.out
    stage = CollectStage(out, config, fleet.threads(), args.force)
    recordings = find_recordings(args.bags, find_sources)
    with collection(out, config):
        failed = work_on_fleet(stage, recordings, out / 'fleet', fleet)
    return 1 if failed else 0


def _result_text(result: CollectedBag) -> str:
    if result.was_there:
        return 'was there'
    failed = f', {result.failed} not perceived' if result.failed else ''
    return f'{result.keyframes} keyframes{failed}'
