# SPDX-License-Identifier: Apache-2.0
"""Rows: questions with their solutions, one JSON line each, for training and evaluation.

A row keeps of each delta `stamp_ns`, `action`, `change` and `items`, and, where the deltas are of
several cameras, the name of its `camera`. Questions about a scene map carry what of it was known:
its landmarks, the pose now, the way there and the floor. Questions about a robot's arm also state
where it was and where it went next, so that their solutions can be checked.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
import hashlib
import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import alone_in, whole_file
from embodied_r_ros.core.reasoning.completions import is_unknown, number_in, option_letter
from embodied_r_ros.core.reasoning.image_targets import BOX, FORMS, ImageTarget, POINT
from embodied_r_ros.core.reasoning.prompts import build_prompt, with_tools
from embodied_r_ros.core.reasoning.question import question_problem
from embodied_r_ros.core.types.answers import FocusText, ToolCall, UNKNOWN
from embodied_r_ros.core.types.deltas import row_deltas, SemanticDelta
from embodied_r_ros.core.types.landmarks import SceneMap
from embodied_r_ros.core.types.movement import Movement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path
    from random import Random

    from embodied_r_ros.core.reasoning.prompts import Prompt
    from embodied_r_ros.core.reasoning.question import ReasonerConfig
    from embodied_r_ros.core.scene.memory import MemoryConfig
    from embodied_r_ros.data.episodes.episode import Episode
    from embodied_r_ros.data.questions.indoor import Draft

ANSWER_KINDS = ('choice', 'number', 'text', POINT, BOX)
MOVEMENT = 'movement'  # type of questions whose solution are words for a way
SPLITS = ('train', 'validation', 'test')
_TEXTS = (
    'id', 'episode_id', 'scene_id', 'split', 'source', 'camera', 'question_type', 'question',
    'answer_kind', 'solution',
)  # fmt: skip
_ROBOT_FIELDS = ('state', 'keypoint', 'frame_id', 'deadband_m')
_MAP_FIELDS = ('landmarks', 'pose', 'path', 'room_area_m2')
_OPTIONAL = {'focus', 'meta', *_ROBOT_FIELDS, *_MAP_FIELDS}
_FAR_M = 1e6  # no arm gets there
_BOX_FORM = '{"bbox_2d": [left, top, right, bottom]}'
_FOCUS_FIELDS = {'keyframe_id': int, 'stamp_ns': int, 'text': str, 'camera': str}


@dataclass(frozen=True)
class Row:
    """A question about deltas, and its solution."""

    id: str
    episode_id: str
    scene_id: str  # train and test are split by it
    split: str  # one of SPLITS
    source: str  # what proves the solution: 'layout', 'odometry', 'label', …
    camera: str
    question_type: str
    question: str
    answer_kind: str  # one of ANSWER_KINDS
    options: tuple[str, ...]  # empty: a free question
    # Letter for a choice, number or text otherwise, where in the image (`ImageTarget`), 'unknown'.
    solution: str
    deltas: tuple[dict[str, Any], ...]  # as `row_deltas` writes them
    focus: tuple[dict[str, Any], ...] = ()  # fields of FocusText
    meta: dict[str, Any] = field(default_factory=dict)
    state: tuple[float, ...] = ()  # of an end effector, x, y, z in `frame_id` [m]; empty: none
    keypoint: tuple[float, ...] = ()  # where it goes next [m]; empty: none
    frame_id: str = ''  # task frame of state and keypoint; empty: none
    deadband_m: float | None = None  # see `Movement.between`; None: no state and keypoint
    landmarks: tuple[dict[str, Any], ...] = ()  # known at the moment, as `Landmark.to_json` has it
    pose: dict[str, Any] | None = None  # now, a path point of the map; None: not known
    path: tuple[dict[str, Any], ...] = ()  # path points of the map up to now; empty: not known
    room_area_m2: float | None = None  # of the floor; None: not known
    extra: dict[str, Any] = field(default_factory=dict)  # other fields, kept as they came

    def to_json(self) -> str:
        """One line of JSON."""
        value = asdict(self)
        extra = value.pop('extra')
        if not self.frame_id:
            for name in _ROBOT_FIELDS:
                del value[name]
        if not self.has_map:
            for name in _MAP_FIELDS:
                del value[name]
        return json.dumps({**value, **extra}, ensure_ascii=False, separators=(',', ':'))

    @classmethod
    def from_json(cls, line: str) -> Row:
        """Read what `to_json` wrote.

        Raises:
            InputError: It is not a row; the message names the field.
        """
        try:
            value = json.loads(line)
        except ValueError as error:
            msg = f'{line[:60]!r} is not JSON ({error})'
            raise InputError(msg) from None
        if not isinstance(value, dict):
            msg = f'{line[:60]!r} is not a JSON object'
            raise InputError(msg)
        return cls.from_mapping(value)

    @classmethod
    def from_mapping(cls, value: dict[str, Any]) -> Row:
        """Make a row of plain JSON values, and check it.

        Raises:
            InputError: A field is missing, has the wrong type or is not allowed.
        """
        names = [name for name in cls.__dataclass_fields__ if name != 'extra']
        missing = [name for name in names if name not in value and name not in _OPTIONAL]
        if missing:
            msg = f'row {value.get("id", "?")!r} lacks {", ".join(missing)}'
            raise InputError(msg)
        own = {name: value[name] for name in names if name in value}
        for name in ('options', 'deltas', 'focus', 'state', 'keypoint', 'landmarks', 'path'):
            if not isinstance(own.get(name, []), (list, tuple)):
                msg = f'row {value["id"]!r}: {name} is {own[name]!r}, expected a list'
                raise InputError(msg)
            own[name] = tuple(own.get(name, ()))
        row = cls(**own, extra={k: v for k, v in value.items() if k not in names})
        _check(row)
        # Answers are graded in these very letters.
        return replace(row, solution=UNKNOWN) if is_unknown(row.solution) else row

    def semantic_deltas(self) -> tuple[SemanticDelta, ...]:
        """The deltas as core values."""
        return tuple(SemanticDelta.from_row(delta) for delta in self.deltas)

    @property
    def has_map(self) -> bool:
        """Whether the row carries something of a scene map."""
        return any(getattr(self, name) not in ((), None) for name in _MAP_FIELDS)

    def scene_map(self) -> SceneMap:
        """What is known of the place: an empty map where the row carries none.

        Raises:
            InputError: A field is not as a MAP.json has it.
        """
        path = list(self.path)
        if self.pose is not None and self.pose not in path[-1:]:
            path.append(self.pose)
        return SceneMap.from_json(
            {
                'landmarks': list(self.landmarks),
                'path': path,
                'room_area_m2': self.room_area_m2,
            }
        )

    def prompt(self, config: MemoryConfig) -> Prompt:
        """The prompt that the reasoner reads for this row, as it would live.

        A question from a live run keeps the budget that it was answered with, and the calls of
        tools that its model made.
        """
        if budget := self.meta.get('token_budget'):
            config = replace(config, token_budget=budget)
        focus = [FocusText(**item) for item in self.focus]
        scene_map = self.scene_map() if self.has_map else None
        prompt = build_prompt(
            self.question, self.options, self.semantic_deltas(), focus, config, scene_map
        )
        loop = self.loop()
        return with_tools(prompt, *loop) if loop else prompt

    def loop(self) -> tuple[list[str], list[ToolCall]] | None:
        """What a model said before its calls of tools, and these; None: it was given none.

        Raises:
            InputError: They are not as rows of answers have them.
        """
        value = self.meta.get('tools')
        try:
            calls = [ToolCall.from_json(call) for call in value['calls']] if value else []
            return (list(value['turns']), calls) if value else None
        except (AttributeError, KeyError, TypeError):
            msg = f'row {self.id!r}: tools of meta is {str(value)[:80]}: expected turns and calls'
            raise InputError(msg) from None

    def without_calls(self) -> Row:
        """The same question for a model that answers in text."""
        return replace(self, meta={k: v for k, v in self.meta.items() if k != 'tools'})

    def with_map(self, scene: SceneMap) -> Row:
        """The same question with what is known of a place."""
        value = scene.to_json()
        path = value['path']
        return replace(
            self,
            landmarks=tuple(value['landmarks']),
            pose=path[-1] if path else None,
            path=tuple(path),
            room_area_m2=value['room_area_m2'],
        )

    def without_map(self) -> Row:
        """The same question without what is known of a place."""
        row = self.without_calls()  # whose results tell of it
        return replace(row, landmarks=(), pose=None, path=(), room_area_m2=None)

    def without_scene(self) -> Row:
        """The same question without observations: a blind baseline."""
        return replace(self.without_map(), deltas=(), focus=())

    def solution_text(self) -> str:
        """The solution as text: of a choice the option's own, of a place in the image that."""
        if self.answer_kind == 'choice' and self.solution != UNKNOWN:
            return self.options[ord(self.solution) - ord('A')]
        target = ImageTarget.of(self.solution)
        return target.text() if target else self.solution


