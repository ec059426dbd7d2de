# SPDX-License-Identifier: Apache-2.0
"""A stage runs over a fleet of recordings on Ray Data: one actor per core, one recording each.

Ray schedules, restarts and scales. What is finished, failed or given up is decided by the files of
the fleet (`FleetLog`), so that a run that was killed anywhere goes on where it was.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
import importlib
import logging
import os
from pathlib import Path
import shutil
import signal
import tempfile
import threading
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.common.work import METER
from embodied_r_ros.data.episodes.fleet import FleetLog, RecordingStatus, work_on
from embodied_r_ros.data.episodes.manifest import FleetRecording

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from embodied_r_ros.data.episodes.fleet import FleetStage

LOCAL = 'local'
_CLONE = Path(__file__).resolve().parents[3]
# A task of Ray takes some recordings where there are many: so many tasks per actor share the work
# evenly, and none holds more recordings up than these.
_TASKS_PER_ACTOR = 256
_MOST_PER_TASK = 16
_STORE_BYTES = 128 * 1024 * 1024  # the rows are small
_ENVIRONMENT = {
    'RAY_USAGE_STATS_ENABLED': '0',
    # Where no cluster is allowed, servers of Ray listen on loopback alone.
    'RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER': '0',
}

_LOOPBACK = '127.0.0.1'


@dataclass(frozen=True)
class FleetConfig(Settings):
    """Where a fleet is worked on, and how often what fails is tried."""

    address: str = setting(LOCAL, 'of a Ray cluster; local: one of this machine, for this run')
    actors: int = setting(0, 'recordings at the same time; 0: one per core', between=(0, 100_000))
    cpus: float = setting(1.0, 'cores that each is to have', between=(0, 1024))
    gpus: float = setting(0.0, 'GPUs that each is to have, or its share of one', between=(0, 64))
    attempts: int = setting(2, 'after which a recording is given up', between=(1, 100))
    retry_failed: bool = setting(False, 'try again what was given up')

    def threads(self) -> int:
        """Threads that a library may use for each recording."""
        if self.address != LOCAL:
            return max(1, int(self.cpus))
        cores = os.cpu_count() or 1
        return max(1, cores // (self.actors or cores))


def run_fleet(
    stage: FleetStage,
    recordings: Sequence[FleetRecording],
    folder: Path,
    config: FleetConfig,
    settings: str = '',
) -> Iterator[RecordingStatus]:
    """Run a stage over what is due of a fleet; yields what became of each, in any order.

    What fails is tried again after all others, until it is given up; each is yielded once.

    Args:
        stage: The work, which is sent to other processes.
        recordings: All of the fleet.
        folder: Of its state, which all machines of a cluster see.
        config: Where, and how often.
        settings: Of the stage, as text: a folder has one.

    Raises:
        InputError: The folder cannot be written, is in use or of other settings; or there is no
            such cluster, or no Ray.
    """
    with FleetLog(folder, settings) as log:
        todo = list(log.due(recordings, config.attempts, retry_failed=config.retry_failed))
        if todo:
            with ray_connection(config) as ray:
                while todo:
                    again = []
                    for status in _run_once(ray, stage, todo, folder, config):
                        log.add(status)
                        if status.error and status.attempts < config.attempts:
                            recording = FleetRecording(status.id, status.source)
                            again.append((recording, status.attempts))
                        else:
                            yield status
                    todo = again


def _run_once(
    ray: Any,
    stage: FleetStage,
    todo: Sequence[tuple[FleetRecording, int]],
    folder: Path,
    config: FleetConfig,
) -> Iterator[RecordingStatus]:
    """One look at each recording.

    Raises:
        InputError: This machine has too few GPUs: Ray would wait for them.
    """
    there = ray.cluster_resources()
    if config.address == LOCAL and config.gpus > there.get('GPU', 0):
        msg = f'gpus is {config.gpus:g} for each: Ray finds {there.get("GPU", 0):g} here'
        raise InputError(msg)
    cores = there.get('CPU', 1)
    actors = config.actors or max(1, int(cores / max(config.cpus, 1e-3)))
    actors = min(actors, len(todo))
    items = [{'id': r.id, 'source': r.source, 'attempts': attempts} for r, attempts in todo]
    per_task = max(1, min(_MOST_PER_TASK, len(items) // (actors * _TASKS_PER_ACTOR)))
    results = ray.data.from_items(
        items, override_num_blocks=-(-len(items) // per_task)
    ).map_batches(
        _Worker,
        fn_constructor_args=(stage, str(folder.resolve()), config.attempts, str(Path.cwd())),
        batch_size=1,
        batch_format='numpy',
        # With one task at a time, none waits behind a slow recording while an actor is free.
        compute=ray.data.ActorPoolStrategy(
            min_size=actors if config.address == LOCAL else 1,
            max_size=actors,
            max_tasks_in_flight_per_actor=1,
        ),
        num_cpus=config.cpus,
        num_gpus=config.gpus or None,
    )
    # Nothing is fetched ahead: what has ended would wait for what comes next.
    for batch in results.iter_batches(batch_size=None, prefetch_batches=0):
        for line in batch['status']:
            yield RecordingStatus.from_json(str(line))


class _Worker:
    """An actor. It has one recording at a time, and what the stage keeps (a model) once."""

    def __init__(self, stage: FleetStage, folder: str, most: int, here: str) -> None:
        if Path(here).is_dir():  # of the command: paths may be relative to it
            os.chdir(here)
        METER.asks_for_tokens = True
        self._stage = stage
        self._folder = Path(folder)
        self._most = most

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        rows = zip(batch['id'], batch['source'], batch['attempts'], strict=True)
        return {'status': [self._work_on(*row).to_json() for row in rows]}

    def _work_on(self, id_: str, source: str, attempts: int) -> RecordingStatus:
        recording = FleetRecording(str(id_), str(source))
        try:
            return work_on(self._stage, recording, self._folder, int(attempts), self._most)
        except OSError as error:  # the folder of the fleet cannot be written
            why = f'{self._folder}: {error.strerror}'
            return RecordingStatus(
                recording.id, recording.source, attempts=int(attempts) + 1, error=why
            )


@contextmanager
def ray_connection(config: FleetConfig) -> Iterator[Any]:
    """Ray, connected: to what the process is connected to already, else as the config says.

    Raises:
        InputError: There is no Ray, or no such cluster.
    """
    if config.address == LOCAL:
        os.environ.update(_ENVIRONMENT)
    try:
        ray = importlib.import_module('ray')
        importlib.import_module('ray.data')
    except ImportError:
        msg = '--ray needs Ray: pip install "embodied_r_ros[fleet]"'
        raise InputError(msg) from None
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger('ray.data').setLevel(logging.ERROR)
    if ray.is_initialized():
        yield ray
        return
    if config.address == LOCAL:
        with _local_cluster(ray, config):
            yield ray
        return
    environment = {'env_vars': {'PYTHONPATH': _python_path()}}
    try:
        _start(ray, address=config.address, runtime_env=environment)
    except EmbodiedRError as error:
        msg = f'no Ray cluster at {config.address}: {error}'
        raise InputError(msg) from None
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def _local_cluster(ray: Any, config: FleetConfig) -> Iterator[None]:
    """Ray on this machine alone, for the time being; it leaves nothing.

    Raises:
        InputError: Others could reach it.
        EmbodiedRError: It does not start.
    """
    cores = config.actors or os.cpu_count() or 1
    before = os.environ.get('PYTHONPATH')
    os.environ['PYTHONPATH'] = _python_path()
    # Sockets lie in it, and their paths must be short.
    scratch = tempfile.mkdtemp(prefix='embodied-r-', dir='/tmp')
    try:
        _start(
            ray,
            address=LOCAL,  # whatever RAY_ADDRESS says
            num_cpus=max(1, round(cores * config.cpus)),
            include_dashboard=False,
            object_store_memory=_STORE_BYTES,
            _temp_dir=scratch,
        )
        addresses = {node['NodeManagerAddress'] for node in ray.nodes()}
        if addresses != {_LOOPBACK}:
            msg = f'Ray listens on {", ".join(sorted(addresses))}: it was imported before'
            raise InputError(msg)
        yield
    finally:
        ray.shutdown()
        os.environ.pop('PYTHONPATH')
        if before is not None:
            os.environ['PYTHONPATH'] = before
        shutil.rmtree(scratch, ignore_errors=True)


def _start(ray: Any, **options: Any) -> None:
    """Start or join Ray, quietly; a signal to end means what it meant before.

    Raises:
        EmbodiedRError: It does not work, with what Ray says.
    """
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(logging_level=logging.CRITICAL, log_to_driver=False, **options)
    except Exception as error:  # also plain ones, such as after a long wait
        msg = f'Ray does not start: {" ".join(str(error).split())}'
        raise EmbodiedRError(msg) from None
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, handler)


def _python_path() -> str:
    """Where other processes find this package, in a clone as well."""
    return os.pathsep.join([str(_CLONE), *filter(None, [os.environ.get('PYTHONPATH')])])
