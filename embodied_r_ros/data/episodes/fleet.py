# SPDX-License-Identifier: Apache-2.0
"""Many recordings, one at a time each: what became of them, what is due, and what is given up.

A folder holds the state of a fleet. `status.jsonl` grows by a row as a recording ends, of which
the last one counts. `open/` has a file for each recording that is worked on: whoever finds it
after a crash knows how often that recording was begun, or that it ended and nobody noted it.
"""

from __future__ import annotations

from contextlib import contextmanager, ExitStack, suppress
from dataclasses import asdict, dataclass, fields, replace
import json
import logging
import time
from typing import Protocol, TYPE_CHECKING

from embodied_r_ros.bags.writer import BagLock
from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.common.files import write_whole
from embodied_r_ros.common.work import CALLS, IMAGES, KEYFRAMES, METER, TOKENS
from embodied_r_ros.data.episodes.manifest import FleetRecording, local_copy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import TextIO

_STATUS, _OPEN = 'status.jsonl', 'open'
_SETTINGS = 'settings.json'
_MOST_NOTES = 8  # of a recording
_DIED = 'the process that worked on it died'


@dataclass(frozen=True)
class StageReport:
    """What a stage made of a recording."""

    output: str = ''  # file or folder that it wrote, by name; empty: none
    deltas: int = 0  # that this rests on
    error: str = ''  # why there is nothing, or less than there should be


class FleetStage(Protocol):
    """Work on one recording. It writes one file or folder, which appears when it is complete."""

    def __call__(self, path: Path, recording: FleetRecording) -> StageReport:
        """Work on a recording.

        Args:
            path: Where it lies on this machine.
            recording: What it is called.

        Raises:
            EmbodiedRError: It cannot be worked on.
        """


@dataclass(frozen=True)
class RecordingStatus:
    """What became of a recording; `error` is empty where it is finished."""

    id: str
    source: str
    output: str = ''
    images: int = 0  # looked at
    keyframes: int = 0
    deltas: int = 0
    calls: int = 0  # requests to model servers
    tokens: int = 0  # of prompts and replies, where the servers told
    seconds: float = 0.0
    attempts: int = 0
    error: str = ''
    notes: tuple[str, ...] = ()  # what was said beside it, such as images left out

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> RecordingStatus:
        """Read a line of JSON.

        Raises:
            ValueError: It is none of these.
        """
        values = json.loads(line)
        known = {field.name for field in fields(cls)}
        if not isinstance(values, dict) or not {'id', 'source'} <= set(values) <= known:
            msg = f'not the status of a recording: {line[:200]}'
            raise ValueError(msg)
        return cls(**values | {'notes': tuple(values.get('notes', ()))})


def work_on(
    stage: FleetStage, recording: FleetRecording, folder: Path, attempts: int, most: int
) -> RecordingStatus:
    """Have a stage work on a recording. Nothing that goes wrong with it is raised.

    What has ended since it was handed out is not done again, and what has killed its process too
    often is not begun.

    Args:
        stage: The work.
        recording: The recording.
        folder: Of the fleet's state.
        attempts: How often it was begun before.
        most: Attempts after which it is given up.
    """
    marker = folder / _OPEN / f'{recording.id}.json'
    before = _read_marker(marker)
    if before and not _is_open(before):
        return before
    attempts = max(attempts, before.attempts if before else 0)
    status = RecordingStatus(recording.id, recording.source, attempts=attempts)
    if before and attempts >= most:
        status = replace(before, error=f'{_DIED}, in each of {attempts} attempts')
    else:
        status = replace(status, attempts=attempts + 1, error=_DIED)
        _write_marker(marker, status)
        status = _measured(stage, status)
    _write_marker(marker, status)
    return status


def _measured(stage: FleetStage, status: RecordingStatus) -> RecordingStatus:
    log = logging.getLogger('embodied_r_ros')
    notes = _Notes()
    log.addHandler(notes)
    before, begin_s = METER.read(), time.perf_counter()
    try:
        report = _report_on(stage, FleetRecording(status.id, status.source))
    finally:
        log.removeHandler(notes)
    seconds = round(time.perf_counter() - begin_s, 3)
    done = METER.read()
    done.subtract(before)
    return replace(
        status,
        output=report.output,
        images=done[IMAGES],
        keyframes=done[KEYFRAMES],
        deltas=report.deltas,
        calls=done[CALLS],
        tokens=done[TOKENS],
        seconds=seconds,
        error=report.error,
        notes=tuple(notes.texts),
    )


def _report_on(stage: FleetStage, recording: FleetRecording) -> StageReport:
    try:
        with local_copy(recording.source) as path:
            report = _report_on_copy(stage, path, recording)
            return replace(report, error=report.error.replace(str(path), recording.source))
    except InputError as error:
        return StageReport(error=str(error))


def _report_on_copy(stage: FleetStage, path: Path, recording: FleetRecording) -> StageReport:
    try:
        return stage(path, recording)
    except EmbodiedRError as error:
        return StageReport(error=str(error))
    except Exception as error:  # one recording, however odd, never ends the others
        return StageReport(error=f'{type(error).__name__}: {error}')


class _Notes(logging.Handler):
    """Keeps what is said of a recording."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a text once."""
        text = ' '.join(record.getMessage().split())
        if text not in self.texts and len(self.texts) < _MOST_NOTES:
            self.texts.append(text)


