# SPDX-License-Identifier: Apache-2.0
"""All that a map keeps of one landmark, in constant memory however often it is seen."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
import math
from statistics import median
from typing import Any, TYPE_CHECKING

from embodied_r_ros.core.scene.sightings import fused_place, LabelParts, Sighting
from embodied_r_ros.core.types.geometry import as_position
from embodied_r_ros.core.types.landmarks import Landmark, LandmarkStatus
from embodied_r_ros.core.types.vocabulary import item_label
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from embodied_r_ros.core.scene.sightings import ItemSighting
    from embodied_r_ros.core.types.arrays import Float64s

_SIGHTINGS = 12  # that are kept for its place
_NEWEST = 4  # of these, so that what shifts slowly is followed
_SIZES = 9
_WORDS = 6  # different names, colours and shapes of which votes are kept
_KEYFRAMES = 3
_NEIGHBOURS = 24
_NEAR_M, _NEAR_SHARE = 0.25, 0.1  # from where it was seen: a part, and of how far it is
_NAME_SHARE, _COLOUR_SHARE = 0.25, 0.4  # of votes from which a name and a colour count
_USUAL_EXTENT_M = 0.4  # of a thing whose size is not known
_UNSURE_M2 = 2.0  # variance of a place that halves the confidence [m²]
_STRAY, _STRAYS = 5.0, 3  # squared deviation, and how often in a row: it stands elsewhere now
_STRAY_SHARE = 0.2  # of its size, by which middles of views from two sides differ
_ELSEWHERE = 0.5  # of a miss, from where it was never seen
_GONE_CHANCE = 0.03  # of so many misses in a row although it is there


@dataclass
class LandmarkRecord:
    """A landmark, with what its place, name, size and presence rest on."""

    id: int
    position: Float64s  # (3,) [m]
    covariance: Float64s  # (3, 3) [m²]
    sightings: list[Sighting] = field(default_factory=list)  # for its place, oldest first
    names: Counter[str] = field(default_factory=Counter)  # votes
    colours: Counter[str] = field(default_factory=Counter)
    shapes: Counter[str] = field(default_factory=Counter)
    sizes: list[list[float]] = field(default_factory=list)  # width and height [m], newest last
    most_sizes: list[list[float]] = field(default_factory=list)  # those that may be smaller
    first_seen_ns: int = 0
    last_seen_ns: int = 0
    observations: int = 0
    misses: float = 0  # keyframes that should have shown it and did not, since it was seen
    misses_before: float = 0  # those before it was seen last
    empty: int = 0  # of `misses`, those whose depth looks through its place
    missed_from: list[float] = field(default_factory=list)  # the newest camera of those [m]
    farthest_m: float = 0.0  # from which it was seen
    strays: int = 0  # newest sightings beside its place
    confidence_sum: float = 0.0
    status: LandmarkStatus = LandmarkStatus.PRESENT
    keyframes: list[tuple[float, int]] = field(default_factory=list)  # prominence and id
    apart_from: list[int] = field(default_factory=list)  # ids of things seen beside it
    pinned: bool = False  # it stays in the map, whatever is seen

    @property
    def label(self) -> LabelParts:
        """What most sightings call it."""
        votes = max(1, self.observations)
        name = _winner(self.names, votes * _NAME_SHARE)
        colour = _winner(self.colours, votes * _COLOUR_SHARE)
        return LabelParts(colour, '' if name else _winner(self.shapes, 0.0), name)

    @property
    def size(self) -> tuple[float, float] | None:
        """Width and height [m]; None: not known."""
        return self.measured_size or _median_size(self.most_sizes)

    @property
    def measured_size(self) -> tuple[float, float] | None:
        """Width and height by distances that were measured [m]; None: none were."""
        return _median_size(self.sizes)

    @property
    def extent_m(self) -> float:
        """Width or height, whichever is larger [m]."""
        return max(self.size) if self.size else _USUAL_EXTENT_M

    @property
    def unsure_m(self) -> float:
        """How far off its place may be, as a standard deviation [m]."""
        return math.sqrt(self.covariance[0, 0] + self.covariance[1, 1] + self.covariance[2, 2])

    @property
    def recall(self) -> float:
        """Share of the keyframes with it in view that showed it, before the newest misses."""
        count = self.observations
        return min(0.95, (count + 1) / (count + self.misses_before + 1.5))

    @property
    def confidence(self) -> float:
        """How sure it is that the thing is there as the map says, 0..1.

        It grows with the sightings and what perception thought of them, and falls with keyframes
        that should have shown it, and with how unsure its place is.
        """
        mean = self.confidence_sum / max(1, self.observations)
        surely = 1 - (1 - 0.6 * mean) ** self.observations
        chances = self.observations + self.misses_before + self.misses
        unsure_m2 = float(np.linalg.eigvalsh(self.covariance)[-1])
        return surely * (self.observations + 1) / (chances + 1) / (1 + unsure_m2 / _UNSURE_M2)

    def see(self, one: ItemSighting) -> None:
        """Take a sighting of it."""
        sighting, label, size = one.sighting, one.label, one.size
        self.observations += 1
        for key, word in zip(_VOTES, (label.name, label.colour, label.shape), strict=True):
            self._vote(key, [word] if word else [])
        if size:
            sizes = self.most_sizes if sighting.may_be_nearer else self.sizes
            sizes.append([round(float(side), 4) for side in size])
            del sizes[:-_SIZES]
        is_first = self.observations == 1  # whose stamp may be 0
        first_ns = sighting.stamp_ns if is_first else self.first_seen_ns
        self.first_seen_ns = min(first_ns, sighting.stamp_ns)
        self.last_seen_ns = max(self.last_seen_ns, sighting.stamp_ns)
        self.misses_before += self.misses
        self.misses = self.empty = 0
        self.missed_from = []
        self.status = LandmarkStatus.PRESENT
        self.confidence_sum += sighting.confidence
        self._note_stray(sighting)
        self._keep_sighting(sighting)
        self.place()
        self.farthest_m = max(self.farthest_m, math.dist(sighting.origin, self.position))
        self._keep_keyframe(sighting)

    def move(self, one: ItemSighting) -> None:
        """Take a sighting of it at another place."""
        self.sightings, self.keyframes, self.farthest_m = [], [], 0.0
        self.apart_from = []
        self.position = one.sighting.position
        self.see(one)

    def miss(self, origin: Float64s, *, looks_through: bool) -> None:
        """Note a keyframe that should show it and does not; it may be gone by that.

        Args:
            origin: Of the camera. From where it was never seen something may hide it: only looks
                from several places tell, and each of them less.
            looks_through: Depth proves that nothing is there.
        """
        if looks_through or self.is_known_from(origin):
            self.misses += 1
            self.empty += looks_through
        elif not self.missed_from or math.dist(origin, self.missed_from) >= _NEAR_M:
            self.misses += _ELSEWHERE
            self.missed_from = [float(value) for value in origin]
        least = 2 if self.empty == self.misses else 3
        if self.misses >= least and (1 - self.recall) ** self.misses < _GONE_CHANCE:
            self.status = LandmarkStatus.GONE

    def place(self) -> None:
        """Compute its place from its sightings."""
        fused = fused_place(self.sightings, self.position)
        self.position, self.covariance = fused.position, fused.covariance

    def absorb(self, other: LandmarkRecord) -> None:
        """Take over all of another record of the same thing."""
        self._take_history(other)
        both = sorted([*self.sightings, *other.sightings], key=lambda s: s.stamp_ns)
        self.sightings = []
        for sighting in both:
            self._keep_sighting(sighting)
        self.sizes = [*self.sizes, *other.sizes][-_SIZES:]
        self.most_sizes = [*self.most_sizes, *other.most_sizes][-_SIZES:]
        self.first_seen_ns = min(self.first_seen_ns, other.first_seen_ns)
        self.last_seen_ns = max(self.last_seen_ns, other.last_seen_ns)
        self.farthest_m = max(self.farthest_m, other.farthest_m)
        best = dict(sorted((key, score) for score, key in [*self.keyframes, *other.keyframes]))
        self.keyframes = _best([(score, key) for key, score in best.items()])
        self.apart_from = _union(self.apart_from, other.apart_from)
        self.place()

    def follow(self, older: LandmarkRecord) -> None:
        """Take over the history of a landmark that turns out to have moved here."""
        self.id, self.first_seen_ns = older.id, older.first_seen_ns
        self._take_history(older)

    def _take_history(self, other: LandmarkRecord) -> None:
        """Count the sightings of another record as its own, and their votes."""
        self.observations += other.observations
        self.pinned |= other.pinned
        self.misses_before += other.misses_before
        self.confidence_sum += other.confidence_sum
        for key in _VOTES:
            self._vote(key, getattr(other, key))

    def _vote(self, key: str, words: Iterable[str]) -> None:
        """Add votes; the words with the most votes are kept, and the newest one."""
        votes: Counter[str] = getattr(self, key)
        votes.update(words)
        while len(votes) > _WORDS:
            del votes[min(list(votes)[:-1], key=lambda word: votes[word])]

    def keep_apart(self, other_id: int) -> None:
        """Note that another landmark was seen beside it: they are two."""
        self.apart_from = _union(self.apart_from, [other_id])

    def is_known_from(self, origin: Float64s) -> bool:
        """Whether it was seen from about there: then nothing that stays hides it from there."""
        near_m = max(_NEAR_M, _NEAR_SHARE * float(np.linalg.norm(origin - self.position)))
        return any(math.dist(one.origin, origin) <= near_m for one in self.sightings)

    @property
    def name(self) -> str:
        """Its label in words."""
        return item_label(self.label.colour, self.label.shape, self.label.name).strip()

    def landmark(self, factor: float = 1.0) -> Landmark:
        """The landmark as others get it, with lengths times a factor."""
        wide, high = (factor * side for side in self.size or (math.nan, math.nan))
        return Landmark(
            self.name,
            as_position(factor * self.position),
            self.id,
            (wide, wide, high) if self.size else None,
            self.first_seen_ns,
            self.last_seen_ns,
            self.observations,
            self.confidence,
            self.status,
            tuple(number for _, number in self.keyframes),
            pinned=self.pinned,
        )

    def _note_stray(self, sighting: Sighting) -> None:
        """Forget where it was if the newest sightings say that it stands elsewhere."""
        if not self.sightings or not sighting.is_placed:
            return
        off = sighting.position - self.position
        spread = self.covariance + sighting.covariance(math.dist(sighting.origin, self.position))
        spread = spread + (_STRAY_SHARE * self.extent_m) ** 2 * np.eye(3)
        is_stray = float(off @ np.linalg.solve(spread, off)) > _STRAY
        self.strays = self.strays + 1 if is_stray else 0
        if self.strays >= _STRAYS:
            self.sightings = self.sightings[-(_STRAYS - 1) :]
            self.position, self.strays = sighting.position, 0

    def _keep_sighting(self, sighting: Sighting) -> None:
        self.sightings.append(sighting)
        if len(self.sightings) > _SIGHTINGS:
            older = self.sightings[:-_NEWEST]
            worst = max(range(len(older)), key=lambda i: (older[i].along_m, older[i].across_rad))
            del self.sightings[worst]

    def _keep_keyframe(self, sighting: Sighting) -> None:
        others = [entry for entry in self.keyframes if entry[1] != sighting.keyframe_id]
        self.keyframes = _best([*others, (sighting.prominence, sighting.keyframe_id)])

    def to_json(self) -> dict[str, Any]:
        """All of it, as plain JSON values."""
        return {
            **{key: getattr(self, key) for key in _PLAIN},
            'position': self.position.tolist(),
            'covariance': self.covariance.tolist(),
            'sightings': [sighting.to_json() for sighting in self.sightings],
            **{key: list(getattr(self, key).items()) for key in _VOTES},
            'status': self.status.value,
            'keyframes': [list(entry) for entry in self.keyframes],
            'pinned': self.pinned,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> LandmarkRecord:
        """Read what `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: A field is missing or has the wrong type.
        """
        votes: dict[str, Any] = {key: Counter(dict(value[key])) for key in _VOTES}
        return cls(
            **{key: value[key] for key in _PLAIN},
            position=np.array(value['position'], np.float64).reshape(3),
            covariance=np.array(value['covariance'], np.float64).reshape(3, 3),
            sightings=[Sighting.from_json(one) for one in value['sightings']],
            **votes,
            status=LandmarkStatus(value['status']),
            keyframes=[(float(score), int(number)) for score, number in value['keyframes']],
            pinned=bool(value.get('pinned')),
        )


_PLAIN = (
    'id', 'sizes', 'most_sizes', 'first_seen_ns', 'last_seen_ns', 'observations', 'misses',
    'misses_before', 'empty', 'missed_from', 'farthest_m', 'strays', 'confidence_sum',
    'apart_from',
)  # fmt: skip
_VOTES = ('names', 'colours', 'shapes')


def _median_size(sizes: list[list[float]]) -> tuple[float, float] | None:
    if not sizes:
        return None
    width, height = (median(side) for side in zip(*sizes, strict=True))
    return width, height


def _winner(votes: Counter[str], least: float) -> str:
    word, count = votes.most_common(1)[0] if votes else ('', 0)
    return word if votes and sum(votes.values()) >= least and count > 0 else ''


def _best(entries: list[tuple[float, int]]) -> list[tuple[float, int]]:
    return sorted(entries, key=lambda entry: (-entry[0], entry[1]))[:_KEYFRAMES]


def _union(one: list[int], other: list[int]) -> list[int]:
    return list(dict.fromkeys([*one, *other]))[-_NEIGHBOURS:]