def rows_as_asked(rows: Sequence[Row], config: ReasonerConfig) -> list[Row]:
    """Rows as the reasoner would ask them: a model that knows no maps gets none beside deltas."""
    return [row if config.use_map or not row.deltas else row.without_map() for row in rows]


@dataclass(frozen=True)
class QuestionWithSolution:
    """A question and its solution, in the letters of a row."""

    kind: str  # the question type
    text: str
    options: tuple[str, ...]
    solution: str
    source: str  # what proves the solution
    answer_kind: str = ''  # empty: as options and solution have it

    @classmethod
    def of_draft(cls, kind: str, draft: Draft, rng: Random) -> QuestionWithSolution:
        """A draft with its options in random order."""
        options = list(draft.options)
        rng.shuffle(options)
        solution = draft.solution
        if draft.answer_kind == 'choice' and solution != UNKNOWN:
            solution = option_letter(options.index(solution))
        given = draft.source, draft.answer_kind
        return cls(kind, draft.question, tuple(options), solution, *given)

    @property
    def digest(self) -> str:
        """Tells questions of one kind apart."""
        text = f'{self.text}{list(self.options)}'
        return hashlib.sha256(text.encode()).hexdigest()[:8]


@dataclass(frozen=True)
class RowBuilder:
    """Builds the rows of a recording, or of a map: derived, answered live, or written."""

    episode_id: str
    scene_id: str
    split: str
    camera: str = ''
    delta_source: str = ''  # empty: there are no deltas

    def row(
        self,
        name: str,
        question: QuestionWithSolution,
        deltas: Sequence[SemanticDelta],
        **fields: Any,
    ) -> Row:
        """Build a row.

        Args:
            name: Of the row among those of its recording.
            question: What it asks.
            deltas: What was seen by then.
            **fields: Other fields of the row; those of `meta` come after the source of the deltas.
        """
        source = {'deltas': self.delta_source} if self.delta_source else {}
        own: dict[str, Any] = {
            'camera': self.camera,
            'answer_kind': question.answer_kind
            or _answer_kind(question.options, question.solution),
            **fields,
            'meta': {**source, **fields.get('meta', {})},
        }
        return Row(
            id=f'{self.episode_id}/{name}',
            episode_id=self.episode_id,
            scene_id=self.scene_id,
            split=self.split,
            source=question.source,
            question_type=question.kind,
            question=question.text,
            options=question.options,
            solution=question.solution,
            deltas=row_deltas(deltas),
            **own,
        )


