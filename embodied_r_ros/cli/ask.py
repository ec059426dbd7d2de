# SPDX-License-Identifier: Apache-2.0
"""`embodied-r ask SOURCE QUESTION`: one answer about a recording, or about each of many."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
import json
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.apps.sheet import write_place_picture
from embodied_r_ros.bags.sources import find_bags
from embodied_r_ros.cli.arguments import (
    add_settings,
    given_settings,
    image_progress,
    rate_of,
    say,
    some_path,
    some_seconds,
    some_text,
)
from embodied_r_ros.cli.map import recipe_of
from embodied_r_ros.cli.perceiver import (
    add_perceiver_arguments,
    choose_perceiver,
    given_chat,
    PERCEIVER_GROUPS,
    perceiver_key,
    perceiver_of,
    refuse_options_of_images,
    SOURCE_GROUPS,
)
from embodied_r_ros.common.errors import EmbodiedRError, InputError, ModelError
from embodied_r_ros.common.files import make_empty_folder
from embodied_r_ros.core.chat.settings import ChatConfig
from embodied_r_ros.core.perception.visit_joint import NotJoinedError
from embodied_r_ros.core.reasoning.image_targets import asked_kind
from embodied_r_ros.core.reasoning.question import (
    Phase,
    Question,
    question_problem,
    ReasonerConfig,
)
from embodied_r_ros.core.scene.changes import changes_between
from embodied_r_ros.data.episodes.offline import (
    answer_to_json,
    check_source,
    is_scene_map,
    newest_image,
    RecordingScene,
    SceneAsker,
    Seer,
)
from embodied_r_ros.data.episodes.perception_cache import PerceptionCache
from embodied_r_ros.data.episodes.question_list import ask_list, ListedQuestion, read_question_list
from embodied_r_ros.data.episodes.recall import read_query, recall
from embodied_r_ros.data.episodes.recall_report import (
    answer_line,
    ask_each,
    recall_lines,
    recall_to_json,
    write_keyframes,
)
from embodied_r_ros.data.episodes.visits import join, see_visit
from embodied_r_ros.serving.profiles import load_profile, reasoner_config, TOOLS, what_leaves
from embodied_r_ros.serving.served import served_model, served_reasoner
from tqdm import tqdm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from embodied_r_ros.core.scene.changes import VisitChanges
    from embodied_r_ros.data.episodes.recall import RecallQuery
    from embodied_r_ros.data.episodes.recall_report import RecordingAnswer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    add = parser.add_argument
    add(
        'source',
        type=some_path,
        metavar='SOURCE',
        help='video, images, bag, or MAP.json; with --episodes, a folder of recordings',
    )
    # Not required by the parser, which with `nargs` would not take it after an option.
    add('question', metavar='QUESTION', help='what to ask').required = False
    add(
        '--questions',
        type=some_path,
        metavar='FILE.jsonl',
        help='ask these in place of QUESTION: lines with `id`, `question` and `options`; prints a '
        'line of JSON for each',
    )
    add('-o', '--option', action='append', default=[], help='an option; repeat, at least twice')
    add(
        '--model',
        type=some_text,
        metavar='DIR_OR_URL',
        help='in place of --profile: folder with a model, or URL of a model server; URL#MODEL '
        'names one of several',
    )
    add(
        '--episodes',
        action='store_true',
        help='find what the question names in all recordings of the folder; with --model, ask it '
        'about each of them too',
    )
    add(
        '--out',
        type=some_path,
        metavar='DIR',
        help='with --episodes, folder for the keyframes that show it',
    )
    add('--topic', help='image topic of a bag, or stream of a folder, of several')
    add(
        '--show-image',
        action='store_true',
        help='show the model the last image of SOURCE, in place of the scene in words',
    )
    add(
        '--picture',
        type=some_path,
        metavar='PNG',
        help='of a question with --show-image for a point or a box: the image with the answer',
    )
    add(
        '--before',
        type=some_path,
        metavar='RECORDING',
        help='of an earlier visit: what changed since is known too',
    )
    add('--deadline', type=some_seconds, metavar='S', help='time per answer [s], default 30')
    add('--json', action='store_true', help='print one JSON object')
    add_perceiver_arguments(
        parser,
        'recorded for a bag with deltas, else auto',
        f'model profile that answers, and perceives with vlm or fused (default: {TOOLS})',
    )
    add_settings(parser, {**SOURCE_GROUPS, **PERCEIVER_GROUPS, 'reasoner': ReasonerConfig})


def main(args: argparse.Namespace) -> int:
    """Answer one question, or many; the reasoning goes to stderr as it is generated."""
    listed = _questions(args)
    _check_image(args)
    _check_model(args)
    if args.episodes:
        return _ask_recordings(args, listed[0].question)
    if args.out:
        msg = '--out is for what is looked for in many '
        msg += 'recordings: give --episodes too, or leave it out'
        raise InputError(msg)
    config, sight = _config(args), _sight(args)
    scene = None if args.show_image else sight.recall(args.source)
    if not scene and (args.show_image or not sight.reads_deltas(args.source)):
        check_source(args.source, args.topic, rate_of(args))
    with _reasoner(args) as chat:
        if args.show_image:
            scene = RecordingScene(())
            shown = newest_image(args.source, args.topic, rate_of(args), image_progress)
            listed = [one.with_image(shown) for one in listed]
        scene = scene or sight.see(args.source, image_progress)
        asker = SceneAsker(_since(args, scene), chat, config)
        if args.questions:
            for values in ask_list(asker, listed, _hear):
                print(json.dumps(values, ensure_ascii=False), flush=True)
            return 0
        answer = asker.ask(listed[0].question, _hear)
    print(file=sys.stderr)
    if args.picture and (known := listed[0].question.shown):
        write_place_picture(args.picture, known.image, answer.text)
    values = answer_to_json(answer)
    told = values['text'] or values['answer']
    print(json.dumps(values, ensure_ascii=False) if args.json else told)
    return 0


def _questions(args: argparse.Namespace) -> list[ListedQuestion]:
    """What to ask: the questions of a file, or the one of the command line.

    Raises:
        InputError: There is none, or both, or one is not allowed.
    """
    if args.questions and (args.question is not None or args.option or args.episodes):
        msg = '--questions goes without QUESTION, options and --episodes: leave them out'
        raise InputError(msg)
    if args.questions:
        return read_question_list(args.questions)
    if args.question is None:
        msg = 'there is no question: give QUESTION, or --questions FILE.jsonl'
        raise InputError(msg)
    if problem := question_problem(args.question, args.option):
        raise InputError(problem)
    return [ListedQuestion('', Question(args.question, tuple(args.option)))]


def _check_model(args: argparse.Namespace) -> None:
    """Refuse two models, and say what leaves this machine."""
    if args.model and args.profile:
        msg = '--model and --profile exclude each other: give one of them'
        raise InputError(msg)
    if line := what_leaves(_sent(args)):
        say(f'embodied-r: note: {line}')


def _sent(args: argparse.Namespace) -> Iterator[tuple[str, ChatConfig | None]]:
    """What is sent, and to which servers."""
    clients = {} if args.model else load_profile(args.profile or TOOLS).clients
    is_url = args.model and '://' in args.model
    reasoner = ChatConfig(args.model) if is_url else clients.get('reasoner')
    yield 'text', reasoner
    if args.show_image:
        yield 'keyframes', reasoner
    chat = given_chat(args)
    if chat or args.perceiver in {'vlm', 'fused'}:
        yield 'keyframes', chat or clients.get('perceiver')


def _config(args: argparse.Namespace) -> ReasonerConfig:
    """How the model is asked: as its profile says, but for what is given."""
    return reasoner_config(
        args.model or '',
        args.profile or ('' if args.model else TOOLS),
        **{'deadline_s': args.deadline, **given_settings(args, 'reasoner')},
    )


def _reasoner(args: argparse.Namespace) -> AbstractContextManager[ChatConfig | None]:
    """The model that answers, while it is needed; None: the tools of the scene answer."""
    if args.show_image and not args.profile:
        msg = '--show-image needs a model that reads images: give --model or --profile'
        if not args.model:
            raise InputError(msg)
    if args.model:
        return served_model(args.model, say, stays=True)
    if not args.profile or load_profile(args.profile).has_no_model:
        return nullcontext()
    return served_reasoner(args.profile, say, stays=True)


def _sight(args: argparse.Namespace) -> Seer:
    """Who sees SOURCE, where that is not known from a map or by recorded deltas.

    Raises:
        InputError: An argument does not go with it.
        BagError: The bag is damaged.
    """
    is_recorded = {None: None, 'recorded': True}.get(args.perceiver, False)
    sight = Seer(is_recorded=is_recorded, topic=args.topic, rate_hz=rate_of(args))
    seer = argparse.Namespace(**vars(args))
    if args.perceiver not in {'vlm', 'fused'}:
        seer.profile = None  # it says who answers
    _check_options_of_images(args)
    if args.show_image or is_scene_map(args.source):
        return sight
    if sight.reads_deltas(args.source):
        refuse_options_of_images(seer, str(args.source))
        return sight
    seer.perceiver = args.perceiver or 'auto'
    seer.why = choose_perceiver(seer)  # said where images are perceived
    return replace(
        sight,
        make_perceiver=partial(perceiver_of, seer),
        cache=PerceptionCache(),
        perceiver_key=perceiver_key(seer),
    )


def _check_options_of_images(args: argparse.Namespace) -> None:
    """Refuse options that say which images are perceived, where a map is read.

    Raises:
        InputError: One is given.
    """
    values = {'--topic': args.topic, 'source.rate_hz': rate_of(args)}
    for name, value in values.items():
        if value is not None and is_scene_map(args.source):
            msg = f'{name} is for images, and {args.source} is a map: leave it out'
            raise InputError(msg)


def _check_image(args: argparse.Namespace) -> None:
    """Refuse what does not go with an image that is shown."""
    if args.show_image and (args.episodes or is_scene_map(args.source)):
        msg = '--show-image shows one image: leave --episodes and MAP.json out'
        raise InputError(msg)
    if args.picture and not (args.show_image and asked_kind(args.question, args.option)):
        msg = '--picture needs --show-image and a question for a point or a box: "Point at …"'
        raise InputError(msg)


def _since(args: argparse.Namespace, scene: RecordingScene) -> RecordingScene:
    """A scene with what changed since an earlier visit, where one is given.

    Raises:
        InputError: It cannot be looked at.
    """
    if not args.before:
        return scene
    recipe = recipe_of(args)
    check_source(args.before, recipe.topic, recipe.rate_hz)
    visits = (see_visit(each, recipe, image_progress) for each in (args.before, args.source))
    found: VisitChanges | str
    try:
        joined = join(*visits)
        found = changes_between(joined.before, joined.after)
    except NotJoinedError as error:
        found = str(error)
    return replace(scene, earlier=found)


def _ask_recordings(args: argparse.Namespace, question: Question) -> int:
    """Answer from all recordings of a folder; 1: none has an answer.

    Raises:
        InputError: An argument does not go with it, or no model answers; what was found without
            one is printed.
        ModelError: The server has gone; what it answered until then is printed.
    """
    of_images = args.topic or args.perceiver or given_settings(args, 'source')
    has_model = bool(args.model or args.profile)
    is_for_model = args.option and not has_model
    if of_images or is_for_model:
        msg = '--episodes reads what was recorded: --topic, source.* and --perceiver do not go '
        msg += 'with it, and options are for a model (--model or --profile)'
        raise InputError(msg)
    bags = find_bags([args.source])
    query = _query_of(args, question)
    if args.out:
        make_empty_folder(args.out)
    values, lines, is_found = _look(args, query, bags) if query else ({}, [], False)
    answers: list[RecordingAnswer] = []
    problem: EmbodiedRError | None = None
    if has_model:
        try:
            answers.extend(_answers(args, question, bags))
        except EmbodiedRError as error:  # what is known until then is not lost
            problem = error
        is_found = is_found or any(answer.text for answer in answers)
        values['answers'] = [vars(answer) for answer in answers]
        lines += [answer_line(answer) for answer in answers]
    if answers or query or not problem:
        print(
            json.dumps(values, ensure_ascii=False) if args.json else '\n'.join(lines), flush=True
        )
    if problem and any(answer.model for answer in answers):
        msg = f'{len(bags) - len(answers)} of {len(bags)} recordings were not asked: {problem}'
        raise ModelError(msg)
    if problem:
        raise problem
    return 0 if is_found else 1


def _answers(
    args: argparse.Namespace, question: Question, bags: list[Path]
) -> Iterator[RecordingAnswer]:
    """What the model says of each recording."""
    with _reasoner(args) as chat:
        bar = tqdm(bags, unit=' recordings', disable=None)
        yield from ask_each(bar, question, chat, _config(args))


def _query_of(args: argparse.Namespace, question: Question) -> RecallQuery | None:
    """What is looked for without a model; None: that is for the model alone."""
    try:
        return read_query(question.text)
    except InputError:
        if not (args.model or args.profile) or args.out:
            raise
        return None


def _look(
    args: argparse.Namespace, query: RecallQuery, bags: list[Path]
) -> tuple[dict[str, Any], list[str], bool]:
    """What recordings show, as JSON values and lines, and whether any does."""
    result = recall(query, tqdm(bags, unit=' recordings', disable=None))
    values, lines = recall_to_json(result), recall_lines(result)
    if args.out:
        values['pictures'] = write_keyframes(args.out, result, bags)
        lines.append(f'{len(values["pictures"])} keyframes are in {args.out}')
    for one in result.problems:
        say(f'embodied-r: note: {one.name} is left out: {one.problem}')
    return values, lines, bool(result.recordings)


def _hear(phase: Phase, text: str) -> None:
    if phase in {Phase.THINK, Phase.ANSWER}:
        print(text, end='', file=sys.stderr, flush=True)
