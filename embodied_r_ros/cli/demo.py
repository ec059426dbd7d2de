# SPDX-License-Identifier: Apache-2.0
"""`embodied-r demo`: a film in, and a page that shows what was seen and takes questions."""

from __future__ import annotations

from contextlib import closing
from importlib.util import find_spec
from itertools import count
from pathlib import Path
import sys
import tempfile
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.apps.demo import Audience, OfflineDemo
from embodied_r_ros.apps.review.library import Library
from embodied_r_ros.apps.review.pages import ReviewService
from embodied_r_ros.bags.playback import bag_of_images
from embodied_r_ros.bags.sources import open_camera
from embodied_r_ros.cli.arguments import (
    add_settings,
    depth_source,
    given_config,
    given_settings,
    image_progress,
    say,
    some_path,
    some_seconds,
    SourceConfig,
)
from embodied_r_ros.cli.review import asker_of, serve_page
from embodied_r_ros.common.errors import ConfigError, InputError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.core.perception.detector import DetectorConfig
from embodied_r_ros.core.reasoning.question import Question, question_problem
from embodied_r_ros.data.episodes.collect import CollectConfig
from embodied_r_ros.serving.model_files import detector_path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from embodied_r_ros.apps.review.asking import EpisodeAsker

_HOST = '127.0.0.1'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.add_argument(
        '--source',
        type=some_path,
        help='video, folder of images, or bag; goes through this process, without ROS, unless '
        '--ros is given; default: the sample, through the nodes where ROS 2 is there',
    )
    parser.add_argument(
        '--camera', type=int, metavar='N', help='in place of --source, a camera: 0 is the first'
    )
    parser.add_argument(
        '--seconds', type=some_seconds, default=20.0, metavar='S', help='of --camera [s], 20'
    )
    parser.add_argument(
        '--ros', action='store_true', help='through real ROS 2 nodes, each a process of its own'
    )
    parser.add_argument(
        '--no-browser',
        action='store_true',
        help='only save the page; else it is served, takes questions, and a browser opens it '
        '(not where this is run by a script)',
    )
    parser.add_argument('--topic', help='image topic of a bag, or stream of a folder, of several')
    # Both go into one list, in order: an option belongs to the question before it.
    parser.add_argument(
        '--question',
        dest='words',
        action='append',
        default=[],
        metavar='QUESTION',
        type=lambda text: ('question', text),
        help='what to ask; repeat for more; default: three questions of its own',
    )
    parser.add_argument(
        '-o',
        '--option',
        dest='words',
        action='append',
        metavar='OPTION',
        type=lambda text: ('option', text),
        help='an option of the question before it; repeat, one each',
    )
    parser.add_argument(
        '--out', type=some_path, metavar='DIR', help='new or empty folder (default: out/demo-N)'
    )
    add_settings(parser, {'source': SourceConfig, 'detector': DetectorConfig})


def main(args: argparse.Namespace) -> int:
    """Run the demonstration."""
    questions = _questions(args.words)
    if args.camera is not None and (args.source or args.ros):
        msg = '--camera goes without --source and --ros: leave them out'
        raise InputError(msg)
    is_sample = not args.source and args.camera is None
    out = args.out or next(path for n in count(1) if not (path := Path(f'out/demo-{n}')).exists())
    is_ros = args.ros or (is_sample and find_spec('rclpy') is not None)
    with asker_of(None) as ask:
        if is_ros:
            report = _through_nodes(args, questions, out)
        else:
            report = _in_this_process(args, questions, out, ask)
        _tell(report, out)
        if not args.no_browser and sys.stderr.isatty():
            with closing(Library(out / 'bag')) as library:
                service = ReviewService(library, time.time_ns, ask, ask.learn)
                serve_page(service, report['source'], _HOST, 0, opens=True)
    return 0


