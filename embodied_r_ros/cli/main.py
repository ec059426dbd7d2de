# SPDX-License-Identifier: Apache-2.0
# PYTHON_ARGCOMPLETE_OK
"""`embodied-r VERB …`: finds the verb, and turns errors into exit codes.

Data goes to stdout, talk and progress to stderr. 0: done. 1: it ran and the result is negative, or
an internal failure. 2: bad arguments or input, with one line on stderr. 130: Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import argparse
from importlib import import_module
import logging
import math
import os
import signal
import sys
from typing import NoReturn, TYPE_CHECKING

import argcomplete
from embodied_r_ros.common.errors import EmbodiedRError, InputError
from tqdm import tqdm

if TYPE_CHECKING:
    from collections.abc import Sequence

_COMPLETING = '_ARGCOMPLETE'  # set by the shell's completion

VERBS: dict[str, str] = {
    'ask': 'answer one question about a recording, or find what many of them show',
    'changes': 'say what changed in a place between two recordings of it',
    'collect': 'make episodes of camera bags: keyframes and deltas, several bags at a time',
    'demo': 'show what is seen in a film, on a page that takes questions; with ROS, by real nodes',
    'demos': 'make bags of datasets of demonstrations',
    'doctor': 'check the installation, and say what to do',
    'episodes': 'list, audit, recover, export or delete recordings; compare their labels',
    'keyframes': 'list the keyframes of a recording, with their reasons',
    'keypoints': 'list the keypoints of a demonstration of an arm, with their reasons',
    'map': 'make a map of what is where in a recording, and draw it from above',
    'mcp': 'let assistants ask recordings: a read-only server of the Model Context Protocol',
    'models': 'fetch model files; publish promoted models to many robots, and take them back',
    'perceive': 'say how the camera of a recording moved, and what changed in view',
    'questions': 'derive questions with solutions from bags',
    'replay': 'ask the recorded questions again, with other models or another perceiver',
    'review': 'label answers of recordings in the browser',
    'serve': 'start the model servers of a profile',
    'sim': 'write recordings of simulated worlds, with the truth beside them',
    'view': 'show a recording in the Rerun viewer, or write a file for it',
}

# Options of the last release that are settings now, with a value where they had none.
_OLD_OPTIONS = {
    '--depth-topic': 'source.depth_topic',
    '--depth-unit': 'source.depth_unit_m',
    '--rate': 'source.rate_hz',
    '--max-overlap': 'keyframe.max_overlap',
    '--min-interval': 'keyframe.min_interval_s',
    '--max-interval': 'keyframe.max_interval_s',
    '--camera-height': 'classical.camera_height_m',
    '--hfov': 'classical.assumed_hfov_rad',  # in degrees
    '--no-odometry': 'classical.use_odometry=false',
    '--detector': 'detector.model',
    '--classes': 'detector.classes',
    '--threshold': 'detector.threshold',
    '--url': 'chat.url',
    '--actors': 'fleet.actors',
    '--gpus': 'fleet.gpus',
    '--attempts': 'fleet.attempts',
    '--retry-failed': 'fleet.retry_failed=true',
    '--temperature': 'reasoner.temperature',
    '--max-tokens': 'reasoner.max_tokens',
    '--no-check': 'reasoner.check=false',
    '--deadline': 'reasoner.deadline_s',
    '--token-budget': 'reasoner.token_budget',
    '--show-image': 'reasoner.show_image=true',
    '--moments': 'questions.moments',
    '--test-share': 'questions.test_share',
    '--images': 'collect.images',
    '--kinds': 'indoor.kinds',
    '--returns': 'indoor.returns',
    '--signs': 'indoor.signs',
    '--noise': 'arm.noise',
}
# Where the group of such an option is another one.
_OLD_GROUPS = {
    'collect': {'source.depth': 'collect.depth', 'detector.model': 'collect.detector'},
    'sim indoor': {'source.': 'indoor.'},
    'sim arm': {'source.': 'arm.'},
}

_FIRST = """\
embodied-r: error: there is no verb. To begin:
  embodied-r demo --source MY.mp4           what is seen in a film, on a page that takes questions
  embodied-r demo --camera 0                the same of a webcam
  embodied-r ask MY.mp4 "What do you see?"  one answer, here
  embodied-r doctor                         what is installed, and what is missing
