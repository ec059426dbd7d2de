# SPDX-License-Identifier: Apache-2.0
"""A dataset of demonstrations, of whichever kind, becomes one bag per episode."""

from __future__ import annotations

from contextlib import contextmanager, ExitStack, suppress
from dataclasses import dataclass
import glob
import hashlib
import json
import shutil
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.import_episode import check_episode, outcome_of, write_episode
from embodied_r_ros.arm.import_lerobot import LeRobotDataset
from embodied_r_ros.arm.import_mapping import DemoMapping
from embodied_r_ros.arm.import_proposal import is_lerobot
from embodied_r_ros.arm.import_rlbench import RlbenchDataset
from embodied_r_ros.arm.tool_poses import check_links, load_urdf
from embodied_r_ros.bags.reader import open_bag, read_values
from embodied_r_ros.bags.writer import BagLock
from embodied_r_ros.common.errors import BagError, ConfigError, InputError
from embodied_r_ros.core.types.episodes import EpisodeOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


_ORIGIN = ('imported', 'mapping', 'numbers')  # by which a bag is known again


@dataclass(frozen=True)
class EpisodeImport:
    """What became of an episode."""

    name: str
    bag: Path
    rows: int = 0  # that were written now
    was_there: bool = False  # it had been imported before
    reason: str = ''  # why there is no bag


