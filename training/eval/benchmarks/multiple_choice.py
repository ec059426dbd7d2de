# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of choices, each with its own rule: UrbanVideo-Bench, EgoSchema, MVBench, ERQA."""

from __future__ import annotations

import json
import re
import string
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError

from training.eval.benchmarks.questions import (
    Benchmark,
    BenchmarkQuestion,
    different_truths,
    image_bytes,
    read_records,
    text_field,
    texts_field,
    VideoPart,
    without_doubles,
)

if TYPE_CHECKING:
    from pathlib import Path

    from training.eval.benchmarks.questions import Record

# UrbanVideo-Bench: `MCQ.parquet`, scored as eval.py of EmbodiedCity/UrbanVideo-Bench.code does.
_URBAN_BEFORE = 'This is what an agent that moves sees, in the first person.'
_URBAN_AFTER = (
    'Answer in the form "Option: []; Reason: []", with one letter from A to E as the option.'
)
_URBAN_OPTION = re.compile(r'Option:\s*[\[\s]*(\w)')
# Cells that pandas reads as no text from the file of predictions: eval.py leaves their rows out.
_URBAN_LEFT_OUT = frozenset(
    [
        '', '#N/A', '#N/A N/A', '#NA', '-1.#IND', '-1.#QNAN', '-NaN', '-nan', '1.#IND', '1.#QNAN',
        '<NA>', 'N/A', 'NA', 'NULL', 'NaN', 'None', 'n/a', 'nan', 'null',
    ]
)  # fmt: skip


def urban_video_score(question: BenchmarkQuestion, prediction: str) -> float | None:
    """1 where the letter behind 'Option:', as it stands, or else the first letter is right.

    >>> from dataclasses import replace
    >>> asked = BenchmarkQuestion('1', 'Causal', 'v', 'Why?', 'B')
    >>> [urban_video_score(asked, text) for text in ('Option: [B]', 'b', 'Option: [b]', '')]
    [1.0, 1.0, 0.0, None]
    """
    if prediction in _URBAN_LEFT_OUT:
        return None
    match = _URBAN_OPTION.search(prediction)
    letter = match[1] if match else prediction[0].upper()
    return float(letter == question.truth)


def read_urban_video(path: Path) -> list[BenchmarkQuestion]:
    """Read the questions, in whose text the choices stand.

    Raises:
        InputError: The file is none of UrbanVideo-Bench.
    """
    questions = []
    for row, record in enumerate(read_records(path)):
        video = text_field(record, 'video_id', row)
        name = text_field(record, 'Question_id', row) if 'Question_id' in record else str(row)
        questions.append(
            BenchmarkQuestion(
                id=name,
                question_type=text_field(record, 'question_category', row),
                scene=video,
                wording=f'{_URBAN_BEFORE}\n{_URBAN_AFTER}\n{text_field(record, "question", row)}',
                truth=text_field(record, 'answer', row),
                video=VideoPart((video, f'{video}.mp4')),
                record=record,
            )
        )
    return without_doubles(questions, path)


# EgoSchema: `questions.json` with `subset_answers.json` beside it, or the parquet file of the
# dataset card. Its validation takes indices; texts are read as lmms_eval/tasks/egoschema does.
_EGO_ANSWERS = 'subset_answers.json'
_EGO_TYPE = 'egoschema'
_EGO_AFTER = "Answer with the option's letter from the given choices directly."
_LETTERED = re.compile(r'[A-E]\. ')


def egoschema_index(question: BenchmarkQuestion, prediction: str) -> int:
    """Index of the option that a prediction names, 0..4; -1: none.

    An index, the letter, the text, or both, to the letter; a dot at the end of an option counts.
    """
    if prediction.strip() in {str(index) for index in range(len(question.options))}:
        return int(prediction)
    options = [option if option.endswith('.') else f'{option}.' for option in question.options]
    letters = string.ascii_uppercase[: len(options)]
    wholes = [f'{letter}. {text}' for letter, text in zip(letters, options, strict=True)]
    # Only what stands before a next '. ' is looked at.
    firsts = [whole.split('. ')[1] for whole in wholes]
    for names in (wholes, firsts, list(letters)):
        if prediction in names:
            return names.index(prediction)
    return -1