The others: embodied-r --help"""

_OF_ARM = {'demos', 'keypoints'}  # verbs in a folder of their own


class _Parser(argparse.ArgumentParser):
    """Reports bad arguments in the one line that every error of this command has."""

    def error(self, message: str) -> NoReturn:
        print(f'embodied-r: error: {message} (see {self.prog} --help)', file=sys.stderr)
        sys.exit(2)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    if not arguments and _COMPLETING not in os.environ:
        print(_FIRST, file=sys.stderr)
        sys.exit(2)
    parser = _Parser(prog='embodied-r', description='Spatial reasoning from a robot camera.')
    verbs = parser.add_subparsers(metavar='VERB', required=True, parser_class=_Parser)
    chosen = next((word for word in arguments if not word.startswith('-')), None)
    for verb, summary in VERBS.items():
        sub = verbs.add_parser(verb, help=summary, description=summary)
        # Only the chosen verb's module is imported: the others may need what is not installed.
        if verb == chosen:
            room = 'cli.arm' if verb in _OF_ARM else 'cli'
            module = import_module(f'embodied_r_ros.{room}.{verb}')
            module.add_arguments(sub)
            sub.set_defaults(run=module.main)
    if _COMPLETING in os.environ:
        argcomplete.autocomplete(parser)
    return parser.parse_args(_with_settings(parser, arguments))


def _with_settings(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> list[str]:
    """The arguments with settings in place of old options, of which a line tells."""
    known, verb = _options_of(parser, arguments)
    words, rest = [], list(arguments)
    while rest:
        option, has_value, value = rest.pop(0).partition('=')
        if option == '--map' and verb == 'ask':  # the map is always known
            continue
        name = _OLD_OPTIONS.get(option)
        if name is None or option in known or '--set' not in known:
            words.append(f'{option}{has_value}{value}')
            continue
        for old, new in _OLD_GROUPS.get(verb, {}).items():
            name = name.replace(old, new)
        if '=' not in name:
            value = value if has_value else (rest.pop(0) if rest else '')
            value = _radians(value) if option == '--hfov' else value
            name = f'{name}={value}'
        words += ['--set', name]
        print(f'embodied-r: note: {option} is --set {name} now', file=sys.stderr)
    return words


def _options_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> tuple[set[str], str]:
    """The options that the chosen verb has, and its name."""
    names = []
    for word in arguments:
        subs = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        if subs and word in subs[0].choices:
            parser = subs[0].choices[word]
            names.append(word)
    return set(parser._option_string_actions), ' '.join(names)


def _radians(degrees: str) -> str:
    try:
        return f'{math.radians(float(degrees)):.6g}'
    except ValueError:
        return degrees


def _words_so_far() -> list[str]:
    """The words of the command line that the shell wants to have completed."""
    return os.environ.get('COMP_LINE', '').split()[1:]


class _Notes(logging.Handler):
    """Prints what the package says beside its results, each line once, over progress bars."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._texts: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print a line on stderr."""
        text = ' '.join(record.getMessage().split())
        if text not in self._texts:
            self._texts.add(text)
            tqdm.write(f'embodied-r: note: {text}', file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code."""
    notes, log = _Notes(), logging.getLogger('embodied_r_ros')
    log.addHandler(notes)
    try:
        return _run(arguments)
    finally:
        log.removeHandler(notes)


def _run(arguments: Sequence[str] | None) -> int:
    # A signal to end is like an interrupt from the keyboard: what is begun is tidied up.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        given = _words_so_far() if _COMPLETING in os.environ else sys.argv[1:]
        args = _parse(given if arguments is None else list(arguments))
        code = int(args.run(args))
        if sys.stdout:  # None: it was closed before the start
            sys.stdout.flush()
    except InputError as error:
        print(f'embodied-r: error: {_one_line(error)}', file=sys.stderr)
        return 2
    except EmbodiedRError as error:
        print(f'embodied-r: failed: {_one_line(error)}', file=sys.stderr)
        return 1
    except OSError as error:
        _drop_output()
        # That the reader of our output goes away (`| head`) is its right.
        if not isinstance(error, BrokenPipeError):
            print(f'embodied-r: failed: {_one_line(error)}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('embodied-r: interrupted', file=sys.stderr)
        return 130
    return code


def _drop_output() -> None:
    """Drop what stdout does not take, of which Python would complain once more at its end."""
    try:
        if sys.stdout:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _one_line(error: Exception) -> str:
    return ' '.join(str(error).split())


if __name__ == '__main__':
    sys.exit(main())
