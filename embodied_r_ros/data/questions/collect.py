# SPDX-License-Identifier: Apache-2.0
"""Rows of many recordings: what each gives, and what stays when that is put together.

One recording gives a part, whatever the others give. What depends on others (copies, twins in
another split, answers that are too common) is decided when parts are put together, one in memory
at a time. A part as a file is what a fleet of recordings hands over.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
import json
from pathlib import Path, PurePosixPath
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import BagError, ImageError, InputError
from embodied_r_ros.common.files import write_whole
from embodied_r_ros.core.types.landmarks import read_scene_map
from embodied_r_ros.data.episodes.episode import read_episode
from embodied_r_ros.data.episodes.fleet import StageReport
from embodied_r_ros.data.episodes.inspect import bag_digest, labels_sha256, why_unfit
from embodied_r_ros.data.episodes.manifest import is_url
from embodied_r_ros.data.questions.coverage import BagNote, Coverage
from embodied_r_ros.data.questions.derive import derive_rows
from embodied_r_ros.data.questions.map_rows import rows_of_map
from embodied_r_ros.data.questions.proofs import (
    rows_of_answers,
    rows_of_written,
    with_solutions_of_people,
)
from embodied_r_ros.data.questions.row import Row
from embodied_r_ros.data.questions.splits import pieces_of, split_of, SplitGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.geometry import Position
    from embodied_r_ros.data.episodes.episode import Episode
    from embodied_r_ros.data.episodes.manifest import FleetRecording
    from embodied_r_ros.data.questions.derive import QuestionsConfig

    Perceive = Callable[[Path], Sequence[SemanticDelta]]

MAP_SUFFIX = '.json'  # of scene maps among bags
_MAX_LISTED = 3  # bags, of those of which none can be used
_NAME_DIGITS = 8  # of the digest of a map, in the name of one whose name another one has too


@dataclass(frozen=True)
class RowsPart:
    """The rows of a recording, and what tells whether others have the same."""

    note: BagNote
    rows: tuple[Row, ...] = ()
    unsolved: Counter[tuple[str, str]] = field(default_factory=Counter)  # (kind, reason)
    disputed: Counter[tuple[str, str]] = field(default_factory=Counter)  # left out, by people
    deltas: int = 0
    is_damaged: bool = False  # it could not be read
    pieces: tuple[bytes, ...] = ()  # digests of what it shows
    layout: tuple[str, list[Position]] | None = None  # task and keypoints of an arm [m]

    @property
    def is_map(self) -> bool:
        """Whether it is of a scene map."""
        return self.note.name.endswith(MAP_SUFFIX)


@dataclass(frozen=True)
class RowsRecipe:
    """How a recording becomes rows."""

    config: QuestionsConfig
    delta_source: str | None = None  # one of DELTA_SOURCES; None: recorded where there are some
    perceive: Perceive | None = None  # where deltas are not read from bags
    is_forced: bool = False  # use bags that fail their audit too
    shared_names: frozenset[str] = frozenset()  # of scene maps, as `shared_map_names` has them

    def part_of(
        self, path: Path, name: str, copy_of: Callable[[str, str], str] = lambda digest, name: ''
    ) -> RowsPart:
        """What a recording gives. That it cannot be used is noted, and nothing is raised.

        Args:
            path: A bag, or the file of a scene map.
            name: What it is called.
            copy_of: Names an earlier recording of a digest and a name, so that no work is done on
                copies.
        """
        part = RowsPart(BagNote(name, {}, ''))
        try:
            digest = bag_digest(path)
            labels = '' if path.suffix == MAP_SUFFIX else labels_sha256(path)
            part = RowsPart(BagNote(name, digest.files, digest.sha256, labels=labels))
            if before := copy_of(digest.sha256, name):
                return as_copy(part, before)
            if part.is_map:
                return self._part_of_map(path, part)
            part = replace(part, note=self._fitness(path, part.note))
            return part if part.note.left_out else self._part_of_bag(path, part)
        except (InputError, ImageError) as error:  # hours of work on the others would be lost
            note = replace(part.note, left_out=str(error))
            return RowsPart(note, is_damaged=True)

    def _fitness(self, bag: Path, note: BagNote) -> BagNote:
        """The reason why a bag is left out without being read, or used all the same.

        Raises:
            BagError: It cannot be read.
        """
        try:
            why = why_unfit(bag)
        except OSError as error:
            msg = f'bag {bag} cannot be read: {error.strerror}'
            raise BagError(msg) from None
        return replace(note, forced=why) if self.is_forced else replace(note, left_out=why)

    def _part_of_bag(self, bag: Path, part: RowsPart) -> RowsPart:
        """The part of a bag that is fit.

        Raises:
            InputError: It cannot be read, or is not of the requested robot.
            ImageError: Its images are none.
        """
        episode = read_episode(bag, self.delta_source, self.perceive, self.config.robot)
        note = replace(
            part.note,
            episode_id=episode.id,
            scene_id=episode.scene_id,
            split=split_of(episode.scene_id, self.config),
            deltas=episode.delta_source,
        )
        coverage = Coverage()
        rows = tuple(_rows_of(episode, self.config, coverage))
        return RowsPart(
            note,
            rows,
            coverage.unsolved,
            coverage.left_out,
            len(episode.deltas),
            pieces=pieces_of(episode),
            layout=(episode.arm.task, episode.arm.keypoint_places) if episode.arm else None,
        )

    def _part_of_map(self, path: Path, part: RowsPart) -> RowsPart:
        """The part of a scene map.

        Raises:
            InputError: It is not readable as one.
        """
        name = _map_name(path.resolve().parent.name, path.stem)
        if name in self.shared_names:
            name = _name_with_digest(name, part.note.sha256)
        note = replace(
            part.note, episode_id=name, scene_id=name, split=split_of(name, self.config)
        )
        coverage = Coverage()
        rows = tuple(rows_of_map(read_scene_map(path), name, self.config, coverage))
        return RowsPart(note, rows, coverage.unsolved)


def _map_name(folder: str, stem: str) -> str:
    """Name of a scene map: its place, which decides about the split."""
    return f'{folder}/{stem}'


def _name_with_digest(name: str, sha256: str) -> str:
    return f'{name}-{sha256[:_NAME_DIGITS]}'


def shared_map_names(maps: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Names that several scene maps would have, though they are of different places.

    A copy of a map has its name by right.

    Args:
        maps: Path or URL of each, and what tells its content from that of others.
    """
    contents: dict[str, set[str]] = defaultdict(set)
    for source, content in maps:
        folder = PurePosixPath(source).parent if is_url(source) else Path(source).resolve().parent
        contents[_map_name(folder.name, PurePosixPath(source).stem)].add(content)
    return frozenset(name for name, different in contents.items() if len(different) > 1)


