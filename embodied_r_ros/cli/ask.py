# SPDX-License-Identifier: Apache-2.0
"""`embodied-r ask SOURCE QUESTION`: one answer about a recording, or about each of many."""

from __future__ import annotations

from dataclasses import replace
import json
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.sources import find_bags
from embodied_r_ros.cli.arguments import image_progress, say, some_count, some_path, some_text
from embodied_r_ros.common.errors import EmbodiedRError, InputError, ModelError
from embodied_r_ros.common.files import make_empty_folder, shared_path
from embodied_r_ros.episodes.offline import (
    answer_to_json,
    ask_about,
    check_source,
    has_recorded_deltas,
    is_scene_map,
    newest_image,
    RecordingScene,
    see,
    with_landmarks,
)
from embodied_r_ros.episodes.recall import named_query, Order, read_query, recall
from embodied_r_ros.episodes.recall_report import (
    answer_line,
    ask_each,
    recall_lines,
    recall_to_json,
    write_keyframes,
)
from embodied_r_ros.reasoning.image_targets import asked_kind
from embodied_r_ros.reasoning.question import Phase, Question, question_problem, ReasonerConfig
from embodied_r_ros.serving.profiles import served_budget
from embodied_r_ros.serving.servers import served_model
from embodied_r_ros.view.sheet import write_place_picture
from tqdm import tqdm

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

    from embodied_r_ros.episodes.recall import RecallQuery
    from embodied_r_ros.episodes.recall_report import RecordingAnswer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    add = parser.add_argument
    add(
        'source',
        type=some_path,
        metavar='SOURCE',
        help='video, images, bag, or MAP.json; with --episodes, a folder of recordings',
    )
    add('question', metavar='QUESTION', help='what to ask')
    add('-o', '--option', action='append', default=[], help='an option; repeat, at least twice')
    add(
        '--model',
        type=some_text,
        metavar='DIR_OR_URL',
        help='folder with a model, or URL of a model server; URL#MODEL names one of several',
    )
    add(
        '--episodes',
        action='store_true',
        help='look in all recordings of the folder for what the question names, without a model; '
        'with --model, ask it about each of them too',
    )
    add(
        '--out',
        type=some_path,
        metavar='DIR',
        help='with --episodes, folder for the keyframes that show it',
    )
    help_text = 'with --episodes, what to look for, by its own name; repeat for several'
    add('--thing', action='append', default=[], type=some_text, metavar='NAME', help=help_text)
    help_text = 'with --episodes, what it is to be near'
    add('--near', action='append', default=[], type=some_text, metavar='NAME', help=help_text)
    sight = parser.add_mutually_exclusive_group()
    for order in (Order.FIRST, Order.LAST):
        help_text = f'with --episodes, show the {order.value} sights of it'
        sight.add_argument(
            f'--{order.value}', dest='order', action='store_const', const=order, help=help_text
        )
    add('--topic', help='image topic of a bag, where it has several')
    add('--rate', type=float, metavar='HZ', help='images per second of a folder, default 10')
    add(
        '--map',
        action='store_true',
        help='let the prompt hold the landmark map of SOURCE too, for a model that knows maps',
    )
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
    add('--temperature', type=float, default=0.0, help='0, the default: greedy')
    add(
        '--max-tokens',
        type=some_count,
        default=ReasonerConfig.max_tokens,
        metavar='N',
        help='tokens that reasoning and answer may have (default: %(default)s)',
    )
    add('--json', action='store_true', help='print one JSON object')


def _config_of(args: argparse.Namespace, model: str) -> ReasonerConfig:
    """How a model is asked: a shipped one about scenes as long as those that it is served."""
    return ReasonerConfig(
        token_budget=served_budget(model),
        temperature=args.temperature,
        max_tokens=args.max_tokens,
    )