def _through_nodes(
    args: argparse.Namespace, questions: tuple[Question, ...], out: Path
) -> dict[str, Any]:
    try:
        from embodied_r_ros.nodes.demo.demo import DemoRequest, run_demo
    except ImportError as error:
        msg = f'ROS 2 is not there ({error}): source it, or run `make demo` in the clone'
        raise ConfigError(msg) from None
    source = args.source or _sample()
    request = DemoRequest(source, out, questions, args.topic, depth_source(args), _perceiver(args))
    return run_demo(request, Audience(say, _hear))


def _in_this_process(
    args: argparse.Namespace, questions: tuple[Question, ...], out: Path, ask: EpisodeAsker
) -> dict[str, Any]:
    config, audience = _collect_config(args), Audience(say, _hear)

    def run(source: Path, name: str = '') -> dict[str, Any]:
        demo = OfflineDemo(source, config, ask, time.time_ns, image_progress, questions, name)
        return demo.run(out, audience)

    if args.camera is None:
        return run(args.source or _sample())
    with tempfile.TemporaryDirectory(prefix='embodied-r-camera-') as folder:
        with open_camera(args.camera, args.seconds) as images:
            say(f'filming with camera {args.camera} for {args.seconds:g} s')
            bag = bag_of_images(images, Path(folder) / 'camera').bag
        return run(bag, images.name)


def _sample() -> Path:
    return shared_path('samples', 'indoor', 'episode_00000')


def _collect_config(args: argparse.Namespace) -> CollectConfig:
    """How it is perceived without ROS: by a detector that is given or was fetched, if any.

    Raises:
        InputError: A setting is for the nodes alone.
    """
    of_detector = given_settings(args, 'detector')
    if others := [name for name in of_detector if name != 'model']:
        msg = f'detector.{others[0]} is for the nodes: give --ros too, or leave it out'
        raise InputError(msg)
    model = of_detector.get('model', '')
    is_named = bool(model or ((args.source or args.camera is not None) and detector_path('')))
    source = given_config(args, 'source', SourceConfig)
    return CollectConfig(
        images='film',
        perceiver='detector' if is_named else 'classical',
        topic=args.topic or '',
        depth_topic=source.depth_topic,
        depth_unit_m=source.depth_unit_m,
        detector=model,
    )


def _tell(report: dict[str, Any], out: Path) -> None:
    """Say what came of it, and what to do next."""
    right = [entry['right'] for entry in report['questions'] if entry['right'] is not None]
    score = f', {sum(right)} of {len(right)} right' if right else ''
    say(f'done: {len(report["questions"])} questions{score}; the page: {out / report["page"]}')
    say(f'ask it more, and label its answers: {_command()} review {out / "bag"}')


def _command() -> str:
    """This command as it was called, such as `.venv/bin/embodied-r`."""
    called = Path(sys.argv[0])
    return str(called) if called.name == 'embodied-r' else 'embodied-r'


def _questions(words: Iterable[tuple[str, str]]) -> tuple[Question, ...]:
    """The questions with their options, from the arguments in their order.

    Raises:
        InputError: One of them is not allowed, or there are options alone.
    """
    requests: list[tuple[str, list[str]]] = []
    early: list[str] = []  # options before the first question, which are its own
    for kind, text in words:
        if kind == 'question':
            requests.append((text, [] if requests else early))
        else:
            (requests[-1][1] if requests else early).append(text)
    if early and not requests:
        msg = 'options without a question: give --question too'
        raise InputError(msg)
    for text, options in requests:
        if problem := question_problem(text, options):
            raise InputError(problem)
    return tuple(Question(text, tuple(options)) for text, options in requests)


def _perceiver(args: argparse.Namespace) -> dict[str, Any]:
    """Parameters of the perceiver: rendered things have no names, real ones get them."""
    if detector := given_settings(args, 'detector'):
        return {'perceiver': 'detector', 'detector': detector}
    return {'perceiver': 'auto' if args.source else 'classical'}


def _hear(text: str) -> None:
    print(text, end='', file=sys.stderr, flush=True)