def as_copy(part: RowsPart, before: str) -> RowsPart:
    """What is left of a part that a recording before it gives too."""
    what = 'map' if part.is_map else 'bag'
    note = part.note
    return RowsPart(
        BagNote(note.name, note.files, note.sha256, left_out=f'a copy of {what} {before}')
    )


def _rows_of(episode: Episode, config: QuestionsConfig, coverage: Coverage) -> Iterator[Row]:
    split = split_of(episode.scene_id, config)
    yield from with_solutions_of_people(derive_rows(episode, config, coverage), episode, coverage)
    yield from rows_of_answers(episode, split, coverage)
    yield from rows_of_written(episode, split, coverage)


@dataclass(frozen=True)
class RowsStage:
    """Derives the part of a recording of a fleet, as a file of a folder."""

    folder: Path
    make_recipe: Callable[[], RowsRecipe]  # as clients of model servers do not travel

    @cached_property
    def _recipe(self) -> RowsRecipe:
        return self.make_recipe()

    def __call__(self, path: Path, recording: FleetRecording) -> StageReport:
        """Derive it (see `FleetStage`); that a recording cannot be used is in its part too."""
        part = self._recipe.part_of(path, recording.source)
        file = part_file(self.folder, recording)
        file.parent.mkdir(exist_ok=True)
        write_part(file, part)
        return StageReport(file.name, part.deltas, part.note.left_out)


def part_file(folder: Path, recording: FleetRecording) -> Path:
    """Where the part of a recording lies."""
    return folder / f'{recording.id}.jsonl'


def write_part(path: Path, part: RowsPart) -> None:
    """Write a part: a line with what it is, then its rows; it appears whole.

    Raises:
        InputError: It cannot be written.
    """
    head = {
        'note': asdict(part.note),
        'unsolved': [[*key, count] for key, count in part.unsolved.items()],
        'disputed': [[*key, count] for key, count in part.disputed.items()],
        'deltas': part.deltas,
        'is_damaged': part.is_damaged,
        'pieces': [piece.hex() for piece in part.pieces],
        'layout': part.layout,
    }
    lines = [json.dumps(head), *(row.to_json() for row in part.rows)]
    write_whole(path, ('\n'.join(lines) + '\n').encode())


