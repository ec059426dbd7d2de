# SPDX-License-Identifier: Apache-2.0
"""What verbs that work on fleets of recordings have in common: `--ray`, progress, and the end."""

from __future__ import annotations

from contextlib import redirect_stdout
import json
import logging
from pathlib import Path
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.cli.arguments import given_config, given_settings, some_text
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.data.episodes.fleet import FleetLog
from embodied_r_ros.data.episodes.fleet_ray import FleetConfig, run_fleet
from embodied_r_ros.data.episodes.manifest import is_url
from tqdm import tqdm

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from embodied_r_ros.common.settings import Settings
    from embodied_r_ros.data.episodes.fleet import FleetStage, RecordingStatus
    from embodied_r_ros.data.episodes.manifest import FleetRecording

_LOG = logging.getLogger(__name__)
FLEET_GROUPS: dict[str, type[Settings]] = {'fleet': FleetConfig}


def add_fleet_arguments(parser: ArgumentParser) -> None:
    """Declare where a fleet is worked on."""
    group = parser.add_argument_group(
        'fleets of recordings',
        'With --ray, a SOURCE may also be a list (.txt) of paths and URLs, or a URL that fsspec '
        'knows, such as s3://bucket/bags.',
    )
    add = group.add_argument
    add(
        '--ray',
        type=some_text,
        metavar='ADDRESS|local',
        help='work on Ray: of this machine alone (local), or the cluster at an address',
    )


def fleet_config(args: Namespace) -> FleetConfig | None:
    """Where the arguments want a fleet to be worked on; None: not on Ray.

    Raises:
        InputError: An option needs --ray.
    """
    given = given_settings(args, 'fleet')
    if args.ray:
        return given_config(args, 'fleet', FleetConfig, address=args.ray)
    if given:
        msg = f'fleet.{next(iter(given))} is for --ray: give it too, or leave it out'
        raise InputError(msg)
    return None


def local_paths(sources: Sequence[str]) -> list[Path]:
    """Sources as paths, where no fleet is worked on.

    Raises:
        InputError: One is a URL, which only a fleet reads.
    """
    for source in filter(is_url, sources):
        msg = f'{source} is read with --ray only: give --ray local, or a path'
        raise InputError(msg)
    return [Path(source) for source in sources]


def settings_of(args: Namespace, *others: str) -> str:
    """The arguments that what is made of a recording depends on, as text.

    Args:
        args: All.
        others: Names of those that do not count, beside those of fleets.
    """
    left_out = {'run', 'out', 'ray', 'settings', *others}
    values = {name: value for name, value in vars(args).items() if name not in left_out}
    for one in args.settings:
        if one.group != 'fleet':
            values[f'{one.group}.{one.name}'] = one.value
    return json.dumps(values, indent=1, sort_keys=True, default=str) + '\n'


def work_on_fleet(
    stage: FleetStage,
    recordings: Sequence[FleetRecording],
    folder: Path,
    config: FleetConfig,
    settings: str = '',
) -> dict[str, RecordingStatus]:
    """Run a stage: a line on stdout for each recording that ends well, the rest to stderr.

    Returns:
        What failed, by id.

    Raises:
        InputError: The folder cannot be written, or there is no such cluster.
    """
    out = sys.stdout
    results = run_fleet(stage, recordings, folder, config, settings)
    # Ray prints there what it has to say.
    with redirect_stdout(sys.stderr):
        for status in tqdm(results, unit=' recordings', disable=None):
            for note in status.notes:
                _LOG.warning('%s: %s', status.source, note)
            if not status.error:
                print(f'{status.source}\t{status.output}\t{_work(status)}', file=out, flush=True)
    with FleetLog(folder) as log:
        failed = log.failed()
    ids = dict.fromkeys(recording.id for recording in recordings)
    failed = {id_: failed[id_] for id_ in ids if id_ in failed}
    for status in failed.values():
        given_up = ' (given up)' if status.attempts >= config.attempts else ''
        print(f'failed: {status.source}: {status.error}{given_up}', file=sys.stderr)
    copies = f', {len(recordings) - len(ids)} copies' if len(recordings) > len(ids) else ''
    print(
        f'{len(ids) - len(failed)} of {len(ids)} recordings are done{copies}: '
        f'{folder / "status.jsonl"}',
        file=sys.stderr,
    )
    return failed


def _work(status: RecordingStatus) -> str:
    calls = f', {status.calls} calls' if status.calls else ''
    return f'{status.keyframes} keyframes, {status.deltas} deltas{calls}, {status.seconds:.1f} s'
