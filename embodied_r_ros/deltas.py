# SPDX-License-Identifier: Apache-2.0
"""Semantic deltas: what each keyframe adds to what was known.

These are the values that perception produces, memory keeps and the reasoner reads. Their text
(`action`, `change`) is written by `wording` or by a vision-language model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

NAN = math.nan
CANNOT_TELL = 'cannot tell'  # the action of a motion that is not known


class Rung(Enum):
    """Rung of the model ladder that produced a result; lower is better."""

    UNSET = 0
    PRIMARY = 1
    SECONDARY = 2
    LOCAL = 3
    REFUSE = 4


@dataclass(frozen=True)
class ModelInfo:
    """Which model spoke."""

    name: str = ''  # as its server knows it, or 'classical'; empty: none was asked
    digest: str = ''  # 'sha256:<hex>'; empty: unknown
    adapter: str = ''  # LoRA adapter; empty: none
    rung: Rung = Rung.UNSET
    prompt_version: str = ''  # e.g. 'reason-1'; empty: no prompt


class DeltaKind(Enum):
    """What kind of statement a delta is."""

    FIRST = 0  # a description: nothing to compare with
    CHANGE = 1  # the camera moved or the scene changed
    NO_CHANGE = 2  # neither did
    FAILED = 3  # the perceiver could not tell


class MotionSource(Enum):
    """What a motion was computed from."""

    UNKNOWN = 0  # cannot tell
    ODOMETRY = 1  # two odometry poses; metric
    TWO_VIEW = 2  # two-view geometry; direction only
    MODEL = 3  # words of a vision-language model; no numbers


@dataclass(frozen=True)
class Motion:
    """Motion of the camera between two keyframes, in the earlier one's body axes (REP 103)."""

    source: MotionSource = MotionSource.UNKNOWN
    yaw_rad: float = NAN  # positive turns left
    pitch_rad: float = NAN  # positive tilts the view down
    roll_rad: float = NAN  # positive rolls clockwise, seen from behind the camera
    translation: tuple[float, float, float] = (NAN, NAN, NAN)  # [m], or a direction
    is_metric: bool = False  # False: only the direction of `translation` means something
    confidence: float = NAN  # share of the evidence that agrees, 0..1


class ItemStatus(Enum):
    """What happened to an item between two keyframes."""

    VISIBLE = 0
    APPEARED = 1
    LEFT = 2  # seen before, not now; its direction is the last one known
    MOVED = 3  # moved by itself


@dataclass(frozen=True)
class Item:
    """An object that a delta speaks of, as seen from the newer keyframe. NaN: unknown."""

    label: str  # what the perceiver can know, e.g. 'red tall object'
    status: ItemStatus = ItemStatus.VISIBLE
    bearing_rad: float = NAN  # positive left
    elevation_rad: float = NAN  # positive up
    size_rad: float = NAN  # the larger angle it covers
    distance_m: float = NAN
    confidence: float = NAN  # 0..1

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; unknown numbers are left out, known ones rounded to 0.0001."""
        numbers = {
            name: round(value, 4)
            for name in ('bearing_rad', 'elevation_rad', 'size_rad', 'distance_m', 'confidence')
            if math.isfinite(value := getattr(self, name))
        }
        return {'label': self.label, 'status': self.status.name, **numbers}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Item:
        """Read what `to_json` wrote.

        Raises:
            InputError: A field is missing or has the wrong type.
        """
        try:
            fields = {**value, 'status': ItemStatus[value.get('status', 'VISIBLE')]}
            return cls(**fields)
        except (KeyError, TypeError) as error:
            msg = f'item {value!r} is not readable ({error}): expected label, status and numbers'
            raise InputError(msg) from None


@dataclass(frozen=True)
class SemanticDelta:
    """What one keyframe adds. Two equal ids: the first keyframe."""

    stamp_ns: int  # of the newer keyframe's image
    kind: DeltaKind
    to_id: int = 0
    from_id: int = 0
    from_stamp_ns: int = 0
    action: str = ''  # motion in words
    change: str = ''  # what is new, gone or moved, in words
    motion: Motion = field(default_factory=Motion)
    items: tuple[Item, ...] = ()
    camera: str = 'camera'
    frame_id: str = 'camera_optical_frame'
    episode_id: str = ''
    skipped: int = 0  # keyframes coalesced away in between
    model: ModelInfo = field(default_factory=ModelInfo)
    latency_ns: int = 0
    error: str = ''  # why it failed

    def to_row(self, *, with_camera: bool = False) -> dict[str, Any]:
        """The part that the reasoner reads, as plain JSON values (the `deltas` of a row).

        A failed delta keeps its place, with a motion that cannot be told and nothing seen. The
        camera is told where there are several to tell apart (`row_deltas`).
        """
        failed = self.kind is DeltaKind.FAILED
        return {
            'stamp_ns': self.stamp_ns,
            **({'camera': self.camera} if with_camera else {}),
            'action': CANNOT_TELL if failed else self.action,
            'change': self.change,
            'items': [item.to_json() for item in self.items],
        }

    @classmethod
    def from_row(cls, value: dict[str, Any]) -> SemanticDelta:
        """Read what `to_row` wrote; a delta without action is a first one.

        Raises:
            InputError: A field is missing or has the wrong type.
        """
        try:
            items = tuple(Item.from_json(item) for item in value['items'])
            action, change = str(value['action']), str(value['change'])
            kind = DeltaKind.CHANGE if action else DeltaKind.FIRST
            camera = str(value.get('camera', 'camera'))
            stamp_ns = int(value['stamp_ns'])
            return cls(stamp_ns, kind, action=action, change=change, items=items, camera=camera)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            msg = f'delta {value!r} is unreadable: {error} (wants stamp_ns, action, change, items)'
            raise InputError(msg) from None


def row_deltas(deltas: Sequence[SemanticDelta]) -> tuple[dict[str, Any], ...]:
    """The `deltas` of a row. Cameras are named where there are several, as in a prompt."""
    several = len({delta.camera for delta in deltas}) > 1
    return tuple(delta.to_row(with_camera=several) for delta in deltas)
