# SPDX-License-Identifier: Apache-2.0
"""The main job in one go: play a recording to the real nodes, and ask them questions."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
import json
from pathlib import Path
from random import Random
import re
import shutil
import tempfile
from typing import Any, NamedTuple, TYPE_CHECKING

from embodied_r_ros.apps.sheet import AnsweredQuestion, write_contact_sheet
from embodied_r_ros.bags.playback import Playable, playable
from embodied_r_ros.bags.vision_messages import has_boxes, SIMULATED_DETECTOR
from embodied_r_ros.bags.writer import BagLock, is_locked
from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.common.files import make_empty_folder, write_whole
from embodied_r_ros.core.reasoning.question import Question
from embodied_r_ros.core.types.deltas import ItemStatus
from embodied_r_ros.data.episodes.episode import read_layout
from embodied_r_ros.data.questions.indoor import Draft, KINDS, Moment, plain_questions
from embodied_r_ros.data.questions.wordings import FACINGS, HEIGHTS, PLACES, WORDINGS
from embodied_r_ros.nodes.demo.client import demo_client
from embodied_r_ros.nodes.run import NodeProcesses, own_environment
from embodied_r_ros.serving.profiles import load_profile, READER, TOOLS, write_profile
from embodied_r_ros.serving.served import usual_reasoner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from embodied_r_ros.bags.sources import DepthSource
    from embodied_r_ros.core.chat.settings import ChatConfig
    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.layout import Layout
    from embodied_r_ros.nodes.demo.client import DemoClient

# In the order in which they are wanted; the others stand in where one has no solution.
_WANTED = ('item_direction', 'net_turn', 'first_sight', 'height_change', 'how_many', 'nearest')
_QUESTIONS = 3
_ATTEMPTS = 20
_MOST_THINGS = 3
_UNFINISHED = '.unfinished-'  # begins the names of folders of what is not done
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
        layout: The ground truth; None: unknown, and so is the truth of the questions.
    """
    if layout is None:
        questions = [*_questions_about_things(deltas)]
        questions += [Question(WORDINGS[kind][0], options) for kind, options in _ANYWHERE.items()]
        return [DemoQuestion(question) for question in questions[:_QUESTIONS]]
    moment = _moment(deltas, layout)
    plain = [DemoQuestion(Question(text), truth) for text, truth in plain_questions(moment)]
    if len(plain) == _QUESTIONS:
        return plain
    rng = Random(0)
    demo_questions: list[DemoQuestion] = []
    for kind in _WANTED:
        drafts = (KINDS[kind](moment, rng, False) for _ in range(_ATTEMPTS))
        solvable = [draft for draft in drafts if isinstance(draft, Draft) and draft.options]
        # What is out of view has to be remembered: that is the more interesting question.
        solvable.sort(key=lambda draft: draft.truth.get('in_view', False))
        if solvable and len(demo_questions) < _QUESTIONS:
            options = list(solvable[0].options)
            rng.shuffle(options)
            question = Question(solvable[0].question, tuple(options))
            demo_questions.append(DemoQuestion(question, solvable[0].solution))
    return demo_questions