def builder_of(episode: Episode, split: str) -> RowBuilder:
    """What builds the rows of an episode."""
    return RowBuilder(episode.id, episode.scene_id, split, episode.camera, episode.delta_source)


def _answer_kind(options: Sequence[str], solution: str) -> str:
    if options:
        return 'choice'
    if target := ImageTarget.of(solution):
        return target.kind
    return 'text' if number_in(solution) is None else 'number'


def _check(row: Row) -> None:
    for name in _TEXTS:
        if not isinstance(getattr(row, name), str):
            msg = f'row {row.id!r}: {name} is {getattr(row, name)!r}, expected a text'
            raise InputError(msg)
    problem = _parts_problem(row) or _robot_problem(row)
    problem = problem or question_problem(row.question, row.options)
    if row.split not in SPLITS:
        problem = f'split is {row.split!r}, expected one of {", ".join(SPLITS)}'
    if row.answer_kind not in ANSWER_KINDS:
        problem = f'answer_kind is {row.answer_kind!r}, expected one of {", ".join(ANSWER_KINDS)}'
    problem = problem or _solution_problem(row)
    if problem:
        msg = f'row {row.id!r}: {problem}'
        raise InputError(msg)
    row.loop()


def _solution_problem(row: Row) -> str:
    """What is wrong with a solution; empty: nothing."""
    letters = [*(option_letter(index) for index in range(len(row.options))), UNKNOWN]
    if row.answer_kind == 'choice' and row.solution not in letters:
        return f'solution is {row.solution!r}, expected one of {", ".join(letters)}'
    is_number = is_unknown(row.solution) or number_in(row.solution) is not None
    if row.answer_kind == 'number' and not is_number:
        return f'solution is {row.solution!r}, expected a number or {UNKNOWN}'
    if row.answer_kind in FORMS and not is_unknown(row.solution):
        target = ImageTarget.of(row.solution)
        if row.options or target is None or target.kind != row.answer_kind:
            forms = '{"inside": …} or {"point_2d": …}' if row.answer_kind == POINT else _BOX_FORM
            return f'solution is {row.solution!r}, expected {forms} without options, or {UNKNOWN}'
    return _movement_problem(row) if row.question_type == MOVEMENT and row.frame_id else ''


