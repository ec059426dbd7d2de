# SPDX-License-Identifier: Apache-2.0
"""Two recordings of one place: the second finds itself in the first, and both are one map."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.perception.classical import ClassicalPerceiver
from embodied_r_ros.core.perception.egomotion import find_features
from embodied_r_ros.core.perception.items import depth_of
from embodied_r_ros.core.perception.keyframe_way import KeyframeWay
from embodied_r_ros.core.perception.visit_joint import (
    join_visits,
    NotJoinedError,
    place_points,
    VisitKeyframe,
)
from embodied_r_ros.core.pipeline import perceive_keyframes
from embodied_r_ros.core.scene.camera import CameraView, START_FRAME
from embodied_r_ros.core.scene.changes import behind, seen_keyframe, SeenKeyframe
from embodied_r_ros.core.scene.map_scale import NOMINAL_M
from embodied_r_ros.core.types.deltas import Motion
from embodied_r_ros.core.types.geometry import Intrinsics, NS_PER_S
from embodied_r_ros.data.episodes.offline import keyframes_in

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from embodied_r_ros.core.perception.egomotion import Features
    from embodied_r_ros.core.perception.perceiver import PairPerceiver
    from embodied_r_ros.core.perception.visit_joint import Joint
    from embodied_r_ros.core.types.arrays import UInt8s
    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.keyframes import Keyframe
    from embodied_r_ros.data.episodes.offline import MapRecipe, Progress

_ASSUMED_FOV_RAD = 1.2  # of a camera that nothing is known of


@dataclass
class Visit:
    """A recording, perceived."""

    name: str
    keyframes: list[Keyframe] = field(default_factory=list)  # with their lens
    deltas: list[SemanticDelta] = field(default_factory=list)
    features: list[Features] = field(default_factory=list)

    @property
    def is_posed(self) -> bool:
        """Whether something told where its camera was."""
        return any(keyframe.pose for keyframe in self.keyframes)

    @cached_property
    def shots(self) -> dict[int, VisitKeyframe]:
        """Its keyframes with a pose, by number, with the points that they show."""
        shots = {
            number: VisitKeyframe(keyframe.pose, features, keyframe.intrinsics)
            for number, (keyframe, features) in enumerate(
                zip(self.keyframes, self.features, strict=True)
            )
            if keyframe.pose and keyframe.intrinsics
        }
        for number, shot in shots.items():
            depth = depth_of(self.keyframes[number].depth)
            if depth is not None:
                shot.lift(depth)
        place_points(list(shots.values()))
        return shots


def see_visit(path: Path, recipe: MapRecipe, progress: Progress) -> Visit:
    """Perceive a recording.

    Raises:
        SourceError: It cannot be read as a stream of images.
        BagError: It is damaged.
        InputError: There is no perceiver.
    """
    perceiver = recipe.make_perceiver()
    with keyframes_in(path, recipe, progress) as (keyframes, _):
        if not recipe.use_poses:
            keyframes = (replace(keyframe, pose=None) for keyframe in keyframes)
        return visit_of_keyframes(str(path), keyframes, perceiver)


def visit_of_keyframes(
    name: str, keyframes: Iterable[Keyframe], perceiver: PairPerceiver
) -> Visit:
    """Perceive the keyframes of a recording, and find what they can be recognised by."""
    visit, held = Visit(name), list(keyframes)
    visit.deltas = list(perceive_keyframes(held, perceiver))
    for keyframe in held:
        image = keyframe.image.decode()
        visit.features.append(find_features(image, keyframe.fixed_mask))
        visit.keyframes.append(_with_lens(keyframe, image, perceiver))
    return visit


def _with_lens(keyframe: Keyframe, image: UInt8s, perceiver: PairPerceiver) -> Keyframe:
    if isinstance(perceiver, ClassicalPerceiver):
        return perceiver.with_lens(keyframe)
    height, width = image.shape[:2]
    assumed = Intrinsics.from_fov(width, height, _ASSUMED_FOV_RAD)
    return replace(keyframe, intrinsics=keyframe.intrinsics or assumed)


@dataclass(frozen=True)
class JoinedVisits:
    """Two visits in the frame of the first."""

    before: list[SeenKeyframe]
    after: list[SeenKeyframe]
    is_metric: bool
    joint: Joint | None = None  # None: by the way of the camera alone

    @property
    def words(self) -> str:
        """How the visits were joined."""
        if self.joint is None:
            return 'joined by the ways of the cameras alone: lengths are in one unknown unit'
        return (
            f'joined by {len(self.joint.pairs)} keyframes, '
            f'which agree within {self.joint.spread_m:.2f} m'
        )


def join(before: Visit, after: Visit) -> JoinedVisits:
    """Find where the second visit is in the first.

    Raises:
        NotJoinedError: It could not be found.
        InputError: One has no keyframe.
    """
    for visit in (before, after):
        if not visit.keyframes:
            msg = f'{visit.name} has no image that can be looked at'
            raise InputError(msg)
    if not (before.is_posed and after.is_posed):
        return _joined_alone(before, _behind(before, after))
    joint = join_visits(list(before.shots.values()), list(after.shots.values()))
    seen = _seen(before, before.shots, None), _seen(_behind(before, after), after.shots, joint)
    return JoinedVisits(*seen, is_metric=True, joint=joint)


def _behind(before: Visit, after: Visit) -> Visit:
    """The second visit with ids and stamps behind those of the first."""
    step = before.keyframes[-1].id + 1
    late_ns = max(0, before.keyframes[-1].stamp_ns + NS_PER_S - after.keyframes[0].stamp_ns)
    keyframes = [
        replace(k, id=k.id + step, stamp_ns=k.stamp_ns + late_ns) for k in after.keyframes
    ]
    deltas = [behind(delta, step, late_ns) for delta in after.deltas]
    return replace(after, keyframes=keyframes, deltas=deltas)


def _seen(
    visit: Visit, shots: dict[int, VisitKeyframe], joint: Joint | None
) -> list[SeenKeyframe]:
    return [
        seen_keyframe(delta, shots[number], depth_of(keyframe.depth), joint)
        if number in shots
        else SeenKeyframe(delta, CameraView(None, keyframe.intrinsics))
        for number, (keyframe, delta) in enumerate(zip(visit.keyframes, visit.deltas, strict=True))
    ]


def _joined_alone(before: Visit, after: Visit) -> JoinedVisits:
    """Join visits of which not both have poses by the way of the camera: up to scale."""
    way = KeyframeWay()
    for visit in (before, after):
        for number, (keyframe, features) in enumerate(
            zip(visit.keyframes, visit.features, strict=True)
        ):
            assert keyframe.intrinsics
            motion = visit.deltas[number].motion if number else Motion()
            way.add(keyframe.id, features, keyframe.intrinsics, motion)
    poses = way.poses(START_FRAME, NOMINAL_M)
    seen = [
        [
            SeenKeyframe(delta, CameraView(poses.get(keyframe.id), keyframe.intrinsics))
            for keyframe, delta in zip(visit.keyframes, visit.deltas, strict=True)
        ]
        for visit in (before, after)
    ]
    if not all(any(one.view.pose for one in part) for part in seen):
        msg = 'no keyframe shows enough of what the first visit saw, of cameras without poses'
        raise NotJoinedError(msg)
    return JoinedVisits(seen[0], seen[1], is_metric=False)