def _egoschema_score(question: BenchmarkQuestion, prediction: str) -> float:
    return float(str(egoschema_index(question, prediction)) == question.truth)


def read_egoschema(path: Path) -> list[BenchmarkQuestion]:
    """Read the questions; those without a published answer have no ground truth.

    Raises:
        InputError: The file is none of EgoSchema.
    """
    answers = _egoschema_answers(path.parent / _EGO_ANSWERS)
    questions = []
    for row, record in enumerate(read_records(path)):
        is_json = 'q_uid' in record
        video = text_field(record, 'q_uid' if is_json else 'video_idx', row)
        options = (
            tuple(text_field(record, f'option {index}', row) for index in range(5))
            if is_json
            else tuple(
                option[3:] if _LETTERED.match(option) else option
                for option in texts_field(record, 'option', row)
            )
        )
        truth = _egoschema_truth(record, answers.get(video))
        questions.append(
            BenchmarkQuestion(
                id=video,
                question_type=_EGO_TYPE,
                scene=video,
                wording=f'{text_field(record, "question", row)}\n{_EGO_AFTER}',
                truth=truth if truth in tuple('01234') else None,
                options=options,
                video=VideoPart((f'{video}.mp4', f'{video}.MP4')),
                record=record,
            )
        )
    return without_doubles(questions, path)


def _egoschema_truth(record: Record, from_file: Any) -> str:
    """The answer of a row as text, or where its field is empty that of the file of answers."""
    answer = record.get('answer')
    is_empty = answer is None or not str(answer).strip()
    return str(from_file if is_empty else answer)


def _egoschema_answers(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        answers = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError, RecursionError) as error:
        msg = f'{path} cannot be read: {error}'
        raise InputError(msg) from None
    if not isinstance(answers, dict):
        msg = f'{path}: expected an object with the index of the right option by q_uid'
        raise InputError(msg)
    return answers


# MVBench: a JSON file for each task, or one table with a column task_type; scored as check_ans of
# OpenGVLab/Ask-Anything (video_chat2/mvbench.ipynb) does. For each task the folder of its videos.
_MV_AFTER = 'Only give the best option.'
_MV_FOLDERS = {
    'Action Sequence': 'star/Charades_v1_480',
    'Action Prediction': 'star/Charades_v1_480',
    'Action Antonym': 'ssv2_video',
    'Fine-grained Action': 'Moments_in_Time_Raw/videos',
    'Unexpected Action': 'FunQA_test/test',
    'Object Existence': 'clevrer/video_validation',
    'Object Interaction': 'star/Charades_v1_480',
    'Object Shuffle': 'perception/videos',
    'Moving Direction': 'clevrer/video_validation',
    'Action Localization': 'sta/sta_video',
    'Scene Transition': 'scene_qa/video',
    'Action Count': 'perception/videos',
    'Moving Count': 'clevrer/video_validation',
    'Moving Attribute': 'clevrer/video_validation',
    'State Change': 'perception/videos',
    'Fine-grained Pose': 'nturgbd',
    'Character Order': 'perception/videos',
    'Egocentric Navigation': 'vlnqa',
    'Episodic Reasoning': 'tvqa/frames_fps3_hq',
    'Counterfactual Inference': 'clevrer/video_validation',
}
_MV_FRAMES = {'Episodic Reasoning': 3.0}  # images in folders, by their rate [Hz]


def mvbench_score(question: BenchmarkQuestion, prediction: str) -> float:
    """1 where the first word is part of '(a)', dots aside, or '(a)' is part of it; a: the letter.

    So an empty prediction is right, and 'A:' is wrong.
    """
    option = f'({question.truth})'.lower()
    word = prediction.strip().split('\n')[0].lower().split(' ')[0]
    return float(word.replace('.', '') in option or option in word)