def main(args: argparse.Namespace) -> int:
    """Answer one question; the reasoning goes to stderr as it is generated."""
    problem = question_problem(args.question, args.option)
    if problem:
        raise InputError(problem)
    question = Question(args.question, tuple(args.option))
    _check_image(args)
    if args.episodes:
        return _ask_recordings(args, question)
    if args.out or args.thing or args.near or args.order:
        msg = '--out, --thing, --near, --first and --last are for what is looked for in many '
        msg += 'recordings: give --episodes too, or leave them out'
        raise InputError(msg)
    model = args.model or str(shared_path('models', 'nano'))
    config = _config_of(args, model)
    _check_options_of_images(args)
    check_source(args.source, args.topic, args.rate)
    with served_model(model, say) as chat:
        if args.show_image:
            scene = RecordingScene(())
            shown = newest_image(args.source, args.topic, args.rate, image_progress)
            question = replace(question, shown=shown)
        else:
            scene = see(args.source, args.topic, args.rate, image_progress)
        if args.map:
            scene = with_landmarks(scene)
        answer = ask_about(scene, question, chat, config, _hear)
    print(file=sys.stderr)
    if args.picture and question.shown:
        write_place_picture(args.picture, question.shown.image, answer.text)
    values = answer_to_json(answer)
    print(json.dumps(values, ensure_ascii=False) if args.json else values['answer'])
    return 0


def _check_options_of_images(args: argparse.Namespace) -> None:
    """Refuse options that say which images are perceived, where none are.

    Raises:
        InputError: One is given.
        BagError: The bag is damaged.
    """
    values = {'--topic': args.topic, '--rate': args.rate}
    given = [name for name, value in values.items() if value is not None]
    if not given or args.show_image:  # an image that is shown is read from a topic
        return
    if is_scene_map(args.source):
        what = 'is a map'
    elif has_recorded_deltas(args.source):
        what = 'has deltas, which are read as they were recorded'
    else:
        return
    msg = f'{given[0]} is for images, and {args.source} {what}: leave it out'
    raise InputError(msg)


def _check_image(args: argparse.Namespace) -> None:
    """Refuse what does not go with an image that is shown."""
    if args.show_image and (args.map or args.episodes or is_scene_map(args.source)):
        msg = '--show-image shows one image: leave --map, --episodes and MAP.json out'
        raise InputError(msg)
    if args.picture and not (args.show_image and asked_kind(args.question, args.option)):
        msg = '--picture needs --show-image and a question for a point or a box: "Point at …"'
        raise InputError(msg)


def _ask_recordings(args: argparse.Namespace, question: Question) -> int:
    """Answer from all recordings of a folder; 1: none has an answer.

    Raises:
        InputError: An argument does not go with it, or no model answers; what was found without
            one is printed.
        ModelError: The server has gone; what it answered until then is printed.
    """
    of_images = args.topic or args.rate is not None
    is_for_model = (args.option or args.map) and not args.model
    if of_images or is_for_model:
        msg = '--episodes reads what was recorded: --topic and --rate do not go with it, and '
        msg += 'options and --map are for a model (--model)'
        raise InputError(msg)
    bags = find_bags([args.source])
    query = _query_of(args, question)
    if args.out:
        make_empty_folder(args.out)
    values, lines, is_found = _look(args, query, bags) if query else ({}, [], False)
    answers: list[RecordingAnswer] = []
    problem: EmbodiedRError | None = None
    if args.model:
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
    config = _config_of(args, args.model)
    with served_model(args.model, say) as chat:
        bar = tqdm(bags, unit=' recordings', disable=None)
        yield from ask_each(bar, question, chat, config, with_map=args.map)


def _query_of(args: argparse.Namespace, question: Question) -> RecallQuery | None:
    """What is looked for without a model; None: that is for the model alone."""
    try:
        named = named_query(args.thing, args.near) if args.thing else None
        query = named or read_query(question.text, args.near)
    except InputError:
        if not args.model or args.out or args.near:
            raise
        return None
    return replace(query, text=question.text, order=args.order or query.order)


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
