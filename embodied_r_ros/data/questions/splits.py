# SPDX-License-Identifier: Apache-2.0
"""Which split a scene belongs to, and what must not be in two of them.

Scenes are split by name, so that a split does not depend on what else is in the data. The same
recording under two names would then leak from training into the test; what comes second is left
out, and counted.
"""

from __future__ import annotations

from collections import Counter
import hashlib
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.core.types.deltas import row_deltas

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from embodied_r_ros.core.types.geometry import Position
    from embodied_r_ros.data.episodes.episode import Episode
    from embodied_r_ros.data.questions.derive import QuestionsConfig
    from embodied_r_ros.data.questions.row import Row

# A piece of an episode is so many deltas in a row, in their words.
_PIECE_DELTAS = 3
# Two episodes that have so many pieces, and at least this share of them, in common are one scene.
_MIN_PIECES = 4
_MIN_SHARE = 0.5
# Two demonstrations of a task whose keypoints lie so near each other are of one layout [m].
_SAME_LAYOUT_M = 0.01


def split_of(scene_id: str, config: QuestionsConfig) -> str:
    """Split that a scene belongs to: seeded, and the same whatever else is in the data."""
    digest = hashlib.sha256(f'{config.seed}:{scene_id}'.encode()).digest()
    place = int.from_bytes(digest[:8], 'big') / 2**64
    if place < config.test_share:
        return 'test'
    return 'validation' if place < config.test_share + config.validation_share else 'train'


class SplitGuard:
    """Remembers what is in each split, a few bytes for each delta and each row."""

    def __init__(self) -> None:
        self._bags: dict[str, str] = {}  # name by digest
        self._scenes: dict[str, str] = {}  # split by scene
        self._pieces: dict[bytes, str] = {}  # scene by piece
        self._rows: dict[bytes, str] = {}  # split by question and deltas
        # Scene, split and keypoints by task and their number.
        self._layouts: dict[tuple[str, int], list[tuple[str, str, list[Position]]]] = {}

    def copy_of(self, digest: str, name: str) -> str:
        """Name of an earlier bag with the same content; empty: there was none."""
        before = self._bags.setdefault(digest, name)
        return '' if before == name else before

    def other_split_of(self, scene_id: str, split: str) -> str:
        """Split that a scene is in already; empty: no other one."""
        before = self._scenes.setdefault(scene_id, split)
        return '' if before == split else before

    def twin_of(self, scene_id: str, split: str, pieces: Sequence[bytes]) -> str:
        """Scene of another split that much of an episode shows too; empty: there is none.

        Args:
            scene_id: Of the episode.
            split: Its split.
            pieces: What it shows (`pieces_of`).
        """
        if self.other_split_of(scene_id, split):
            return scene_id
        owners = Counter(self._pieces[piece] for piece in pieces if piece in self._pieces)
        for scene, count in owners.most_common():
            if count < max(_MIN_PIECES, _MIN_SHARE * len(pieces)):
                break
            if self._scenes[scene] != split:
                return scene
        for piece in pieces:
            self._pieces.setdefault(piece, scene_id)
        return ''

    def layout_twin_of(
        self, task: str, places: Sequence[Position], scene_id: str, split: str
    ) -> str:
        """Scene of another split where the same task has the same keypoints; empty: none.

        Args:
            task: Of the demonstration.
            places: Its keypoints, where it comes to [m].
            scene_id: Of the demonstration.
            split: Its split.
        """
        layouts = self._layouts.setdefault((task, len(places)), [])
        for scene, other_split, others in layouts:
            pairs = zip(places, others, strict=True)
            if other_split != split and all(math.dist(*pair) < _SAME_LAYOUT_M for pair in pairs):
                return scene
        layouts.append((scene_id, split, list(places)))
        return ''

    def clash_of(self, row: Row) -> str:
        """Split that already asks the same of the same deltas; empty: no other one does."""
        before = self._rows.setdefault(_question_digest(row), row.split)
        return '' if before == row.split else before


def pieces_of(episode: Episode) -> tuple[bytes, ...]:
    """Digests of what an episode shows; an empty corridor looks like any other and has none."""
    return tuple(dict.fromkeys(_pieces(row_deltas(episode.deltas))))


def _question_digest(row: Row) -> bytes:
    """Digest of a row's question, and of the deltas and landmarks that it is about."""
    words = [_words(delta) for delta in row.deltas]
    words += [f'{thing["label"]}|{thing["position"]}' for thing in row.landmarks]
    parts = [row.question, *sorted(row.options), *(str(look['text']) for look in row.focus)]
    return _digest([*parts, *words])


def _pieces(deltas: Sequence[dict[str, Any]]) -> Iterable[bytes]:
    for end in range(_PIECE_DELTAS, len(deltas) + 1):
        piece = deltas[end - _PIECE_DELTAS : end]
        if any(delta['items'] for delta in piece):
            yield _digest([_words(delta) for delta in piece])


def _words(delta: dict[str, Any]) -> str:
    """What a prompt holds of a delta, but for its time."""
    return f'{delta.get("camera", "")}|{delta["action"]}|{delta["change"]}'


def _digest(texts: Sequence[str]) -> bytes:
    return hashlib.blake2b('\n'.join(texts).encode(errors='surrogatepass'), digest_size=8).digest()