def read_mvbench(path: Path) -> list[BenchmarkQuestion]:
    """Read the questions of a task's file, of a folder of such files, or of one table.

    Raises:
        InputError: There is no file of MVBench.
    """
    files = sorted(path.glob('*.json')) if path.is_dir() else [path]
    questions = [
        _mvbench_question(record, row, file)
        for file in files
        for row, record in enumerate(read_records(file))
    ]
    return without_doubles(questions, path)


def _mvbench_question(record: Record, row: int, file: Path) -> BenchmarkQuestion:
    # The dataset card has a folder for each task, with one parquet file.
    stem = file.stem if _mvbench_task(file.stem) in _MV_FOLDERS else file.parent.name
    task = str(record.get('task_type') or _mvbench_task(stem))
    video = text_field(record, 'video', row)
    candidates = texts_field(record, 'candidates', row)
    answer = record.get('answer')
    places = [index for index, text in enumerate(candidates) if text == answer]
    if not places or len(candidates) > len(string.ascii_uppercase):
        msg = f'row {row} of {file}: answer is {answer!r}, expected one of {list(candidates)}'
        raise InputError(msg)
    folder = _MV_FOLDERS.get(task)
    span = tuple(record.get(name) for name in ('start', 'end'))
    return BenchmarkQuestion(
        id=str(record['index']) if 'index' in record else f'{stem}/{row}',
        question_type=task,
        scene=video,
        wording=f'{text_field(record, "question", row)}\n{_MV_AFTER}',
        truth=string.ascii_uppercase[places[-1]],
        options=candidates,
        video=VideoPart(
            (f'{folder}/{video}', video) if folder else (video,),
            (float(str(span[0])), float(str(span[1]))) if _are_times(span) else None,
            _MV_FRAMES.get(task),
        ),
        record=record,
    )


def _mvbench_task(stem: str) -> str:
    return stem.replace('_', ' ').title().replace('Fine Grained', 'Fine-grained')


def _are_times(span: tuple[Any, ...]) -> bool:
    try:
        return float(span[0]) <= float(span[1])
    except (TypeError, ValueError):
        return False


# ERQA: a table of embodiedreasoning/ERQA, in parquet or TSV; scored as its eval_harness.py.
def erqa_score(question: BenchmarkQuestion, prediction: str) -> float:
    """1 where the prediction is the letter, dots, spaces around it and case aside."""
    truth = (question.truth or '').strip().lower()
    return float(prediction.replace('.', '').strip().lower() == truth)


def read_erqa(path: Path) -> list[BenchmarkQuestion]:
    """Read the questions with their images; the choices stand in the questions.

    Raises:
        InputError: The file is none of ERQA.
    """
    questions = []
    for row, raw in enumerate(read_records(path)):
        record = {k: value for k, value in raw.items() if k not in _ERQA_IMAGES}
        name = next((str(record[k]) for k in ('question_id', 'index') if k in record), str(row))
        kind = record.get('question_type') or record.get('category') or 'ERQA'
        images = next((raw[key] for key in _ERQA_IMAGES if raw.get(key)), None)
        questions.append(
            BenchmarkQuestion(
                id=name,
                question_type=str(kind),
                scene=name,
                wording=text_field(record, 'question', row),
                truth=text_field(record, 'answer', row),
                images=image_bytes(images, row),
                record=record,
            )
        )
    return without_doubles(questions, path)


_ERQA_IMAGES = ('images', 'image')


URBAN_VIDEO_BENCH = Benchmark(
    'urbanvideo-bench', read_urban_video, urban_video_score, different_truths
)
EGOSCHEMA = Benchmark('egoschema', read_egoschema, _egoschema_score, different_truths)
MVBENCH = Benchmark('mvbench', read_mvbench, mvbench_score, different_truths)
ERQA = Benchmark('erqa', read_erqa, erqa_score, different_truths, has_images=True)