def focus_problem(look: Any) -> str:
    """Why a value of a file is no `FocusText`; empty: it is one."""
    fits = isinstance(look, dict) and _FOCUS_FIELDS.keys() - {'camera'} <= look.keys()
    if not fits or not all(isinstance(v, _FOCUS_FIELDS.get(k, ())) for k, v in look.items()):
        return f'focus {look!r} is not readable: expected {", ".join(_FOCUS_FIELDS)}'
    return ''


def _parts_problem(row: Row) -> str:
    """What is wrong with the parts of a row's lists; empty: nothing."""
    options: tuple[Any, ...] = row.options  # of a file, so of any type
    deltas: tuple[Any, ...] = row.deltas
    meta: Any = row.meta
    problems = [
        *(f'option {option!r} is no text' for option in options if not isinstance(option, str)),
        *(f'delta {delta!r} is no object' for delta in deltas if not isinstance(delta, dict)),
        *filter(None, map(focus_problem, row.focus)),
        *([] if isinstance(meta, dict) else [f'meta is {meta!r}, expected an object']),
    ]
    return problems[0] if problems else _map_problem(row)


def _map_problem(row: Row) -> str:
    """What is wrong with what a row carries of a map; empty: nothing, or it carries none."""
    try:
        if row.has_map:
            row.scene_map()
    except InputError as error:
        return str(error)
    return ''


def _robot_problem(row: Row) -> str:
    """What is wrong with a row's fields of an arm; empty: nothing, or there are none."""
    values: dict[str, Any] = {name: getattr(row, name) for name in _ROBOT_FIELDS}
    if all(value in ((), '', None) for value in values.values()):
        return ''
    for name in ('state', 'keypoint'):
        if len(values[name]) != 3 or not all(map(_is_finite, values[name])):
            return f'{name} is {list(values[name])}, expected x, y, z [m]'
    if not isinstance(row.frame_id, str) or not row.frame_id:
        return f'frame_id is {row.frame_id!r}, expected the frame of state and keypoint'
    if not _is_finite(row.deadband_m) or values['deadband_m'] < 0:
        return f'deadband_m is {row.deadband_m!r}, expected metres from 0'
    return ''


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and -_FAR_M <= value <= _FAR_M


def _movement_problem(row: Row) -> str:
    """Why the words of a solution do not fit the movement of the row; empty: they do."""
    way = Movement.between(row.state, row.keypoint, row.deadband_m or 0.0)
    words = way.words() if way else UNKNOWN
    if row.solution_text() == words:
        return ''
    return f'solution is {row.solution_text()!r}, but from state to keypoint it is {words!r}'


def read_rows(path: Path) -> Iterator[Row]:
    """Read a file of rows, one at a time.

    Raises:
        InputError: The file cannot be read, or a line is not a row; names file and line.
    """
    try:
        with path.open(encoding='utf-8') as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _row_at(line, f'{path}:{number}')
    except (OSError, UnicodeDecodeError) as error:
        msg = f'{path} cannot be read as rows: {error}'
        raise InputError(msg) from None


def _row_at(line: str, place: str) -> Row:
    try:
        return Row.from_json(line)
    except InputError as error:
        msg = f'{place}: {error}'
        raise InputError(msg) from None


def write_rows(
    path: Path, rows: Iterable[Row], describe: Callable[[Path], object] | None = None
) -> int:
    """Write rows to a file, which appears only when it is complete; returns how many.

    Args:
        path: The file.
        rows: The rows.
        describe: Writes what goes with the file, of which it is given the unfinished one, before
            that takes its name; of two processes, one at a time.

    Raises:
        InputError: The file exists already, its folder does not, or the disk does not take it.
    """
    _refuse_existing(path)
    if not path.parent.is_dir():
        msg = f'folder {path.parent} does not exist: make it first'
        raise InputError(msg)
    count = 0
    with ExitStack() as alone, whole_file(path) as unfinished:
        with unfinished.open('w', encoding='utf-8') as out:
            for row in rows:
                out.write(row.to_json() + '\n')
                count += 1
        alone.enter_context(alone_in(path.parent))
        _refuse_existing(path)
        if describe:
            describe(unfinished)
    return count


def _refuse_existing(path: Path) -> None:
    if path.exists():
        msg = f'{path} exists already: remove it, or name another file'
        raise InputError(msg)
