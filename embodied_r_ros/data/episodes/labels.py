# SPDX-License-Identifier: Apache-2.0
"""Labels as a layer: `labels.jsonl` beside a recording, one line per label, appended and synced.

The recording itself is never touched. A line is written in one piece under a lock, so that several
writers do not mix; of a writer that is killed in the middle, one damaged line remains, which is
reported, and nothing else is lost. How far people agree about the same questions is counted by its
lines.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, dataclass
import fcntl
import hashlib
from itertools import combinations
import json
import math
import os
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.format import sync_folder
from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.core.types.answers import AnswerKind, Freshness, UNKNOWN
from embodied_r_ros.core.types.episodes import Label, LabelKind, LabelLayer, WrittenQuestion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from embodied_r_ros.core.types.answers import Answer

LABELS = 'labels.jsonl'


def labels_path(bag: Path) -> Path:
    """Where the labels of a recording lie: in its folder, or beside a bare file."""
    return bag / LABELS if bag.is_dir() else bag.with_name(f'{bag.name}.{LABELS}')


def answer_in_words(answer: Answer) -> str | None:
    """What was answered, as labels have it; None: a refusal, which answers nothing."""
    if answer.freshness is Freshness.REFUSED:
        return None
    return UNKNOWN if answer.kind is AnswerKind.UNKNOWN else answer.text


def label_id(*parts: object) -> str:
    """An id that is the same for the same parts: a label that comes twice is one label."""
    return hashlib.sha256('\0'.join(map(str, parts)).encode()).hexdigest()[:20]


def read_labels(bag: Path) -> LabelLayer:
    """Read the labels beside a recording; without a file there are none.

    Raises:
        InputError: The file cannot be read.
    """
    path = labels_path(bag)
    try:
        return parse_labels(path.read_bytes())
    except FileNotFoundError:
        return LabelLayer()
    except OSError as error:
        msg = f'{path} cannot be read: {error.strerror}'
        raise InputError(msg) from None


def parse_labels(data: bytes) -> LabelLayer:
    """Read the lines of a layer; those that cannot be read are named in its damage."""
    labels: dict[str, Label] = {}
    damage = []
    for number, line in enumerate(data.split(b'\n'), 1):
        if not line.strip():
            continue
        try:
            label = _label_of(line)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            damage.append(f'line {number} is no label ({_why(line, error)})')
            continue
        labels.setdefault(label.id, label)
    return LabelLayer(tuple(labels.values()), tuple(damage))


def _why(line: bytes, error: Exception) -> str:
    if not line.rstrip().endswith(b'}'):
        return 'cut off'
    return ' '.join(f'{type(error).__name__}: {error}'.split())[:120]


_LABEL_TEXTS = ('id', 'question_id', 'who')


def _label_of(line: bytes) -> Label:
    """A label of its line.

    Raises:
        ValueError, TypeError, KeyError: It is none.
    """
    value: dict[str, Any] = json.loads(line)
    own = {name: value[name] for name in Label.__dataclass_fields__ if name in value}
    question = own.get('question')
    own['question'] = _written_question(question) if question is not None else None
    label = Label(**{**own, 'kind': LabelKind(value['kind'])})
    texts = [getattr(label, name) for name in _LABEL_TEXTS]
    words = [text for text in (label.before, label.after) if text is not None]
    if not all(isinstance(text, str) for text in (*texts, *words, label.undoes)):
        msg = f'{", ".join(_LABEL_TEXTS)}, before, after and undoes are texts'
        raise TypeError(msg)
    if type(label.when_ns) is not int or not label.id:
        msg = 'when_ns is an integer, and id is not empty'
        raise TypeError(msg)
    return label


def _written_question(value: dict[str, Any]) -> WrittenQuestion:
    names = WrittenQuestion.__dataclass_fields__
    own = {name: item for name, item in value.items() if name in names}
    for name in ('options', 'delta_ids'):
        own[name] = tuple(own.get(name, ()))
    question = WrittenQuestion(**own)
    texts = (question.text, *question.options, question.think, question.model, question.digest)
    if not all(isinstance(text, str) for text in texts) or type(question.stamp_ns) is not int:
        msg = 'a question has texts, and an integer stamp_ns'
        raise TypeError(msg)
    return question


def line_of(label: Label) -> bytes:
    """A label as its line.

    Raises:
        InputError: A text is not UTF-8.
    """
    value = {name: item for name, item in asdict(label).items() if item not in ('', None)}
    value |= {'kind': label.kind.value, 'before': label.before, 'after': label.after}
    if label.question:
        question = asdict(label.question)
        confidence = question['confidence']
        if confidence is not None and not math.isfinite(confidence):
            question['confidence'] = None
        value['question'] = question
    try:
        return json.dumps(value, ensure_ascii=False, separators=(',', ':')).encode() + b'\n'
    except UnicodeEncodeError:
        msg = f'label {label.id} has a text that is not UTF-8: write it anew'
        raise InputError(msg) from None


def append_with(bag: Path, make: Callable[[LabelLayer], Label]) -> Label:
    """Append a label computed from those that are there, under a lock.

    Raises:
        EmbodiedRError: The disk does not take it; what was there is as it was.
    """
    path = labels_path(bag)
    try:
        with _locked(path) as descriptor:
            data = path.read_bytes()
            layer = parse_labels(data)
            label = make(layer)
            before = {other.id: other for other in layer.labels}
            if label.id in before:
                return before[label.id]
            # After a line that was cut off, a new one begins.
            start = b'\n' if data and not data.endswith(b'\n') else b''
            _write(descriptor, start + line_of(label), len(data))
    except OSError as error:
        msg = f'the label is not in {path}: {error.strerror}'
        raise EmbodiedRError(msg) from None
    return label


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """The open file, held against other writers."""
    is_new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
        if is_new:
            sync_folder(path.parent)
    finally:
        os.close(descriptor)


def _write(descriptor: int, line: bytes, size: int) -> None:
    """Append a line and sync it, or leave the file as it was."""
    try:
        written = os.write(descriptor, line)
        while written < len(line):
            written += os.write(descriptor, line[written:])
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)  # the lock is held: nobody else has written
        raise


@dataclass(frozen=True)
class Agreement:
    """How two people labelled the same questions."""

    people: tuple[str, str]
    questions: int  # that both labelled
    agreed: int
    kappa: float | None  # None: both always say the same one thing, and chance would too

    @property
    def share(self) -> float:
        """Share of the questions on which they agree."""
        return self.agreed / self.questions


def agreements(layers: Iterable[LabelLayer]) -> list[Agreement]:
    """Compare every two people who labelled a question both, over several recordings."""
    pairs: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for layer in layers:
        for labels in layer.by_question().values():
            for first, second in combinations(sorted(labels), 2):
                both = _solution(labels[first]), _solution(labels[second])
                pairs.setdefault((first, second), []).append(both)
    return [
        Agreement(people, len(both), sum(a == b for a, b in both), cohens_kappa(both))
        for people, both in sorted(pairs.items())
    ]


def _solution(label: Label) -> str:
    """What a label says is right; 'wrong' names nothing, and no solution is called so."""
    if label.kind is LabelKind.WRONG or label.after is None:
        return '(wrong)'
    return label.after.casefold()


def cohens_kappa(pairs: Sequence[tuple[str, str]]) -> float | None:
    """Cohen's kappa of what two people said of the same things; None: chance agrees fully too.

    It is the agreement beyond what chance gives two people who use each solution as often as these
    do (Cohen, 1960): 1 is full agreement, 0 is chance.

    >>> cohens_kappa([('a', 'a'), ('b', 'b'), ('a', 'b'), ('b', 'b')])
    0.5
    """
    total = len(pairs)
    if not total:
        return None
    observed = sum(first == second for first, second in pairs) / total
    firsts = Counter(first for first, _ in pairs)
    seconds = Counter(second for _, second in pairs)
    chance = sum(count * seconds[solution] for solution, count in firsts.items()) / total**2
    return None if chance == 1 else (observed - chance) / (1 - chance)