class DatasetImport:
    """The import of a dataset: check all of it, then write; use it in a with statement.

    A second run leaves the bags of the first one alone. A bag is complete, or not there.
    """

    def __init__(
        self, root: Path, mapping_file: Path, out: Path, *, skips_damaged: bool = False
    ) -> None:
        """Read what a dataset says of itself.

        Args:
            root: Folder of a LeRobot dataset (it has `meta`), or one as RLBench writes them.
            mapping_file: YAML that says what its numbers mean.
            out: Folder for the bags: new, empty, or one in which the same import was begun.
            skips_damaged: Leave out episodes that are not whole; otherwise the first one ends it.

        Raises:
            InputError: Something cannot be read, or does not fit.
        """
        self._mapping = DemoMapping.from_yaml(mapping_file)
        self._urdf = _urdf(mapping_file.parent / self._mapping.urdf, self._mapping)
        self._root = root
        self._out = out
        self._skips_damaged = skips_damaged
        self._stack = ExitStack()
        self.dataset: LeRobotDataset | RlbenchDataset
        if is_lerobot(root):
            self.dataset = self._stack.enter_context(LeRobotDataset(root, self._mapping))
        else:
            self.dataset = RlbenchDataset(root, self._mapping)
        self._digests: dict[str, str] = {}
        self._results: dict[str, EpisodeImport] = {}
        self._check_out()

    def __enter__(self) -> DatasetImport:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def has_positions(self) -> bool:
        """Tell whether the bags say where the end effector is."""
        return bool(self._mapping.xyz or self._urdf)

    def check(self) -> Iterator[str]:
        """See that all episodes are whole; yields the name of each.

        Raises:
            InputError: One is not.
        """
        names = self.dataset.names
        if not names:
            msg = (
                f'none of the {len(self.dataset.absent)} episodes that {self._root}/meta lists is '
                'there: download their data and videos'
            )
            raise InputError(msg)
        for name in names:
            with self._left_out(name):
                episode = self.dataset.read(name)
                self._digests[name] = check_episode(episode, self._mapping)
                if outcome_of(episode, self._mapping) is EpisodeOutcome.FAILURE:
                    self._leave_out(name, 'did not succeed')
                else:
                    self._check_bag(name)
            yield name

    def write(self) -> Iterator[EpisodeImport]:
        """Write the bags of the episodes that were checked; yields what became of each.

        Raises:
            InputError: An image cannot be decoded.
            BagError: A bag cannot be written, or another process imports to the same folder.
        """
        try:
            self._out.mkdir(parents=True, exist_ok=True)
            self._stack.enter_context(BagLock(self._out))
        except BlockingIOError:
            msg = f'{self._out} is in use by another import: wait for its end'
            raise InputError(msg) from None
        except OSError as error:
            msg = f'cannot write to {self._out}: {error.strerror}'
            raise BagError(msg) from None
        try:
            for name in self.dataset.names:
                if name not in self._results:
                    with self._left_out(name):
                        self._results[name] = self._write(name)
                yield self._results[name]
        finally:
            with suppress(OSError):
                self._out.rmdir()  # where nothing was written

    def _write(self, name: str) -> EpisodeImport:
        bag = self._out / name
        for hidden in self._out.glob(f'.{glob.escape(name)}-*'):  # of a process that was killed
            shutil.rmtree(hidden, ignore_errors=True)
        episode = self.dataset.read(name)
        write_episode(bag, episode, self._mapping, self._urdf, self._origin(name))
        return EpisodeImport(name, bag, len(episode.seconds))

    def _origin(self, name: str) -> dict[str, Any]:
        mapping = hashlib.sha256((self._mapping.digest() + self._urdf).encode()).hexdigest()
        return dict(zip(_ORIGIN, (self._root.name, mapping, self._digests[name]), strict=True))

    def _check_bag(self, name: str) -> None:
        """Note that an episode was imported before, if its bag is there."""
        bag = self._out / name
        if not bag.exists():
            return
        with open_bag(bag) as reader:
            texts = list(read_values(reader, ['/provenance'], lambda msg: str(msg.data)))
        try:
            origin = {part: json.loads(texts[0])[part] for part in _ORIGIN}
        except (ValueError, LookupError, TypeError):
            origin = {}
        if origin != self._origin(name):
            msg = (
                f'{bag} was imported from other numbers, or by another mapping: remove it, or '
                'choose another folder'
            )
            raise BagError(msg)
        self._results[name] = EpisodeImport(name, bag, was_there=True)

    def _check_out(self) -> None:
        """See that the folder holds nothing but bags of this dataset, and what a run left."""
        if not self._out.exists():
            return
        names = set(self.dataset.names)
        inside = list(self._out.iterdir()) if self._out.is_dir() else [self._out]
        for path in inside:
            of_killed = path.name.startswith('.') and path.name[1:].rpartition('-')[0] in names
            if path.name not in names and not of_killed:
                msg = f'{self._out} is not an empty folder: remove it, or choose another'
                raise InputError(msg)

    def _leave_out(self, name: str, reason: str) -> None:
        self._results[name] = EpisodeImport(name, self._out / name, reason=reason)

    @contextmanager
    def _left_out(self, name: str) -> Iterator[None]:
        """Leave an episode out where it is damaged, if damaged ones are skipped."""
        try:
            yield
        except (BagError, ConfigError):  # no fault of the episode
            raise
        except InputError as error:
            if not self._skips_damaged:
                raise
            self._leave_out(name, str(error))


def _urdf(path: Path, mapping: DemoMapping) -> str:
    """The robot's description, of which the mapping names joints and links; empty: none.

    Raises:
        InputError: It cannot be read, or lacks something that the mapping names.
    """
    if not mapping.urdf:
        return ''
    try:
        text = path.read_text(encoding='utf-8')
    except (OSError, UnicodeDecodeError) as error:
        msg = f'{path} cannot be read: {error}'
        raise InputError(msg) from None
    if mapping.xyz or not mapping.joints:  # poses come from elsewhere
        return text
    robot = load_urdf(text.encode())
    check_links(robot, mapping.tool_frame, mapping.joints.names)
    if mapping.frame_id != robot.base_link:
        msg = (
            f'frame_id is {mapping.frame_id!r}, and {path} begins at {robot.base_link!r}: set '
            f'frame_id to {robot.base_link!r}'
        )
        raise InputError(msg)
    return text
