# SPDX-License-Identifier: Apache-2.0
"""Predictions: of a model that is asked, or of any program, from a file or for other suites.

A model is asked a benchmark's questions about scenes: perceived videos, or images as they are.
What was perceived is kept by the content of the video and all that decides it, so that a run that
was cut off goes on where it stopped. What cannot be perceived or asked is an error of its
questions alone.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field, replace
from io import StringIO
import json
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import EmbodiedRError, InputError, ModelError
from embodied_r_ros.common.files import write_whole
from embodied_r_ros.core.pipeline import classical_perceiver
from embodied_r_ros.core.reasoning.completions import parse_completion
from embodied_r_ros.core.reasoning.prompts import build_prompt, Prompt
from embodied_r_ros.core.scene.memory import SceneText
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.core.types.images import EncodedImage, image_format
from embodied_r_ros.core.types.landmarks import read_scene_map, SceneMap
from embodied_r_ros.data.episodes.offline import RecordingScene, Seer
from tqdm import tqdm

from training.data.lines import read_lines
from training.eval.benchmarks.questions import as_list
from training.eval.generation import generate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from embodied_r_ros.core.chat.cache import ReplyCache
    from embodied_r_ros.core.scene.memory import MemoryConfig
    from embodied_r_ros.core.types.answers import Sampling
    from embodied_r_ros.core.types.images import StampedImage
    from embodied_r_ros.data.episodes.perception_cache import PerceptionCache

    from training.eval.benchmarks.questions import BenchmarkQuestion, VideoPart

    Texts = Mapping[str, str]

_NAMED = 5  # ids that a message names
_LINES = '.jsonl'

_SHOWN = 'You answer questions about images, in the form that the question asks for.'
_FAILURES_IN_A_ROW = 8  # after which a server counts as dead


NOTHING_KNOWN = RecordingScene(())


@dataclass
class AskedQuestions:
    """What a model said, by the id of the question, and why it said nothing."""

    texts: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def scene_prompt(
    question: BenchmarkQuestion, scene: RecordingScene, memory: MemoryConfig
) -> Prompt:
    """How a question about a scene is put, by the one prompt builder of the reasoner.

    A question about images is put with them alone, to a model that sees.
    """
    if question.images:
        images = tuple(EncodedImage(i, image_format(i) or 'jpeg') for i in question.images)
        return Prompt(_SHOWN, question.wording, SceneText(''), images)
    parts = question.wording, question.options, scene.deltas, ()
    return build_prompt(*parts, memory, scene.scene_map)


def answer_text(completion: str) -> str:
    """What a benchmark scores of a completion: its answer; without one answer, all of it."""
    answer = parse_completion(completion).answer
    return completion.strip() if answer is None else answer


def ask(
    model: str,
    questions: Sequence[BenchmarkQuestion],
    scenes: Mapping[str, RecordingScene],
    memory: MemoryConfig,
    sampling: Sampling,
    cache: ReplyCache | None,
) -> AskedQuestions:
    """Ask a model questions about their scenes.

    Args:
        model: Folder with weights, or URL of a model server.
        questions: The questions.
        scenes: By the id of the question; questions without one are not asked.
        memory: How much of a scene a prompt may hold.
        sampling: How to sample.
        cache: What models said before.

    Raises:
        InputError: `model` is neither, or reads text alone and is to be shown images.
        ModelError: It fails altogether.
    """
    prompts = {
        question.id: scene_prompt(question, scenes[question.id], memory)
        for question in questions
        if question.id in scenes
    }
    answers = AskedQuestions()
    try:
        completions = generate(model, list(prompts.values()), sampling, cache=cache)
        answers.texts = dict(zip(prompts, map(answer_text, completions), strict=True))
    except ModelError:
        _ask_singly(model, prompts, sampling, cache, answers)
    return answers


def _ask_singly(
    model: str,
    prompts: Mapping[str, Prompt],
    sampling: Sampling,
    cache: ReplyCache | None,
    answers: AskedQuestions,
) -> None:
    """Ask one after the other, so that only those fail that a model cannot take.

    Raises:
        ModelError: Many in a row fail, or all.
    """
    failures = 0
    for name, prompt in prompts.items():
        try:
            answers.texts[name] = answer_text(generate(model, [prompt], sampling, cache=cache)[0])
        except ModelError as error:
            answers.errors[name] = str(error)
            failures += 1
            if failures >= min(_FAILURES_IN_A_ROW, len(prompts)):
                raise
        else:
            failures = 0


def without_images(questions: Sequence[BenchmarkQuestion]) -> list[BenchmarkQuestion]:
    """The questions without the images that come with them."""
    return [replace(question, images=()) for question in questions]


def perceive_videos(
    questions: Sequence[BenchmarkQuestion], folder: Path, cache: PerceptionCache | None
) -> tuple[dict[str, RecordingScene], dict[str, str]]:
    """Scenes of questions, perceived in their videos as any recording is, each with its map.

    Args:
        questions: The questions, each with its video.
        folder: Where the videos are.
        cache: What was perceived before; None: nothing, and nothing is kept.

    Returns:
        The scenes, and why there is none, by the id of the question.

    Raises:
        InputError: The folder is not there, or a question has no video.
    """
    if not folder.is_dir():
        msg = f'{folder} is no folder: expected the one with the videos of the benchmark'
        raise InputError(msg)
    by_part: dict[VideoPart, list[str]] = {}
    for question in questions:
        if question.video is None:
            msg = f'question {question.id!r} is about images, which come with the rows'
            raise InputError(msg)
        by_part.setdefault(question.video, []).append(question.id)
    scenes: dict[str, RecordingScene] = {}
    errors: dict[str, str] = {}
    for part, names in tqdm(by_part.items(), desc='videos', leave=False, disable=None):
        try:
            scene = _perceived_scene(_video_path(folder, part), part, cache)
        except EmbodiedRError as error:
            errors.update(dict.fromkeys(names, str(error)))
        else:
            scenes.update(dict.fromkeys(names, scene))
    return scenes, errors


def _video_path(folder: Path, part: VideoPart) -> Path:
    paths = [folder / place for place in part.places]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        msg = f'there is no {" or ".join(map(str, paths))}'
        raise InputError(msg)
    return path


def _perceived_scene(path: Path, part: VideoPart, cache: PerceptionCache | None) -> RecordingScene:
    def images_of_part(
        images: Iterable[StampedImage], length: int | None
    ) -> Iterable[StampedImage]:
        del length
        return images if part.span_s is None else _within(images, part.span_s)

    about = repr((classical_perceiver().info(), part.span_s))
    seer = Seer(rate_hz=part.rate_hz, cache=cache, perceiver_key=about)
    scene = seer.recall(path) or seer.see(path, images_of_part)
    if not scene.deltas:
        msg = f'{path}: nothing can be seen in it'
        raise InputError(msg)
    return scene


def _within(images: Iterable[StampedImage], span_s: tuple[float, float]) -> Iterator[StampedImage]:
    """The images from one time to another, counted from the first one."""
    start_ns = None
    for image in images:
        start_ns = image.stamp_ns if start_ns is None else start_ns
        time_s = (image.stamp_ns - start_ns) / NS_PER_S
        if time_s > span_s[1]:
            break
        if time_s >= span_s[0]:
            yield image


def read_maps(
    questions: Sequence[BenchmarkQuestion], folder: Path
) -> tuple[dict[str, RecordingScene], dict[str, str]]:
    """Scenes of questions as maps, `<scene>.json` in a folder.

    Returns:
        The scenes, and why there is none, by the id of the question.

    Raises:
        InputError: The folder is not there.
    """
    if not folder.is_dir():
        msg = f'{folder} is no folder: expected the one with a MAP.json for each scene'
        raise InputError(msg)
    maps: dict[str, SceneMap] = {}
    problems: dict[str, str] = {}
    for scene in dict.fromkeys(question.scene for question in questions):
        try:
            maps[scene] = read_scene_map(folder / f'{scene.removesuffix(".mp4")}.json')
        except InputError as error:
            problems[scene] = str(error)
    return (
        {q.id: RecordingScene((), scene_map=maps[q.scene]) for q in questions if q.scene in maps},
        {q.id: problems[q.scene] for q in questions if q.scene in problems},
    )


@dataclass(frozen=True)
class Prediction:
    """What was said to a question."""

    text: str
    mark: float | None = None  # of a judge; None: not marked


def read_predictions(path: Path, ids: Collection[str]) -> dict[str, Prediction]:
    """Predictions by the id of their question.

    Args:
        path: Lines with `id` (text or integer), `prediction` (text) and, if judged, `mark`.
        ids: Of the questions.

    Raises:
        InputError: A line is no prediction, its id is none of the questions' or comes twice, or
            there is no line.
    """
    predictions: dict[str, Prediction] = {}
    foreign = []
    for place, value in read_lines(path, {'id': (str, int), 'prediction': str}):
        name = str(value['id'])
        if name in predictions:
            msg = f'{place}: id {name!r} comes twice'
            raise InputError(msg)
        predictions[name] = Prediction(value['prediction'], _mark(value.get('mark'), place))
        foreign += [name] if name not in ids else []
    if foreign:
        more = f' and {len(foreign) - _NAMED} more' if len(foreign) > _NAMED else ''
        msg = f'{path}: no row has the id {", ".join(map(repr, foreign[:_NAMED]))}{more}'
        raise InputError(msg)
    if not predictions:
        msg = f'{path} has no predictions'
        raise InputError(msg)
    return predictions


def _mark(value: Any, place: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        msg = f'{place}: mark is {value!r}, expected a number from 1 to 5'
        raise InputError(msg)
    return float(value)


def write_export(
    benchmark: str, path: Path, questions: Sequence[BenchmarkQuestion], texts: Texts
) -> None:
    """Write predictions as the suite that scores a benchmark reads them.

    Args:
        benchmark: Its name.
        path: The file, with the suffix of that form; or `.jsonl`, as `read_predictions` reads.
        questions: The questions.
        texts: What was said, by the id of the question; others are empty.

    Raises:
        InputError: The suffix is another one, or the file cannot be written.
    """
    check_export(benchmark, path)
    is_of_lines = path.suffix == _LINES
    text = _lines(questions, texts) if is_of_lines else _table(benchmark, questions, texts)
    write_whole(path, text, makes_folder=True)


def check_export(benchmark: str, path: Path) -> None:
    """Refuse a file of another form before any work is done.

    Raises:
        InputError: So it is.
    """
    suffixes = ['.tsv'] if benchmark in _KIND_COLUMNS else []
    if path.suffix not in {*suffixes, _LINES}:
        names = ' or '.join([*suffixes, _LINES])
        msg = f'{path}: predictions of {benchmark} are exported to a file {names}'
        raise InputError(msg)


def _lines(questions: Sequence[BenchmarkQuestion], texts: Texts) -> str:
    values = ({'id': q.id, 'prediction': texts[q.id]} for q in questions if q.id in texts)
    return ''.join(json.dumps(value, ensure_ascii=False) + '\n' for value in values)


def _row(benchmark: str, number: int, question: BenchmarkQuestion, texts: Texts) -> dict[str, Any]:
    """Columns that VLMEvalKit reads in `evaluate` of a benchmark, and those for people."""
    options = question.record.get('options') if question.options else None
    kind = dict.fromkeys(_KIND_COLUMNS[benchmark], question.question_type)
    return {
        'index': question.id if benchmark == 'vsi-bench' else number,
        **kind,
        'question': question.plain_question(),
        'candidates': repr(list(as_list(options) if options is not None else question.options)),
        'answer': question.record['answer'] if benchmark == 'mvbench' else question.truth,
        'prediction': texts.get(question.id, ''),
    }


def _table(benchmark: str, questions: Sequence[BenchmarkQuestion], texts: Texts) -> str:
    rows = [_row(benchmark, number, q, texts) for number, q in enumerate(questions)]
    text = StringIO()
    writer = csv.DictWriter(
        text, list(rows[0]), delimiter='\t', quoting=csv.QUOTE_ALL, lineterminator='\n'
    )
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


# Benchmarks that VLMEvalKit scores, and its columns with the type of a question.
_KIND_COLUMNS = {
    'vsi-bench': ('question_type',),
    'mvbench': ('task_type',),
    'erqa': ('category', 'question_type'),
}
