# SPDX-License-Identifier: Apache-2.0
"""The recordings of a folder: a list that fills while people work, and few of them open at a time.

Of each recording the list keeps a few numbers and small pictures. They are read in a thread of its
own, those first that somebody looks at. A recording that is shown is read as a whole, and the one
that was not looked at for the longest time is closed for it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
import threading
from typing import Any, TYPE_CHECKING

from embodied_r_ros.apps.review.film import Film, posters
from embodied_r_ros.apps.review.recording import (
    Beside,
    question_order,
    read_recording,
    written_question,
)
from embodied_r_ros.bags.sources import find_bags
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.types.episodes import LabelLayer, Verdict
from embodied_r_ros.data.episodes.labels import labels_path, read_labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from embodied_r_ros.apps.review.recording import (
        ReviewQuestion,
        ReviewRecording,
        RowQuestion,
    )
    from embodied_r_ros.core.types.episodes import Label

MOST_OPEN = 4  # recordings that are held with their films
LOW_CONFIDENCE = 0.6
FILTERS = {
    'all': 'all questions',
    'replayed': 'answered otherwise in a replay',
    'disagreement': 'disagreement: with another model, or with what is proven',
    'low': f'low confidence (below {LOW_CONFIDENCE:.0%}), stale or refused',
    'unlabelled': 'not labelled by me',
    'people': 'people differ',
}


@dataclass(frozen=True)
class Mark:
    """What the list keeps of a question."""

    id: str
    answer: str | None
    is_disputed: bool
    is_unsure: bool
    is_replayed_otherwise: bool = False

    @classmethod
    def of(cls, question: ReviewQuestion) -> Mark:
        """Take it from a question."""
        is_unsure = question.confidence is not None and question.confidence < LOW_CONFIDENCE
        is_unsure = is_unsure or question.freshness not in {'', 'FRESH'}
        return cls(
            question.id,
            question.answer,
            question.is_disputed,
            is_unsure,
            question.is_replayed_otherwise,
        )

    def is_in(self, name: str, people: dict[str, Label], who: str) -> bool:
        """Whether a filter lets the question through.

        Args:
            name: One of FILTERS.
            people: The newest label of each person on the question.
            who: The reviewer.
        """
        if name == 'replayed':
            return self.is_replayed_otherwise
        if name == 'disagreement':
            return self.is_disputed
        if name == 'low':
            return self.is_unsure
        if name == 'unlabelled':
            return who not in people
        return name == 'all' or (len(people) > 1 and Verdict.of(people, self.answer).is_disputed)


@dataclass(frozen=True)
class Card:
    """What the list keeps of a recording."""

    key: str
    is_read: bool = False
    problem: str = ''  # why it cannot be shown
    begin_ns: int = 0
    duration_s: float = 0.0
    marks: tuple[Mark, ...] = ()  # of its own questions
    posters: tuple[bytes, ...] = ()  # small pictures, JPEG


@dataclass
class OpenRecording:
    """A recording that is shown."""

    recording: ReviewRecording
    film: Film


class Library:
    """The recordings of a folder."""

    def __init__(
        self,
        root: Path,
        rows: dict[str, list[RowQuestion]] | None = None,
        replays: Sequence[dict[str, Any]] = (),
    ) -> None:
        """List the recordings, and begin to read about them.

        Args:
            root: A recording, or a folder of recordings.
            rows: Questions with solutions, by episode.
            replays: Reports of `embodied-r replay`; of one episode, the last counts.

        Raises:
            BagError: There are none.
        """
        replays_by_episode = {report['episode_id']: report for report in replays}
        self._beside = Beside(rows or {}, replays_by_episode)
        # Links of one name each may lead to recordings of one name; '.' has none of its own.
        self._bags = {bag.name or bag.resolve().name: bag for bag in find_bags([root])}
        self._cards = {key: Card(key) for key in self._bags}
        self._layers: dict[str, tuple[tuple[int, int], LabelLayer]] = {}
        self._open: OrderedDict[str, OpenRecording] = OrderedDict()
        self._wanted: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._index, name='index', daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._bags)

    def bag(self, key: str) -> Path:
        """A recording of the list.

        Raises:
            InputError: It is not in the list.
        """
        if key not in self._bags:
            msg = f'there is no recording {key!r} here: reload the list'
            raise InputError(msg)
        return self._bags[key]

    def cards(self) -> list[Card]:
        """What is known of all recordings, in the order of their names."""
        with self._lock:
            return list(self._cards.values())

    def card(self, key: str) -> Card:
        """What is known of one.

        Raises:
            InputError: It is not in the list.
        """
        self.bag(key)
        with self._lock:
            return self._cards[key]

    def want(self, keys: Iterable[str]) -> None:
        """Read about these first."""
        with self._lock:
            self._wanted = OrderedDict.fromkeys(
                key for key in keys if key in self._cards and not self._cards[key].is_read
            )

    def layer(self, key: str) -> LabelLayer:
        """The labels beside a recording, read again where the file has changed.

        Raises:
            InputError: They cannot be read.
        """
        bag = self.bag(key)
        try:
            stat = labels_path(bag).stat()
        except OSError:
            return LabelLayer()
        state = stat.st_mtime_ns, stat.st_size
        with self._lock:
            known = self._layers.get(key)
        if known and known[0] == state:
            return known[1]
        layer = read_labels(bag)
        with self._lock:
            self._layers[key] = state, layer
        return layer

    def marks(self, key: str) -> list[Mark]:
        """Questions of a recording, those that people wrote included."""
        layer, marks = self.layer(key), list(self.card(key).marks)
        written = [written_question(label, ()) for label in layer.questions().values()]
        return marks + [Mark.of(question) for question in written]

    def open(self, key: str) -> OpenRecording:
        """A recording with its film; reads it where it is not open.

        Raises:
            InputError: It is not in the list, or cannot be read.
        """
        bag = self.bag(key)
        with self._opening:
            if key in self._open:
                self._open.move_to_end(key)
                return self._open[key]
            recording = read_recording(bag, self._beside)
            self._open[key] = opened = OpenRecording(recording, Film(bag))
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)[1].film.close()
            return opened

    def questions(self, key: str) -> list[ReviewQuestion]:
        """All questions of a recording in the order of their moments.

        Raises:
            InputError: It cannot be read.
        """
        recording = self.open(key).recording
        written = [
            written_question(label, recording.deltas)
            for label in self.layer(key).questions().values()
        ]
        every = [*recording.questions, *written]
        # What a replay changed comes first.
        return sorted(every, key=lambda q: (not q.is_replayed_otherwise, *question_order(q)))

    def close(self) -> None:
        """End the reading, and let go of all films."""
        self._is_closed.set()
        self._thread.join()
        with self._opening:
            for opened in self._open.values():
                opened.film.close()
            self._open.clear()

    def _index(self) -> None:
        while (key := self._next()) is not None and not self._is_closed.is_set():
            card = _card(key, self._bags[key], self._beside)
            with self._lock:
                self._cards[key] = card

    def _next(self) -> str | None:
        """The next recording to be read about; None: all are."""
        with self._lock:
            while self._wanted:
                key = self._wanted.popitem(last=False)[0]
                if not self._cards[key].is_read:
                    return key
            return next((key for key, card in self._cards.items() if not card.is_read), None)


def _card(key: str, bag: Path, beside: Beside) -> Card:
    try:
        recording = read_recording(bag, beside)
        card = Card(
            key,
            is_read=True,
            begin_ns=recording.begin_ns,
            duration_s=(recording.end_ns - recording.begin_ns) / 1e9,
            marks=tuple(map(Mark.of, recording.questions)),
        )
        return replace(card, posters=tuple(posters(bag)))
    except Exception as error:  # one bad recording must not end the list
        return Card(key, is_read=True, problem=' '.join(str(error).split()))
