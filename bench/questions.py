# SPDX-License-Identifier: Apache-2.0
"""Plain questions of people about recordings, asked by `ask --questions`: right, unknown, wrong.

A file holds lines of `id`, `source` or `map`, `question`, `options`, `truth` and maybe `held`
(whether what is perceived decides it). `truth` is ["num", value, tolerance], ["any", words],
["list", names] or a list of accepted answers, among them perhaps unknown. Sources are below
--footage; `furnished/SEED/NAME` is an episode of `sim indoor --seed SEED`, which is rendered
first, and `sim/SEED/NAME` one of a room of plain shapes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
import json
import os
from pathlib import Path
import re
import subprocess
import sys
import tempfile
from typing import Any, TYPE_CHECKING

from embodied_r_ros.cli.arguments import some_path, some_text
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.reasoning.quantities import Quantity, quantity_in
from scipy.stats import binomtest

from bench.report import Budget, judge

if TYPE_CHECKING:
    import argparse

_EPISODES = 3  # that are rendered of a seed
_KINDS_OF_ROOMS = {'sim': 'all', 'furnished': 'furniture'}
_FEET = re.compile(r'\b(?:feet|foot|ft)\b')
_METRES = re.compile(r'\b(?:met(?:er|re)s?|m)\b')
_MOVED = re.compile(r'^(?:(?:moved|turned|tilted|rolled) )?(?:to the )?')
_CENTIMETRES = re.compile(
    r'\b(?:cm|centimet\w+|tall|high|height|wide|width|long|length|deep|big|across)\b'
)
OUTCOMES = ('right', 'unknown', 'wrong')


@dataclass(frozen=True)
class PlainQuestion:
    """A question of a file."""

    id: str
    source: str
    question: str
    options: tuple[str, ...]
    truth: list[Any]
    held: bool


def outcome(question: PlainQuestion, answer: dict[str, Any]) -> str:
    """'right', 'unknown' or 'wrong': any wrong answer that is not unknown.

    Args:
        question: With its truth.
        answer: A line of `ask --questions`.
    """
    kind, *truth = question.truth
    said = str(answer.get('answer') or 'unknown').strip().lower()
    accepted = truth[0] if kind in ('any', 'list') else question.truth
    if said == 'unknown':
        is_accepted = kind != 'num' and 'unknown' in accepted
        return 'right' if is_accepted else 'unknown'
    if kind == 'num':
        is_right = _is_number(question, said, str(answer.get('unit') or ''), *truth)
    elif kind == 'any':
        is_right = any(re.search(rf'\b{re.escape(word.lower())}', said) for word in accepted)
    elif kind == 'list':
        names = [part.strip() for part in re.split(r'[,;]|\band\b', said) if part.strip()]
        known = [any(word.lower() in name for word in accepted) for name in names]
        is_right = len(names) >= 3 and all(known)
    else:
        said = _MOVED.sub('', said)
        words = [_MOVED.sub('', str(word).lower()) for word in accepted]
        is_right = any(re.match(rf'{re.escape(word)}\b', said) for word in words)
    return 'right' if is_right else 'wrong'


def _is_number(
    question: PlainQuestion, said: str, unit: str, value: float, tolerance: float
) -> bool:
    """Whether a number is within the tolerance, in the unit that the truth has."""
    match = re.search(r'\d', said)
    number = quantity_in(f'{said[match.start() :]} {unit}'.strip()) if match else None
    if number is None:
        return False
    text = question.question.lower()
    in_centimetres = _CENTIMETRES.search(text) and not _METRES.search(text)
    metres = 0.3048 if _FEET.search(text) else 0.01 if in_centimetres else 1.0
    wanted = Quantity(value, number.dimension, metres if number.dimension == 'length' else 1.0)
    is_length = number.dimension == 'length'
    shown = number.base() / wanted.factor if is_length else number.value
    return abs(shown - value) <= tolerance


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add('files', nargs='*', type=some_path, metavar='FILE.jsonl', help='questions with truth')
    add(
        '--footage',
        type=some_path,
        default=Path(os.environ.get('EMBODIED_R_FOOTAGE', '../shared/data')),
        help='folder of the sources (default: %(default)s)',
    )
    add('--profile', type=some_text, help='who answers (default: tools)')
    add('--model', type=some_text, help='likewise: folder or URL of a model')
    add('--no-check', action='store_true', help="take a model's answers as they come")
    add('--json', type=some_path, metavar='FILE', help='write every answer with its outcome')


def read_questions(path: Path) -> list[PlainQuestion]:
    """The questions of a file.

    Raises:
        InputError: A line is none.
    """
    questions = []
    for number, line in enumerate(path.read_text(encoding='utf-8').splitlines(), 1):
        try:
            value = json.loads(line)
            source = value.get('source') or str(path.parent / value['map'])
            fields = value['id'], source, value['question'], tuple(value.get('options', ()))
            questions.append(PlainQuestion(*fields, value['truth'], bool(value.get('held'))))
        except (KeyError, TypeError, ValueError) as error:
            msg = f'{path}: line {number} is no question with its truth: {error}'
            raise InputError(msg) from None
    return questions


def _place_of(source: str, footage: Path, rooms: Path) -> Path:
    """Where a source is; a rendered room is made first."""
    room, _, episode = source.partition('/')
    if room not in _KINDS_OF_ROOMS:
        return footage / source
    seed, name = episode.split('/')
    folder = rooms / seed
    if not folder.exists():
        kinds = _KINDS_OF_ROOMS[room]
        given = f'--episodes {_EPISODES} --seed {seed} --set indoor.kinds={kinds} --out'
        _run('sim', 'indoor', *given.split(), str(folder))
    return folder / name


def _run(*words: str) -> str:
    command = [sys.executable, '-m', 'embodied_r_ros.cli.main', *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        msg = f'embodied-r {" ".join(words)} ended with {done.returncode}'
        raise InputError(msg)
    return done.stdout


def ask_all(
    questions: list[PlainQuestion], footage: Path, rooms: Path, model: list[str]
) -> dict[str, dict[str, Any]]:
    """Answers by the ids of their questions; each source is asked about once."""
    answers: dict[str, dict[str, Any]] = {}
    for source in dict.fromkeys(question.source for question in questions):
        place = _place_of(source, footage, rooms)
        listed = rooms / 'questions.jsonl'
        own = [question for question in questions if question.source == source]
        lines = [{'id': q.id, 'question': q.question, 'options': list(q.options)} for q in own]
        listed.write_text('\n'.join(map(json.dumps, lines)))
        printed = _run('ask', str(place), '--questions', str(listed), '--json', *model)
        answers |= {value['id']: value for value in map(json.loads, printed.splitlines())}
    return answers


def main(args: argparse.Namespace) -> int:
    """Ask, and print how many answers are right, unknown and wrong; 1: a bar is not met."""
    files = args.files or [Path('test/questions/plain_development.jsonl')]
    questions = [question for path in files for question in read_questions(path)]
    model = ['--model', args.model] if args.model else ['--profile', args.profile or 'tools']
    model += ['--set', 'reasoner.check=false'] if args.no_check else []
    with tempfile.TemporaryDirectory() as rooms:
        answers = ask_all(questions, args.footage, Path(rooms), model)
    outcomes = {q.id: outcome(q, answers.get(q.id, {})) for q in questions}
    for question in questions:
        answer = answers.get(question.id, {})
        told = answer.get('text') or answer.get('error') or answer.get('answer')
        print(f'{outcomes[question.id]:8}{question.question} -> {told}')
    held = [question for question in questions if question.held]
    budgets = [
        Budget('wrong, of all', _print_row('all', questions, outcomes)['wrong'], 0.03),
        Budget('right, of those that are held', _print_row('held', held, outcomes)['right'], 0.5,
               at_least=True),
    ]  # fmt: skip
    if args.json:
        rows = [{**vars(q), **answers.get(q.id, {}), 'outcome': outcomes[q.id]} for q in questions]
        args.json.write_text('\n'.join(json.dumps(row, ensure_ascii=False) for row in rows) + '\n')
    return judge(budgets, None, {})


def _print_row(
    name: str, questions: list[PlainQuestion], outcomes: dict[str, str]
) -> dict[str, float]:
    """Print and return the shares of a set."""
    counts = Counter(outcomes[question.id] for question in questions)
    total = max(len(questions), 1)
    cells = []
    for each in OUTCOMES:
        interval = binomtest(counts[each], total).proportion_ci(method='wilson')
        low, high = interval.low, interval.high
        cells.append(f'{each} {counts[each]} ({100 * low:.0f} to {100 * high:.0f} %)')
    print(f'{name}: {len(questions)}; {"; ".join(cells)}')
    return {each: counts[each] / total for each in OUTCOMES}
