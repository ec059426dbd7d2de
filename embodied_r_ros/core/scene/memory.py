# SPDX-License-Identifier: Apache-2.0
"""Scene memory: the deltas so far, live and offline, and their text within a token budget."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
import math
import re
import threading
from typing import TYPE_CHECKING

from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.common.untrusted import as_seen
from embodied_r_ros.core.types.deltas import compose_actions, ItemStatus
from embodied_r_ros.core.types.geometry import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.types.deltas import SemanticDelta

LEAST_TOKENS = 200  # of a scene in a prompt
# A merged line names at most this many items, so that its cost has a bound.
_MERGED_ITEMS = 8
_MERGED_TOKENS = 90
_WORD = re.compile(r'[^\W\d_]+')
# Of ASCII, words, digits and signs; of other scripts, each character.
_PIECES = re.compile(r'[A-Za-z]+|\d|[^\s\w]|\s(?=\d)', re.ASCII)
_ONE_TOKEN = '°'  # our own words have it, and every vocabulary
# Words that say nothing about which delta a question is about.
_COMMON_TEXT = """
a about after all am among and any are at be been before between but by camera can cannot could
degrees did direction do does down during each ever far few first for forward from go gone had
has have how i in into is it its last least left many me more most moved much my near nearest
net no not now number object objects of off on one option or order other out over relative right
robot robots saw say see seen side so some start starting than that the their them there these
they thing things this those to total turn turned under unknown up view was we were what when
where which while who whole why will with would you your
"""
COMMON_WORDS = frozenset(_COMMON_TEXT.split())


@dataclass(frozen=True)
class MemoryConfig(Settings):
    """How much of the scene a prompt holds."""

    token_budget: int = setting(
        1200, 'tokens that the scene may take in a prompt', between=(LEAST_TOKENS, 100_000)
    )
    recent_share: float = setting(
        0.5, 'share of the budget that the newest deltas may take in full', between=(0, 1)
    )
    map_share: float = setting(
        0.5, 'share of the budget that the scene map may take beside deltas', between=(0, 1)
    )
    max_deltas: int = setting(
        5000, 'deltas kept in memory; the oldest are dropped', between=(1, 100_000)
    )


@dataclass(frozen=True)
class SceneText:
    """What the reasoner reads of the scene."""

    text: str  # one line per delta or run of deltas, oldest first
    full: tuple[int, ...] = ()  # positions of the deltas that stand in full
    merged: int = 0  # deltas that stand only merged with others
    omitted: int = 0  # deltas that are left out


def estimate_tokens(text: str) -> int:
    """Upper estimate of the tokens of a text, for byte-level BPE with single digits (Qwen2).

    English words are taken as pieces of six letters, which a small vocabulary may exceed. Of
    everything beyond ASCII each byte counts, and byte-level BPE has no more tokens than bytes.
    """
    return sum(map(_piece_tokens, _PIECES.findall(text))) + 1


def _piece_tokens(piece: str) -> int:
    if piece.isascii():
        return math.ceil(len(piece) / 6)
    return 1 if piece in _ONE_TOKEN else len(piece.encode(errors='surrogatepass'))


def question_terms(question: str, options: Sequence[str] = ()) -> frozenset[str]:
    """Words of a question that name its subject, in lower case."""
    words = _WORD.findall(' '.join([question, *options]).lower())
    return frozenset(word for word in words if len(word) > 2 and word not in COMMON_WORDS)


def mentions(delta: SemanticDelta, terms: frozenset[str]) -> int:
    """How many of the terms a delta mentions."""
    return len(terms & set(_WORD.findall(delta.change.lower())))


def scene_text(
    deltas: Sequence[SemanticDelta], terms: frozenset[str], config: MemoryConfig
) -> SceneText:
    """Write what the reasoner reads.

    Args:
        deltas: The deltas, oldest first.
        terms: The words of the question, from `question_terms`.
        config: The budget.
    """
    if not deltas:
        return SceneText('')
    lines = _Lines(deltas, config)
    if lines.all_fit():
        return SceneText('\n'.join(map(lines.text, range(len(deltas)))), tuple(range(len(deltas))))
    return lines.with_runs_merged(lines.choose(terms))


class _Lines:
    """The line of each delta in full, written when it is wanted: of a long scene few are."""

    def __init__(self, deltas: Sequence[SemanticDelta], config: MemoryConfig) -> None:
        self._deltas, self._config = deltas, config
        # A name is worth its tokens only where there are several cameras to tell apart.
        self._several = len({delta.camera for delta in deltas}) > 1
        self._costs: dict[int, int] = {}

    def text(self, index: int) -> str:
        delta = self._deltas[index]
        action = delta.told_action
        text = ' '.join(part for part in (f'{action}.' if action else '', delta.change) if part)
        # One delta may not take the whole prompt, whatever a model wrote.
        text = _cut(as_seen(text), self._config.token_budget * 2)
        camera = f', {as_seen(delta.camera)}' if self._several else ''
        return f'[{index + 1}] {self._seconds(index)} s{camera}: {text}'

    def cost(self, index: int) -> int:
        if index not in self._costs:
            self._costs[index] = estimate_tokens(self.text(index))
        return self._costs[index]

    def all_fit(self) -> bool:
        sums = accumulate(map(self.cost, range(len(self._deltas))))
        return all(cost <= self._config.token_budget for cost in sums)

    def choose(self, terms: frozenset[str]) -> set[int]:
        """Deltas that stand in full: the newest, then those about the question; by position."""
        budget = self._config.token_budget - _MERGED_TOKENS
        full: set[int] = set()
        spent = 0
        for index in reversed(range(len(self._deltas))):
            if full and spent + self.cost(index) > budget * self._config.recent_share:
                break
            full.add(index)
            spent += self.cost(index)
        scores = {i: mentions(d, terms) for i, d in enumerate(self._deltas) if i not in full}
        best = max(scores.values(), default=0)
        about = [i for i, score in scores.items() if score == best and best > 0]
        # The first sight and the latest ones say most; each may cut a run in two.
        for index in [*about[:1], *reversed(about[1:])]:
            cost = self.cost(index) + _MERGED_TOKENS
            if spent + cost <= budget:
                full.add(index)
                spent += cost
        return full

    def with_runs_merged(self, full: set[int]) -> SceneText:
        """The text in which some deltas stand in full, and each run of others as one line."""
        places = range(len(self._deltas))
        runs = [list(run) for _, run in groupby(places, lambda i: i if i in full else -1)]
        texts = [self.text(run[0]) if run[0] in full else self._merged(run) for run in runs]
        # What is kept fits; only an over-long newest delta can still exceed the budget.
        omitted = 0
        while len(texts) > 1 and sum(map(estimate_tokens, texts)) > self._config.token_budget:
            texts.pop(0)
            oldest = runs.pop(0)
            omitted += len(oldest)
            full -= set(oldest)
        if omitted:
            texts.insert(0, f'({omitted} earlier ones are left out)')
        merged = len(self._deltas) - omitted - len(full)
        return SceneText('\n'.join(texts), tuple(sorted(full)), merged, omitted)

    def _merged(self, places: Sequence[int]) -> str:
        """One line for a run: its composed motion, and its labels in order of first sight."""
        first, last = places[0], places[-1]
        run = self._deltas[first : last + 1]
        items = [item for d in run for item in d.items if item.status is not ItemStatus.LEFT]
        labels = list(dict.fromkeys(item.label for item in items))
        names = as_seen('; '.join(labels[:_MERGED_ITEMS]))
        more = f' and {len(labels) - _MERGED_ITEMS} more' if len(labels) > _MERGED_ITEMS else ''
        head = f'[{first + 1}-{last + 1}] {self._seconds(first)}-{self._seconds(last)} s:'
        sentence = f'Seen: {names}{more}.' if labels else ''
        # Cameras of one robot move together, each in its own direction: the motion of one cannot
        # be added to that of another.
        motions = []
        for camera in dict.fromkeys(d.camera for d in run):
            actions = [d.told_action for d in run if d.camera == camera]
            action = compose_actions([action for action in actions if action])
            if action:
                motions.append(f'{as_seen(camera)}: {action}.' if self._several else f'{action}.')
        return ' '.join(part for part in (head, *motions, sentence) if part)

    def _seconds(self, index: int) -> str:
        return f'{(self._deltas[index].stamp_ns - self._deltas[0].stamp_ns) / NS_PER_S:.1f}'


def _cut(text: str, limit: int) -> str:
    """The beginning of a text: `limit` characters, fewer of scripts that take more tokens."""
    if 2 * len(text.encode()) <= limit:
        return text
    budget = limit
    for position, char in enumerate(text):
        budget -= 1 if char.isascii() or char in _ONE_TOKEN else 2 * _piece_tokens(char)
        if budget < 0:
            return text[:position] + ' …'
    return text


_OVER = 100  # episodes whose late deltas are known as such


class LiveMemory:
    """The newest deltas, oldest first: a memory that belongs to the running episode. Thread-safe.

    An episode starts with its mark or with its first delta, whichever comes first, and forgets
    what was before. What then still comes from before it is left out and counted. A delta that
    names no episode is from before it where its stamp is.
    """

    def __init__(self, config: MemoryConfig) -> None:
        self.left_out = 0  # deltas that came after their episode had been forgotten
        self.resets = 0
        self._deltas: deque[SemanticDelta] = deque(maxlen=config.max_deltas)  # oldest first
        self._seen: dict[str, tuple[int, int]] = {}  # by camera: keyframe, image that shows it
        self._episode_id = ''
        self._start_ns = 0  # of the running episode; 0: not known
        self._stopped_id: str | None = None  # ended last; None: another one runs, or none did
        self._over: deque[str] = deque(maxlen=_OVER)  # forgotten episodes
        self._lock = threading.Lock()

    @property
    def episode_id(self) -> str:
        """The running episode; empty: none is."""
        with self._lock:
            return self._episode_id

    def start_episode(self, episode_id: str, stamp_ns: int) -> int:
        """Forget everything for an episode that starts; returns how many deltas that were.

        Args:
            episode_id: Its id.
            stamp_ns: When it started, in the clock of the image stamps [ns]; 0: not known.
        """
        with self._lock:
            forgotten = self._start(episode_id)
            self._start_ns = stamp_ns
            return forgotten

    def stop_episode(self) -> None:
        """End the episode; its deltas stay known."""
        with self._lock:
            if self._episode_id:
                self._stopped_id, self._episode_id = self._episode_id, ''

    def add(self, delta: SemanticDelta) -> bool:
        """Remember a delta; False: it is from before the running episode.

        A backward jump of the stamps forgets everything before it.
        """
        with self._lock:
            if delta.episode_id not in {self._episode_id, self._stopped_id}:
                if self._is_past(delta):
                    self.left_out += 1
                    return False
                if delta.episode_id:
                    self._start(delta.episode_id)
                    self._start_ns = delta.stamp_ns
            # Cameras are not in step, so only a camera's own stamps show a jump of time.
            own = next((d for d in reversed(self._deltas) if d.camera == delta.camera), None)
            if own is not None and delta.stamp_ns < own.stamp_ns:
                self._deltas.clear()
                self.resets += 1
            self._deltas.append(delta)
            return True

    def confirm(self, camera: str, keyframe_ns: int, image_ns: int) -> None:
        """Note that an image shows what a keyframe of its camera shows, by their stamps."""
        with self._lock:
            self._seen[camera] = keyframe_ns, image_ns

    def reset(self) -> int:
        """Forget everything; returns how many deltas that were."""
        with self._lock:
            return self._forget()

    def deltas(self) -> tuple[SemanticDelta, ...]:
        """Everything remembered, oldest first."""
        with self._lock:
            deltas = tuple(self._deltas)
            seen = {(camera, stamps[0]): stamps[1] for camera, stamps in self._seen.items()}
        if not seen:
            return deltas
        return tuple(
            replace(delta, seen_ns=seen[key])
            if (key := (delta.camera, delta.stamp_ns)) in seen
            else delta
            for delta in deltas
        )

    def _is_past(self, delta: SemanticDelta) -> bool:
        """Tell whether a delta that is not of the running episode is from before it."""
        if delta.episode_id:
            return delta.episode_id in self._over
        # A camera that hears no marks names no episode, and is not blind for it.
        return not 0 < self._start_ns <= delta.stamp_ns

    def _start(self, episode_id: str) -> int:
        if episode_id == self._episode_id:
            return 0
        self._over.extend(over for over in (self._episode_id, self._stopped_id) if over)
        self._episode_id, self._stopped_id = episode_id, None
        return self._forget()

    def _forget(self) -> int:
        self.resets += 1
        self._seen.clear()
        forgotten = len(self._deltas)
        self._deltas.clear()
        return forgotten
