# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of plans: skills for VLABench's tasks; episodes that EmbodiedBench has recorded."""

from __future__ import annotations

from collections import Counter
import json
import math
import re
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError

from training.eval.benchmarks.questions import (
    Benchmark,
    BenchmarkQuestion,
    different_truths,
    picture_bytes,
    without_doubles,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    Skills = Sequence[dict[str, Any]]
    Node = tuple[str, Any, Any]

# VLABench for vision-language models: a folder TASK/exampleN/{input,output} for each example,
# scored as evaluation/utils.py of OpenMOSS/VLABench does.
_INDEPENDENT = 'seq_independent_task.json'  # of its configs/evaluation: tasks in any order
_WORDING = (
    'The first image shows a table, the second one the same with a number on each thing. Plan '
    'the skills of the robot arm for this instruction: {instruction}\n'
    'Skills: pick, place, insert, pour, pull, lift, push, open_door, press. Each has params: '
    'target_entity_name, and for place, insert and pour target_container_name; both are numbers '
    'of the second image.\n'
    'Answer with JSON alone: {{"skill_sequence": [{{"name": "pick", "params": '
    '{{"target_entity_name": 1}}}}]}}'
)
_FENCE = re.compile(r'```json(.*?)```', re.DOTALL)
# Skills that make a subtask; of those that fit at a place, the first.
_SUBTASKS = (
    ('pick', 'place'), ('pick', 'insert'), ('pick', 'pour', 'place'), ('pick', 'pour'),
    ('pick', 'pull'), ('pick', 'lift'), ('pick', 'push', 'pull'), ('pick', 'push', 'place'),
    ('pick', 'push'), ('pick', 'open_door'), ('press',),
)  # fmt: skip
_ENTITY, _CONTAINER = 'target_entity_name', 'target_container_name'


def vlabench_score(question: BenchmarkQuestion, prediction: str) -> float:
    """0.4 skills + 0.4 entities + 0.1 both together + 0.1 subtasks in order, each as a share.

    What is no JSON with such skills is 0, and so is whatever answers an example whose own plan
    has no subtask: VLABench divides by their number, and counts an evaluation that fails as 0.
    """
    try:
        skills = _skills_in(prediction)
        return _plan_score(question.record['skills'], skills, question.record['in_order'])
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return 0.0


def _skills_in(prediction: str) -> Any:
    fenced = _FENCE.search(prediction)
    return json.loads(fenced[1] if fenced else prediction)['skill_sequence']


def _plan_score(truth: Skills, own: Skills, in_order: bool) -> float:
    subtasks = list(_subtasks(truth))
    if not subtasks:
        return 0.0
    shares = [
        (0.4, _share(_names(truth), _names(own))),
        (0.4, _share(_entities(truth), _entities(own))),
        (0.1, _share(_wholes(truth), _wholes(own))),
        (0.1, _subtask_share(subtasks, list(_subtasks(own)), in_order)),
    ]
    return sum(weight * share for weight, share in shares)


def _share(truth: Sequence[Any], own: Sequence[Any]) -> float:
    """Share of the truth that is there, whatever the order."""
    return sum((Counter(truth) & Counter(own)).values()) / len(truth) if truth else 0.0


def _names(skills: Skills) -> list[Any]:
    return [skill['name'] for skill in skills]


def _entities(skills: Skills) -> list[tuple[str, Any]]:
    pairs = [(key, skill['params'].get(key)) for skill in skills for key in (_ENTITY, _CONTAINER)]
    return [(key, value) for key, value in pairs if value is not None]


def _wholes(skills: Skills) -> list[Node]:
    return [
        (skill['name'], skill['params'].get(_ENTITY), skill['params'].get(_CONTAINER))
        for skill in skills
    ]


def _subtasks(skills: Skills) -> Iterator[Node]:
    """Subtasks in order, each with its last entity and container; other skills are passed over."""
    names, at = _names(skills), 0
    while at < len(names):
        pattern = next((p for p in _SUBTASKS if tuple(names[at : at + len(p)]) == p), None)
        if pattern is None:
            at += 1
            continue
        params = [skill['params'] for skill in skills[at : at + len(pattern)]]
        last: list[Any] = [None, None]
        for number, key in enumerate((_ENTITY, _CONTAINER)):
            values = [value for each in params if (value := each.get(key)) is not None]
            last[number] = values[-1] if values else None
        yield '-'.join(pattern), last[0], last[1]
        at += len(pattern)


def _subtask_share(truth: Sequence[Node], own: Sequence[Node], in_order: bool) -> float:
    """Share of the subtasks that are there: in order, at their place and after the same one."""
    if not in_order:
        return sum((Counter(truth) & Counter(own)).values()) / len(truth)
    pairs = list(zip([None, *truth], truth, strict=False))
    others = list(zip([None, *own], own, strict=False))
    return sum(a == b for a, b in zip(pairs, others, strict=False)) / len(truth)


def read_vlabench(path: Path) -> list[BenchmarkQuestion]:
    """Read the examples of a folder of tasks.

    Raises:
        InputError: It is none, or the tasks in any order are not named in it.
    """
    independent = _object_of(path / _INDEPENDENT)
    if not isinstance(independent, (list, dict)):
        msg = f'{path / _INDEPENDENT}: expected the file of that name in configs of VLABench'
        raise InputError(msg)
    questions = []
    for row, file in enumerate(sorted(path.glob('*/example*/output/operation_sequence.json'))):
        example = file.parent.parent
        task, shown = example.parent.name, example / 'input'
        content = _object_of(file)
        skills = content.get('skill_sequence') if isinstance(content, dict) else None
        if not isinstance(skills, list) or not skills:
            msg = f'{file}: skill_sequence is {skills!r}, expected a list of skills'
            raise InputError(msg)
        instruction = picture_bytes('instruction.txt', shown, row).decode(errors='replace').strip()
        pictures = [picture_bytes(name, shown, row) for name in ('input.png', 'input_mask.png')]
        questions.append(
            BenchmarkQuestion(
                id=f'{task}/{example.name}',
                question_type=task,
                scene=f'{task}/{example.name}',
                wording=_WORDING.format(instruction=instruction),
                truth=json.dumps({'skill_sequence': skills}),
                images=tuple(pictures),
                record={
                    'question': instruction,
                    'skills': skills,
                    'in_order': task not in independent,
                },
            )
        )
    return without_doubles(questions, path)


# EmbodiedBench: its evaluators write a file for each episode, EVAL_SET/results/episode_N_….json.
# Their summaries are means over these files.
_EPISODES = '**/results/episode_*.json'
_SUCCESS = 'task_success'


def read_embodiedbench(path: Path) -> list[BenchmarkQuestion]:
    """Read the episodes below a folder; the type of each is its set.

    Raises:
        InputError: There is none, or one is damaged.
    """
    questions = []
    for file in sorted(path.glob(_EPISODES)):
        record = _object_of(file)
        success = record.get(_SUCCESS) if isinstance(record, dict) else None
        if not isinstance(success, (int, float)) or not 0 <= success <= 1:
            msg = f'{file}: {_SUCCESS} is {success!r}, expected a number from 0 to 1'
            raise InputError(msg)
        instruction = str(record.get('instruction', ''))
        questions.append(
            BenchmarkQuestion(
                id=str(file.relative_to(path)),
                question_type=file.parent.parent.name,
                scene=instruction or file.stem,
                wording=instruction,
                truth='1',
                record=record,
            )
        )
    return without_doubles(questions, path)


def averages(episodes: Sequence[BenchmarkQuestion]) -> dict[str, float]:
    """Mean of each number that episodes have recorded, over those that have it."""
    values: dict[str, list[float]] = {}
    for episode in episodes:
        for name, value in episode.record.items():
            if isinstance(value, (int, float)) and math.isfinite(value):
                values.setdefault(name, []).append(float(value))
    return {name: sum(numbers) / len(numbers) for name, numbers in values.items()}


def _success(question: BenchmarkQuestion) -> str:
    return str(float(question.record[_SUCCESS]))


def _recorded_score(question: BenchmarkQuestion, prediction: str) -> float:
    del question
    return float(prediction)


def _object_of(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding='utf-8'))
    except (OSError, ValueError, RecursionError) as error:
        msg = f'{file} cannot be read: {error}'
        raise InputError(msg) from None


VLABENCH = Benchmark('vlabench', read_vlabench, vlabench_score, different_truths, has_images=True)
EMBODIEDBENCH = Benchmark(
    'embodiedbench',
    read_embodiedbench,
    _recorded_score,
    different_truths,
    is_mean_of_types=True,
    stored_reply=_success,
)