def _questions_about_things(deltas: Sequence[SemanticDelta]) -> Iterator[Question]:
    """Questions about the things that were in view most often."""
    labels = Counter(
        item.label
        for delta in deltas
        for item in delta.items
        if item.status is not ItemStatus.LEFT
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


_PIPELINE = (
    'keyframe_extractor',
    'semantic_perceiver',
    'spatial_reasoner',
    'episode_recorder',
    'bag_player',
)
_START_S = 60.0
_DRAIN_S = 60.0
_ANSWER_S = 60.0
_CLOCK_HZ = 50.0


CLASSICAL = {'perceiver': 'classical'}


@dataclass(frozen=True)
class DemoRequest:
    """What to show."""

    source: Path  # video, folder of images, or bag
    out: Path  # folder that does not exist yet, or is empty
    questions: tuple[Question, ...] = ()  # empty: questions of the demonstration's own
    topic: str | None = None  # image topic of a bag; None: the only one there is
    depth: DepthSource | None = None  # None: as it is found
    perceiver: Mapping[str, Any] = field(default_factory=lambda: dict(CLASSICAL))


class Audience(NamedTuple):
    """Where progress and text go."""

    say: Callable[[str], None]  # a line at a time
    hear: Callable[[str], None]  # text of the answers as it is generated


def run_demo(request: DemoRequest, audience: Audience) -> dict[str, Any]:
    """Play, perceive, ask, and leave bag, contact sheet and report in the output folder.

    Args:
        request: What to show.
        audience: Gets the progress.

    Returns:
        The report, as it is in `report.json`.

    Raises:
        InputError: The source cannot be read, or the output folder is not empty or not writable.
        EmbodiedRError: A node or the model server failed.
    """
    with _workplace(request.out) as scratch:
        play = playable(request.source, scratch, request.topic, request.depth)
        with (
            usual_reasoner(audience.say, READER) as server,
            running_pipeline(play, server, scratch, audience.say, request.perceiver) as pipeline,
        ):
            nodes, client = pipeline
            bag = Path(client.start_episode(f'demonstration: {request.source.name}'))
            audience.say(f'playing {request.source} ({play.duration_s:.0f} s)')
            play_to_end(nodes, play, client)
            questions = [DemoQuestion(question) for question in request.questions]
            questions = questions or questions_about(client.deltas, read_layout(play.bag))
            answers = [_ask(question, client, audience) for question in questions]
            client.stop_episode()
            pids = nodes.pids()
        return _leave(request, client, answers, bag, pids)


@contextmanager
def running_pipeline(
    play: Playable,
    server: ChatConfig | None,
    scratch: Path,
    say: Callable[[str], None],
    perceiver: Mapping[str, Any] = CLASSICAL,
) -> Iterator[tuple[NodeProcesses, DemoClient]]:
    """The nodes, each in a process, and a client, in a domain of their own; all are active.

    The recording is not played yet (`play_to_end`).

    Args:
        play: The recording.
        server: The server of the reasoner's model; None: the tools of the scene answer.
        scratch: Folder for parameters, logs and episodes.
        say: Gets the progress, a line at a time.
        perceiver: Parameters of semantic_perceiver.

    Raises:
        EmbodiedRError: A node failed, or is not active in time.
    """
    with NodeProcesses(scratch, own_environment()) as nodes, demo_client(say) as client:
        say('starting the nodes')
        _start_pipeline(nodes, play, server, scratch, perceiver)
        client.await_active(_PIPELINE, _START_S, nodes.check)
        client.await_clock(_START_S, nodes.check)
        yield nodes, client


def play_to_end(nodes: NodeProcesses, play: Playable, client: DemoClient) -> None:
    """Play the recording to its end, and wait until everything seen is perceived.

    Raises:
        EmbodiedRError: It is not played or perceived in time, or a node failed.
    """
    client.await_listeners({play.topics()[0]: 1, 'keyframe': 3, 'semantic_delta': 3}, _START_S)
    client.resume_playing()
    limit_s = play.duration_s + _DRAIN_S
    if not client.spin_until(lambda: nodes.has_ended('bag_player'), limit_s, nodes.check):
        msg = f'the recording was not played within {limit_s:.0f} s'
        raise EmbodiedRError(msg)
    nodes.check()

    def is_perceived() -> bool:
        return bool(client.deltas) and client.deltas[-1].to_id == client.keyframes[-1].id

    def has_more_than(count: int) -> bool:
        return len(client.deltas) > count

    while not is_perceived():
        more = partial(has_more_than, len(client.deltas))
        if not client.spin_until(more, _DRAIN_S, nodes.check):
            msg = f'{len(client.keyframes)} keyframes came, but {len(client.deltas)} deltas'
            raise EmbodiedRError(msg)


@contextmanager
def _workplace(out: Path) -> Iterator[Path]:
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


def _ask(demo_question: DemoQuestion, client: DemoClient, audience: Audience) -> AnsweredQuestion:
    options = (
        f'  [{", ".join(demo_question.question.options)}]'
        if demo_question.question.options
        else ''
    )
    audience.say(f'question: {demo_question.question.text}{options}')
    answer, refusal = client.ask(demo_question.question, audience.hear, _ANSWER_S)
    audience.hear('\n')
    truth = f'   true: {demo_question.truth}' if demo_question.truth else ''
    audience.say(f'answer: {answer.text or "unknown"} ({answer.check.name.lower()}){truth}')
    if answer.sentence:
        audience.say(f'        {answer.sentence}')
    if refusal:
        audience.say(f'refused: {refusal}')
    return AnsweredQuestion(answer, demo_question.truth, refusal)


def _start_pipeline(
    nodes: NodeProcesses,
    play: Playable,
    server: ChatConfig | None,
    scratch: Path,
    perceiver: Mapping[str, Any],
) -> None:
    common = {'use_sim_time': True}
    remaps = {'image': play.image}
    remaps |= {'camera_info': play.camera_info} if play.camera_info else {}
    remaps |= {'odom': play.odom} if play.odom else {}
    remaps |= {'depth': play.depth} if play.depth else {}
    camera = {
        **common,
        'image_transport': play.image_transport,
        'depth_transport': play.depth_transport,
        'queue': 10,
    }
    nodes.start('keyframe_extractor', camera, remaps)
    # Nothing is coalesced: what the machine is too slow for is perceived after the last image.
    worker = {'worker': {'capacity': 1000}}
    boxes = {'detections': {'recording': str(play.bag)}} if has_boxes(play.bag) else {}
    nodes.start('semantic_perceiver', {**common, **worker, **boxes, **perceiver})
    reasoner: dict[str, Any] = {'profile': TOOLS}
    if server:
        suited = load_profile(READER).reasoner
        reasoner = {'profile': write_profile(scratch / 'reasoner.yaml', server, suited)}
    nodes.start('spatial_reasoner', {**common, **reasoner})
    nodes.start('episode_recorder', {**common, 'bag_dir': str(scratch / 'episodes')}, remaps)
    # The player stands still, and so does time, until everybody listens.
    player = {
        'bag': str(play.bag),
        'topics': play.topics(),
        'exit_at_end': True,
        'playback': {'clock_hz': _CLOCK_HZ, 'start_paused': True},
    }
    nodes.start('bag_player', player)


def _leave(
    request: DemoRequest,
    client: DemoClient,
    answers: list[AnsweredQuestion],
    bag: Path,
    pids: dict[str, int],
) -> dict[str, Any]:
    """Put bag, contact sheet and report into the output folder, all or nothing."""
    names = client.deltas[0].model.name if client.deltas else ''
    title = f'embodied-r demo: {request.source.name}'
    title += f', names by a {names}' if names == SIMULATED_DETECTOR else ''
    sheet = bag.with_name('contact_sheet.png')
    write_contact_sheet(sheet, title, client.keyframes, client.deltas, answers)
    report = {
        'source': str(request.source),
        'bag': 'bag',
        'keyframes': len(client.keyframes),
        'deltas': len(client.deltas),
        'pids': pids,
        'questions': [_entry(question) for question in answers],
    }
    report_file = bag.with_name('report.json')
    write_whole(report_file, json.dumps(report, indent=2, ensure_ascii=False) + '\n')
    bag.replace(request.out / 'bag')
    for file in (sheet, report_file):
        file.replace(request.out / file.name)
    return report


def _entry(entry: AnsweredQuestion) -> dict[str, Any]:
    answer = entry.answer
    return {
        'question': answer.question,
        'options': list(answer.options),
        'answer': answer.text or 'unknown',
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