def read_part(path: Path) -> RowsPart:
    """Read a part.

    Raises:
        InputError: It cannot be read, or is none.
    """
    try:
        # Not by `splitlines`, which takes more for the end of a line than JSON does.
        first, *lines = path.read_text(encoding='utf-8').rstrip('\n').split('\n')
        head: dict[str, Any] = json.loads(first)
        return RowsPart(
            BagNote(**head['note']),
            tuple(map(Row.from_json, lines)),
            _counts(head['unsolved']),
            _counts(head['disputed']),
            head['deltas'],
            head['is_damaged'],
            tuple(map(bytes.fromhex, head['pieces'])),
            _layout(head['layout']),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f'{path} cannot be read as the rows of a recording: {error}'
        raise InputError(msg) from None


def _counts(value: list[list[Any]]) -> Counter[tuple[str, str]]:
    return Counter({(kind, reason): count for kind, reason, count in value})


def _layout(value: Any) -> tuple[str, list[Position]] | None:
    if value is None:
        return None
    task, places = value
    return task, [(x, y, z) for x, y, z in places]


class RowsMerger:
    """Puts parts together, in the order in which they come: what an earlier one has, wins.

    Copies of recordings, and what another split has already, are left out.
    """

    def __init__(self, config: QuestionsConfig, coverage: Coverage) -> None:
        """Begin.

        Args:
            config: How questions are derived.
            coverage: Counts what comes in and what is left out.
        """
        self._guard = SplitGuard()
        self._coverage = coverage
        self._is_any_damaged = False

    def copy_of(self, digest: str, name: str) -> str:
        """Name of an earlier recording with the same content; empty: there was none."""
        return self._guard.copy_of(digest, name)

    def add(self, part: RowsPart) -> Iterator[Row]:
        """Take a part, and give its rows that stay."""
        coverage, note = self._coverage, part.note
        self._is_any_damaged |= part.is_damaged
        if note.sha256 and (before := self.copy_of(note.sha256, note.name)):
            note = as_copy(part, before).note
        left_out = note.left_out or self._why_twin(part)
        if left_out:
            coverage.leave_out(note, left_out)
            return
        coverage.unsolved.update(part.unsolved)
        coverage.left_out.update(part.disputed)
        before_it = coverage.splits.total()
        yield from _admit(part.rows, self._guard, coverage)
        coverage.bags.append(replace(note, rows=coverage.splits.total() - before_it))

    def end(self) -> None:
        """See that something could be used.

        Raises:
            BagError: No recording was readable with the requested deltas.
        """
        bags = self._coverage.bags
        if self._is_any_damaged and all(note.left_out for note in bags):
            raise BagError(_why_none(bags))

    def _why_twin(self, part: RowsPart) -> str:
        """Which scene of another split a part is of too, in words; empty: of none."""
        note, guard = part.note, self._guard
        if part.is_map:
            other = guard.other_split_of(note.scene_id, note.split)
            return f'the place is in split {other}' if other else ''
        if twin := guard.twin_of(note.scene_id, note.split, part.pieces):
            return f'shows what scene {twin!r} of another split shows'
        if part.layout and (twin := guard.layout_twin_of(*part.layout, note.scene_id, note.split)):
            return f'has the layout of scene {twin!r} of another split'
        return ''


def rows_of(bags: Iterable[Path], recipe: RowsRecipe, coverage: Coverage) -> Iterator[Row]:
    """Derive the rows of bags, in the order given.

    What an earlier bag has in another split is left out, and so are copies of bags, and bags that
    were not closed, fail their audit, or cannot be read: one bad bag does not end the work on the
    others.

    Args:
        bags: Bags, as `find_bags` lists them, and files of scene maps.
        recipe: How each becomes rows.
        coverage: Counts what was derived and what had no solution.

    Raises:
        BagError: No bag is readable and has the requested deltas.
    """
    merger = RowsMerger(recipe.config, coverage)
    for bag in bags:
        yield from merger.add(recipe.part_of(bag, str(bag), merger.copy_of))
    merger.end()


def rows_of_fleet(
    recordings: Iterable[FleetRecording],
    parts: Path,
    failed: Mapping[str, str],
    config: QuestionsConfig,
    coverage: Coverage,
) -> Iterator[Row]:
    """Put the parts of a fleet together, one in memory at a time, as `rows_of` would.

    Args:
        recordings: All of the fleet.
        parts: Folder of their parts (`RowsStage`).
        failed: Why a recording has no part, by id.
        config: How questions are derived.
        coverage: Counts what was derived and what was left out.

    Raises:
        InputError: A part cannot be read.
        BagError: No recording could be used.
    """
    merger = RowsMerger(config, coverage)
    for recording in recordings:
        file = part_file(parts, recording)
        if not file.exists() and recording.id in failed:
            note = BagNote(recording.source, {}, '', left_out=failed[recording.id])
            part = RowsPart(note, is_damaged=True)
        else:
            part = read_part(file)
            part = replace(part, note=replace(part.note, name=recording.source))
        yield from merger.add(part)
    merger.end()


def _why_none(bags: Sequence[BagNote]) -> str:
    """Why no bag can be used, of the first ones."""
    reasons = [f'{bag.name}: {bag.left_out}' for bag in bags[:_MAX_LISTED]]
    reasons += [f'and {len(bags) - _MAX_LISTED} others'] if len(bags) > _MAX_LISTED else []
    return f'no bag can be used: {"; ".join(reasons)}'


def _admit(rows: Iterable[Row], guard: SplitGuard, coverage: Coverage) -> Iterator[Row]:
    """Rows that no other split has already."""
    for row in rows:
        if other := guard.clash_of(row):
            reason = f'the same is asked of the same deltas in split {other}'
            coverage.left_out[row.question_type, reason] += 1
        else:
            coverage.count(row)
            yield row