def _is_open(status: RecordingStatus) -> bool:
    """Tell whether no end was noted."""
    return status.error == _DIED


def _read_marker(path: Path) -> RecordingStatus | None:
    """What a marker says; None: there is none, or it was cut off by a power cut."""
    try:
        return RecordingStatus.from_json(path.read_text(encoding='utf-8'))
    except (OSError, ValueError, TypeError):
        return None


def _write_marker(path: Path, status: RecordingStatus) -> None:
    """Write a marker; not synced, as it is needed after a crash of processes alone."""
    unfinished = path.with_name(path.name + '.tmp')
    unfinished.write_text(status.to_json() + '\n', encoding='utf-8')
    unfinished.replace(path)


@contextmanager
def held(folder: Path, name: str, settings: str) -> Iterator[None]:
    """Hold a folder against other processes, and see that what is in it was made alike.

    Args:
        folder: It is there.
        name: Of the file in it that keeps the settings.
        settings: With which this process works, as text; empty: whatever they were.

    Raises:
        InputError: Another process has it, it is of other settings, or it cannot be written.
        OSError: The settings cannot be read.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(BagLock(folder))
        except BlockingIOError:
            msg = f'{folder} is in use by another process: wait for its end'
            raise InputError(msg) from None
        except OSError:  # a disk that knows no locks is no reason not to work
            pass
        path = folder / name
        before = path.read_text(encoding='utf-8') if path.exists() else ''
        if settings and before and settings != before:
            others = ' '.join(before.split())
            msg = f'{folder} is of other settings, {others}: use them, or another folder'
            raise InputError(msg)
        if settings and not before:
            write_whole(path, settings)
        yield


class FleetLog:
    """The state of a fleet in its folder. One process at a time has it open.

    Memory is that of the recordings that failed, and of the ids of those that had finished when it
    was opened.
    """

    def __init__(self, folder: Path, settings: str = '') -> None:
        """Open a folder, and note what ended there without being noted.

        Args:
            folder: It is made where it is not there.
            settings: Of the work, as text; empty: whatever they were.

        Raises:
            InputError: It cannot be read or written, is in use, or of other settings.
        """
        self.folder = folder
        self._finished: set[str] = set()
        self._failed: dict[str, RecordingStatus] = {}
        self._lock = ExitStack()
        try:
            (folder / _OPEN).mkdir(parents=True, exist_ok=True)
            self._lock.enter_context(held(folder, _SETTINGS, settings))
            self._file: TextIO = (folder / _STATUS).open('a+', encoding='utf-8', errors='replace')
        except OSError as error:
            self._lock.close()
            msg = f'cannot write to {folder}: {error.strerror}'
            raise InputError(msg) from None
        for status in read_status(folder):
            self._remember(status)
        self._end_line()
        for marker in sorted((folder / _OPEN).glob('*.json')):
            if left := _read_marker(marker):
                self.add(left)
                self._remember(left)
            marker.unlink(missing_ok=True)

    def __enter__(self) -> FleetLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._lock.close()

    def add(self, status: RecordingStatus) -> None:
        """Note what became of a recording; it is in the file before this returns."""
        self._file.write(status.to_json() + '\n')
        self._file.flush()
        self._failed.pop(status.id, None)
        if status.error:
            self._failed[status.id] = status
        (self.folder / _OPEN / f'{status.id}.json').unlink(missing_ok=True)

    def due(
        self, recordings: Iterable[FleetRecording], most: int, *, retry_failed: bool
    ) -> Iterator[tuple[FleetRecording, int]]:
        """Recordings to work on, and how often each was begun; of copies, the first.

        Args:
            recordings: All of the fleet.
            most: Attempts after which a recording is given up.
            retry_failed: Take those too, and begin to count anew.
        """
        taken: set[str] = set()
        for recording in recordings:
            if recording.id in taken or recording.id in self._finished:
                continue
            taken.add(recording.id)
            failed = self._failed.get(recording.id)
            attempts = failed.attempts if failed and not retry_failed else 0
            if attempts < most:
                yield recording, attempts

    def failed(self) -> dict[str, RecordingStatus]:
        """Recordings whose last attempt failed, by id."""
        return dict(self._failed)

    def _remember(self, status: RecordingStatus) -> None:
        """Take a status that was noted before."""
        self._failed.pop(status.id, None)
        if status.error:
            self._failed[status.id] = status
            self._finished.discard(status.id)
        else:
            self._finished.add(status.id)

    def _end_line(self) -> None:
        """End a line that a crash cut off."""
        size = self._file.seek(0, 2)
        if size:
            self._file.seek(size - 1)
            if self._file.read(1) != '\n':
                self._file.write('\n')


def read_status(folder: Path) -> Iterator[RecordingStatus]:
    """The rows of a fleet's status file, in their order: of a recording, the last one counts.

    What a crash cut off is left out.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        with (folder / _STATUS).open(encoding='utf-8', errors='replace') as lines:
            for line in lines:
                with suppress(ValueError, TypeError):
                    yield RecordingStatus.from_json(line)
    except FileNotFoundError:
        return
    except OSError as error:
        msg = f'{folder / _STATUS} cannot be read: {error.strerror}'
        raise InputError(msg) from None
