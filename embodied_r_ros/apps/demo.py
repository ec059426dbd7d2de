# SPDX-License-Identifier: Apache-2.0
"""The main job on one recording: an episode of it, a few questions, and a page that shows both.

Here it is done in this process, without ROS; `nodes.demo` has nodes do it, and leaves the same.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
import json
from pathlib import Path
import re
import shutil
import tempfile
from typing import Any, NamedTuple, TYPE_CHECKING

from embodied_r_ros.apps.review.library import Library
from embodied_r_ros.apps.review.pages import ReviewService
from embodied_r_ros.apps.review.recording import read_recording, with_answer
from embodied_r_ros.apps.review.saved import save_page
from embodied_r_ros.apps.sheet import AnsweredQuestion, write_contact_sheet
from embodied_r_ros.bags.vision_messages import SIMULATED_DETECTOR
from embodied_r_ros.bags.writer import BagLock, is_locked
from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.common.files import make_empty_folder, write_whole
from embodied_r_ros.core.reasoning.question import Question, Refusal
from embodied_r_ros.core.types.answers import UNKNOWN
from embodied_r_ros.core.types.deltas import ItemStatus
from embodied_r_ros.core.types.episodes import Label, LabelKind, WrittenQuestion
from embodied_r_ros.core.types.vocabulary import is_unnamed
from embodied_r_ros.data.episodes.collect import collect_episode
from embodied_r_ros.data.episodes.episode import read_keyframes, read_layout
from embodied_r_ros.data.episodes.inspect import bag_digest
from embodied_r_ros.data.episodes.label_check import append_label
from embodied_r_ros.data.episodes.labels import read_labels
from embodied_r_ros.data.episodes.offline import check_source
from embodied_r_ros.data.questions.indoor import Moment, plain_questions
from embodied_r_ros.data.questions.wordings import FACINGS, HEIGHTS, PLACES, WORDINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from embodied_r_ros.apps.review.pages import Asker
    from embodied_r_ros.apps.review.recording import ReviewRecording
    from embodied_r_ros.core.types.answers import Answer
    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.layout import Layout
    from embodied_r_ros.data.episodes.collect import CollectConfig
    from embodied_r_ros.data.episodes.offline import Progress

_QUESTIONS = 3
_MOST_THINGS = 3
# Questions that suit any recording.
_ANYWHERE = {
    'net_turn': tuple(FACINGS.values()),
    'net_displacement': tuple(PLACES.values()),
    'height_change': HEIGHTS,
}


@dataclass(frozen=True)
class DemoQuestion:
    """A question to ask, and its true answer."""

    question: Question
    truth: str = ''  # text of the true answer; empty: not known


def questions_about(deltas: Sequence[SemanticDelta], layout: Layout | None) -> list[DemoQuestion]:
    """Questions about the deltas, the same ones for the same recording.

    Args:
        deltas: The deltas, oldest first.
        layout: The ground truth, by which things with names are asked about; None: unknown, and
            so is the truth of the questions.
    """
    plain = plain_questions(_moment(deltas, layout)) if layout else []
    if plain:
        return [DemoQuestion(Question(text), truth) for text, truth in plain]
    questions = [Question('What do you see?'), *_questions_about_things(deltas)]
    questions += [Question(WORDINGS[kind][0], options) for kind, options in _ANYWHERE.items()]
    return [DemoQuestion(question) for question in questions[:_QUESTIONS]]


def _questions_about_things(deltas: Sequence[SemanticDelta]) -> Iterator[Question]:
    """Questions about the named things that were in view most often."""
    labels = Counter(
        item.label
        for delta in deltas
        for item in delta.items
        if item.status is not ItemStatus.LEFT and not is_unnamed(item.label)
    )
    often = [label for label, _ in labels.most_common(_MOST_THINGS)]
    if often:
        wording = WORDINGS['item_direction'][0]
        yield Question(wording.format(item=often[0]), ('ahead', 'left', 'right', 'behind'))
    if len(often) > 1:
        yield Question(WORDINGS['first_sight'][0], tuple(often))


def _moment(deltas: Sequence[SemanticDelta], layout: Layout) -> Moment:
    images = {image.stamp_ns: image for image in layout.images}
    observations = tuple(delta for delta in deltas if delta.stamp_ns in images)
    poses = tuple(images[delta.stamp_ns].pose(layout.frame_id) for delta in observations)
    return Moment(observations, poses, layout)


class Audience(NamedTuple):
    """Where progress and text go."""

    say: Callable[[str], None]  # a line at a time
    hear: Callable[[str], None]  # text of the answers as it is generated


@dataclass(frozen=True)
class OfflineDemo:
    """What is shown without ROS, and by whom."""

    source: Path  # video, folder of images, or bag
    config: CollectConfig
    ask: Asker
    now_ns: Callable[[], int]  # since the epoch
    progress: Progress  # over the images
    questions: tuple[Question, ...] = ()  # empty: questions of the demonstration's own
    name: str = ''  # of the source, for people; empty: that of the file

    def run(self, out: Path, audience: Audience) -> dict[str, Any]:
        """Perceive the source, ask, and leave episode, page, contact sheet and report.

        Returns:
            The report, as it is in `report.json`.

        Raises:
            InputError: The source cannot be read, or the output folder is not empty or not
                writable.
        """
        check_source(self.source, self.config.topic or None, None)
        with workplace(out) as scratch:
            bag = scratch / 'bag'
            digest = bag_digest(self.source)
            audience.say(f'looking at {self.name or self.source}')
            collect_episode(
                self.source,
                bag,
                self.config,
                digest,
                self.progress,
                self.name or self.source.name,
            )
            recording = read_recording(bag)
            assert recording.episode
            layout = read_layout(bag)
            questions = [DemoQuestion(question) for question in self.questions]
            questions = questions or questions_about(recording.deltas, layout)
            answers = ask_all(questions, partial(self._ask, recording), audience)
            return leave_results(out, bag, (self.name or self.source.name, answers), {})

    def _ask(self, recording: ReviewRecording, question: DemoQuestion) -> tuple[Answer, str]:
        """The answer, which is written beside the episode, and why it was refused."""
        assert recording.episode
        try:
            answer = self.ask(recording.episode, question.question, recording.end_ns)
        except Refusal as error:
            return error.answer, str(error)
        text, options = question.question.text, question.question.options
        written = with_answer(WrittenQuestion(text, recording.end_ns, options), answer)
        name = f'demo-{1 + len(read_labels(recording.bag).labels)}'
        label = Label(
            name,
            name,
            LabelKind.QUESTION,
            'embodied-r demo',
            self.now_ns(),
            before=answer.text or UNKNOWN,
            after=question.truth or None,
            question=written,
        )
        append_label(recording.bag, label, recording.scope)
        return answer, ''


def ask_all(
    questions: Sequence[DemoQuestion],
    ask: Callable[[DemoQuestion], tuple[Answer, str]],
    audience: Audience,
) -> list[AnsweredQuestion]:
    """Ask questions one after the other, and tell what is answered.

    Args:
        questions: The questions.
        ask: Gives the answer, and why it was refused (empty: it was not).
        audience: Hears it.
    """
    answers = []
    for each in questions:
        options = f'  [{", ".join(each.question.options)}]' if each.question.options else ''
        audience.say(f'question: {each.question.text}{options}')
        answer, refusal = ask(each)
        truth = f'   true: {each.truth}' if each.truth else ''
        audience.say(f'answer: {answer.text or UNKNOWN} ({answer.check.name.lower()}){truth}')
        if answer.sentence:
            audience.say(f'        {answer.sentence}')
        if refusal:
            audience.say(f'refused: {refusal}')
        answers.append(AnsweredQuestion(answer, each.truth, refusal))
    return answers


def leave_results(
    out: Path, bag: Path, shown: tuple[str, list[AnsweredQuestion]], more: dict[str, Any]
) -> dict[str, Any]:
    """Put bag, page, contact sheet and report into the output folder, all or nothing.

    Args:
        out: The folder.
        bag: The episode, on the same disk; it moves.
        shown: What it is of, and what was answered about it.
        more: What else the report has.

    Returns:
        The report.
    """
    name, answers = shown
    page, sheet, report_file = (
        bag.with_name(each) for each in ('page.html', 'contact_sheet.png', 'report.json')
    )
    keyframes = list(read_keyframes(bag))
    with closing(Library(bag)) as library:
        deltas = library.open(bag.name).recording.deltas
        if deltas and deltas[0].model.name == SIMULATED_DETECTOR:
            name = f'{name}, names by a {SIMULATED_DETECTOR}'
        save_page(page, ReviewService(library, lambda: 0), bag.name, name)
    write_contact_sheet(sheet, f'embodied-r demo: {name}', keyframes, deltas, answers)
    report = {
        'source': name,
        'bag': 'bag',
        'page': page.name,
        'keyframes': len(keyframes),
        'deltas': len(deltas),
        **more,
        'questions': [_entry(question) for question in answers],
    }
    write_whole(report_file, json.dumps(report, indent=2, ensure_ascii=False) + '\n')
    bag.replace(out / 'bag')
    for file in (page, sheet, report_file):
        file.replace(out / file.name)
    return report


_UNFINISHED = '.unfinished-'  # begins the names of folders of what is not done


@contextmanager
def workplace(out: Path) -> Iterator[Path]:
    """A hidden folder in the output folder, on whose disk the results will be.

    It is removed in the end, and so is an output folder in which nothing was left.
    """
    is_new = not out.exists()
    if not is_locked(out):
        for left in out.glob(f'{_UNFINISHED}*'):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
    make_empty_folder(out)
    try:
        lock = BagLock(out)
        scratch = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=out.resolve()))
    except OSError as error:
        msg = f'cannot write to {out}: {error.strerror}'
        raise InputError(msg) from None
    try:
        with lock:
            yield scratch
    except EmbodiedRError as error:
        # The hidden folder goes, and with it what such a line says to be kept there.
        told = re.search(rf'cannot write {re.escape(str(scratch))}[^:]*: ([^;]+)', str(error))
        if told is None:
            raise
        msg = f'cannot write to {out}: {told[1]}'
        raise InputError(msg) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if is_new and not any(out.iterdir()):
            out.rmdir()


def _entry(entry: AnsweredQuestion) -> dict[str, Any]:
    answer = entry.answer
    return {
        'question': answer.question,
        'options': list(answer.options),
        'answer': answer.text or UNKNOWN,
        'truth': entry.truth or None,
        'right': entry.is_right,
        'refusal': entry.refusal or None,
        'sentence': answer.sentence,
        'check': answer.check.name.lower(),
        'check_reason': answer.check_reason,
        'think': answer.think,
        'freshness': answer.freshness.name,
        'model': answer.model.name,
        'digest': answer.model.digest,
        'time_to_first_token_s': answer.time_to_first_token_ns / 1e9,
        'latency_s': answer.latency_ns / 1e9,
    }
