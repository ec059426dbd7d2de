# SPDX-License-Identifier: Apache-2.0
"""Keyframes: which images of a stream are worth looking at, and why.

`KeyframeSelector` decides image by image against the last keyframe and keeps nothing but that
keyframe's features, so that memory is constant however long the stream. `Keyframer` makes
the chosen images into `Keyframe` values.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from itertools import chain, pairwise
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.common.work import IMAGES, KEYFRAMES, METER
from embodied_r_ros.core.keyframes.alignment import no_offsets, View
from embodied_r_ros.core.keyframes.fixed_parts import FixedParts
from embodied_r_ros.core.keyframes.overlap import (
    BLANK_SHARE,
    depth_overlap,
    depth_view,
    DepthView,
    two_view,
    TwoView,
)
from embodied_r_ros.core.keyframes.still_scene import StillScene
from embodied_r_ros.core.keyframes.tracking import MotionTracker
from embodied_r_ros.core.keyframes.tracks import drift, stands
from embodied_r_ros.core.types.deltas import NO_MOTION
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.core.types.images import encode_image, pack_depth, shrink
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from embodied_r_ros.core.keyframes.alignment import Alignment
    from embodied_r_ros.core.keyframes.tracks import Drift
    from embodied_r_ros.core.types.arrays import Float32s
    from embodied_r_ros.core.types.deltas import Motion
    from embodied_r_ros.core.types.geometry import Intrinsics, Pose
    from embodied_r_ros.core.types.images import EncodedImage, StampedImage

# A clock that goes back by less is jitter between images; by more, it was set or a bag loops.
_CLOCK_JITTER_NS = 100_000_000
# A view that moved by less of its width since the last keyframe shows the same.
_SAME_SHIFT = 0.03
# The camera is followed in images whose view moved so far [work px], and at least so often.
_FOLLOWED_PX = 8.0
_FOLLOWED_NS = 200_000_000
_STEP_M = 0.03  # of the way by poses; shorter ones may be noise


@dataclass(frozen=True)
class KeyframeConfig(Settings):
    """When an image becomes a keyframe, and how it is kept."""

    max_overlap: float = setting(
        0.5, 'an image that shares less of its view with the last keyframe is one', between=(0, 1)
    )
    max_roll_rad: float = setting(
        math.pi / 4,
        'roll of the view about its axis that makes a keyframe [rad]; pi: never',
        between=(0.1, math.pi),
    )
    content_change: float = setting(
        0.003,
        'share of the view in which something must happen before a still camera; 1: never',
        between=(0.001, 1),
    )
    min_interval_s: float = setting(
        0.0, 'least time between keyframes [s]; 0: no limit', between=(0, 3600)
    )
    max_interval_s: float = setting(
        0.0, 'longest time without a keyframe [s]; 0: no limit', between=(0, 86400)
    )
    image_max_side_px: int = setting(
        1280,
        'keyframe images are shrunk to this width and height [px]; 0: never',
        between=(0, 8192),
    )
    jpeg_quality: int = setting(90, 'JPEG quality of keyframe images', between=(1, 100))
    follow_motion: bool = setting(
        True, 'follow the camera from image to image, for the motion between keyframes'
    )
    follow_with_pose: bool = setting(
        True, 'follow it through images with a pose too; false: poses alone give their motion'
    )

    mask: str = setting(
        '',
        'PNG of the size of the images, white where something is fixed to the camera; or empty',
        read_only=True,
    )
    find_fixed: bool = setting(
        True, 'find what is fixed to the camera, and leave it out', read_only=True
    )


@dataclass(frozen=True)
class Evaluation:
    """The comparison of one image, and whether it is a keyframe."""

    index: int  # 0-based position in its source
    stamp_ns: int
    is_keyframe: bool
    reference_index: int | None  # keyframe it was compared with; None: the first image
    overlap: float | None  # 0..1; None: this image or the keyframe has no features
    inliers: int  # matches that agree with the two-view geometry
    reason: KeyframeReason | None  # None: not a keyframe

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; the overlap is rounded to 0.0001."""
        overlap = None if self.overlap is None else round(self.overlap, 4)
        reason = self.reason.label if self.reason else None
        return {**asdict(self), 'overlap': overlap, 'reason': reason}


def reason_of_views(views: TwoView, config: KeyframeConfig) -> KeyframeReason | None:
    """Why two views are no longer alike; None: they are."""
    if views.alignment is None or views.overlap is None:
        return KeyframeReason.NEW_VIEW
    if views.overlap < config.max_overlap:
        return KeyframeReason.LOW_OVERLAP
    return KeyframeReason.ROLL if abs(views.roll_rad) > config.max_roll_rad else None


class KeyframeSelector:
    """Decides which images of a stream are keyframes. Not for use from several threads."""

    def __init__(self, config: KeyframeConfig | None = None) -> None:
        self.config = config or KeyframeConfig()
        names = ['images', 'blank_images', 'resets', *(reason.label for reason in KeyframeReason)]
        self.counts: Counter[str] = Counter(dict.fromkeys(names, 0))
        self.fixed_parts = FixedParts(self.config.mask, is_sought=self.config.find_fixed)
        self.reset()

    def reset(self) -> None:
        """Forget the stream: the next image is a first one. Counts and fixed parts stay."""
        self.fixed_parts.restart()
        self._reference: _Reference | None = None
        self._before: TwoView | None = None  # the image before, compared with the reference
        self._scene = StillScene()
        self._blank_images = 0  # in a row, up to now
        self._has_shown_something = False  # there was a keyframe with something to see
        self._last_stamp_ns: int | None = None
        # Whether the newest image shows what the last keyframe shows, from the same place.
        self.is_unchanged = False
        self.newest_view: View | None = None  # prepared for comparison; None: there is none yet
        # Where the newest image shows the keyframe it was compared with; None: unknown.
        self.newest_alignment: Alignment | None = None

    @property
    def reference_view(self) -> View | None:
        """The last keyframe, prepared for comparison; None: there is none yet."""
        return self._reference.view if self._reference else None

    def evaluate(self, image: StampedImage, *, is_last: bool = False) -> Evaluation:
        """Compare an image with the last keyframe and decide.

        A stamp that goes back by more than 0.1 s resets the selector first: the clock was set, or
        a recording starts again.

        Args:
            image: The image.
            is_last: Whether it is a keyframe in any case, unless it is blank or the only one.

        Raises:
            ImageError: The array is not a BGR image.
            ConfigError: The mask has another size than the image.
        """
        view = View(image.image)
        last_ns = image.stamp_ns if self._last_stamp_ns is None else self._last_stamp_ns
        if image.stamp_ns < last_ns - _CLOCK_JITTER_NS:
            self.counts['resets'] += 1
            self.reset()
        self._last_stamp_ns, self.newest_view = image.stamp_ns, view
        self.fixed_parts.update(view, image)
        for each in (view, self.reference_view):
            if each is not None:
                each.leave_out(self.fixed_parts.cells)
        depth = depth_view(image, self.fixed_parts.cells)
        self._blank_images = self._blank_images + 1 if self._is_blank(view) else 0
        shot = _Reference(image.index, image.stamp_ns, view, depth, self._blank_images > 0)
        views = self._with_depth(self._compare(view), depth)
        reason = self._decide(shot, views)
        if is_last and reason is None and not shot.is_blank:
            reason = KeyframeReason.LAST_IMAGE
        reference = self._reference
        self._update(shot, views, reason)
        return Evaluation(
            image.index,
            image.stamp_ns,
            reason is not None,
            reference.index if reference else None,
            views.overlap,
            views.inliers,
            reason,
        )

    def _is_blank(self, view: View) -> bool:
        # A run of blank images ends only with clear texture, or noise would end it at once.
        return view.textured_share < BLANK_SHARE * (2.5 if self._blank_images else 1.0)

    def _compare(self, view: View) -> TwoView:
        if self._blank_images:
            return TwoView(None)
        if self._reference is None:
            return TwoView(0.0)
        return two_view(self._reference.view, view, self._before)

    def _with_depth(self, views: TwoView, depth: DepthView | None) -> TwoView:
        """The comparison, with the overlap that depth and poses prove where both are known."""
        reference = self._reference.depth if self._reference else None
        if depth is None or reference is None or views.alignment is None:
            return views
        overlap = depth_overlap(reference, depth)
        return views if overlap is None else replace(views, overlap=overlap)

    def _decide(self, shot: _Reference, views: TwoView) -> KeyframeReason | None:
        config, reference = self.config, self._reference
        if reference is None:
            return KeyframeReason.FEATURELESS if shot.is_blank else KeyframeReason.FIRST
        since_s = (shot.stamp_ns - reference.stamp_ns) / NS_PER_S
        reason = self._reason(reference, shot, views)
        if reason is None and 0 < config.max_interval_s <= since_s:
            reason = KeyframeReason.MAX_INTERVAL
        return reason if since_s >= config.min_interval_s else None

    def _reason(
        self, reference: _Reference, shot: _Reference, views: TwoView
    ) -> KeyframeReason | None:
        if shot.is_blank:
            # One blank image between others is a glitch, not a view.
            is_run = self._blank_images > 1 and not reference.is_blank
            return KeyframeReason.FEATURELESS if is_run else None
        if not self._has_shown_something:
            return KeyframeReason.FIRST
        happened = self._has_happened(shot, views)
        reason = reason_of_views(views, self.config)
        return reason or (KeyframeReason.CONTENT_CHANGE if happened else None)

    def _has_happened(self, shot: _Reference, views: TwoView) -> bool:
        if views.alignment is None or views.shift > _SAME_SHIFT:
            self._scene.restart()
            return False
        return self._scene.update(shot.stamp_ns, shot.view, self.config.content_change)

    def _update(self, shot: _Reference, views: TwoView, reason: KeyframeReason | None) -> None:
        self.newest_alignment = views.alignment
        is_near = views.alignment is not None and views.shift < _SAME_SHIFT
        self.is_unchanged = reason is None and is_near and self._scene.is_same
        self.counts['images'] += 1
        self.counts['blank_images'] += shot.is_blank
        if views.alignment is not None:
            self._before = views
        if reason is None:
            return
        self.counts[reason.label] += 1
        self._has_shown_something |= not shot.is_blank
        self._reference = shot
        self._before = None
        by_change = reason is KeyframeReason.CONTENT_CHANGE
        self._scene.mark_keyframe(shot.stamp_ns, by_change=by_change)


@dataclass(frozen=True)
class _Reference:
    """An image, as far as the next ones are compared with it where it is a keyframe."""

    index: int
    stamp_ns: int
    view: View
    depth: DepthView | None
    is_blank: bool


class Keyframer:
    """Turns a camera stream into keyframes: selection, identity and compression in one.

    >>> from embodied_r_ros import Keyframer, open_source
    >>> with open_source('samples/indoor/episode_00000') as images:
    ...     first = next(Keyframer().stream(images))
    >>> first.reason.label
    'first'
    """

    def __init__(self, config: KeyframeConfig | None = None, camera: str = 'camera') -> None:
        self.selector = KeyframeSelector(config)
        self.tracker = MotionTracker()
        self.camera = camera
        self.reset()

    def reset(self, episode_id: str = '') -> None:
        """Start a new episode: ids count from 1, and the next image is a first one."""
        self.selector.reset()
        self._episode_id = episode_id
        self._next_id = 1
        self._dropped_images = 0
        # Where the image that was followed last shows the cells of the last keyframe.
        self._tracked_offsets: Float32s | None = None  # None: unknown
        self._tracked_ns = 0
        self._has_skipped = False
        self._walked: Pose | None = None  # where the way has been measured to
        self._way_m = math.nan  # of it, since the last keyframe

    def stream(
        self, images: Iterable[StampedImage], *, with_last: bool = False
    ) -> Iterator[Keyframe]:
        """Choose the keyframes of a stream of images.

        Args:
            images: Of one camera, in order.
            with_last: Whether the last one is a keyframe too: what is asked "now" is asked there.

        Raises:
            ImageError: One is not a BGR image.
        """
        for image, following in pairwise(chain(images, [None])):
            assert image is not None
            METER.add(IMAGES)
            _, keyframe = self.process(image, is_last=with_last and following is None)
            if keyframe:
                METER.add(KEYFRAMES)
                yield keyframe

    def process(
        self, image: StampedImage, dropped_images: int = 0, *, is_last: bool = False
    ) -> tuple[Evaluation, Keyframe | None]:
        """Evaluate an image, and make it a keyframe where it is one.

        Args:
            image: The image, with what is known of its camera.
            dropped_images: Images that were lost since the previous call.
            is_last: Whether it is made one in any case.

        Raises:
            ImageError: The array is not a BGR image.
        """
        self._dropped_images += dropped_images
        reference = self.selector.reference_view
        evaluation = self.selector.evaluate(image, is_last=is_last)
        motion = self._follow(image, evaluation, reference)
        self._walk(image.pose, is_end=evaluation.is_keyframe)
        if not evaluation.is_keyframe:
            return evaluation, None
        keyframe = self._make(image, evaluation, motion)
        self._next_id += 1
        self._dropped_images = 0
        self._way_m = 0.0
        return evaluation, keyframe

    def _walk(self, pose: Pose | None, *, is_end: bool) -> None:
        """Add the step to a pose to the way, which is unknown where one is."""
        before, self._walked = self._walked, pose
        if pose is None or before is None or pose.frame_id != before.frame_id:
            self._way_m = math.nan
            return
        step_m = math.dist(before.position, pose.position)
        if step_m >= _STEP_M or is_end:
            self._way_m += step_m
        else:
            self._walked = before

    def _follow(
        self, image: StampedImage, evaluation: Evaluation, reference: View | None
    ) -> Motion | None:
        """Follow the camera to an image; the motion since the last keyframe where it is one."""
        view, config = self.selector.newest_view, self.selector.config
        follows = config.follow_motion and (config.follow_with_pose or image.pose is None)
        if evaluation.reference_index is None or view is None or not follows:
            self.tracker.reset()
            self._tracked_offsets = None
        if view is None or not follows:
            return None
        alignment = self.selector.newest_alignment
        moved = drift(self._tracked_offsets, alignment) if alignment else None
        if not evaluation.is_keyframe and self._is_near(moved, image.stamp_ns):
            self._has_skipped = True
            return None
        self.tracker.update(image, view, moved if self._has_skipped else None)
        self._tracked_ns, self._has_skipped = image.stamp_ns, False
        if evaluation.is_keyframe:
            self._tracked_offsets = no_offsets(view)
            motion = self.tracker.mark_keyframe(image)
            return NO_MOTION if reference and stands(reference, view) else motion
        self._tracked_offsets = alignment.offsets if alignment else None
        return None

    def _is_near(self, moved: Drift | None, stamp_ns: int) -> bool:
        """Whether an image shows so little that is new that the camera is followed later."""
        since_ns = stamp_ns - self._tracked_ns
        return moved is not None and moved.shift_px < _FOLLOWED_PX and since_ns < _FOLLOWED_NS

    def _make(
        self, image: StampedImage, evaluation: Evaluation, motion: Motion | None
    ) -> Keyframe:
        assert evaluation.reason is not None
        config = self.selector.config
        is_first = evaluation.reference_index is None
        encoded, intrinsics = encode_keyframe(image, config)
        return Keyframe(
            id=self._next_id,
            stamp_ns=image.stamp_ns,
            image=encoded,
            reason=evaluation.reason,
            reference_id=self._next_id if is_first else self._next_id - 1,
            overlap=evaluation.overlap,
            inliers=evaluation.inliers,
            camera=self.camera,
            frame_id=image.frame_id,
            intrinsics=intrinsics,
            pose=image.pose,
            way_m=None if math.isnan(self._way_m) else self._way_m,
            motion=motion,
            depth=None if image.depth is None else pack_depth(image.depth),
            fixed_mask=self.selector.fixed_parts.packed(),
            episode_id=self._episode_id,
            dropped_images=self._dropped_images,
        )


def encode_keyframe(
    image: StampedImage, config: KeyframeConfig
) -> tuple[EncodedImage, Intrinsics | None]:
    """Compress an image as a keyframe, and give the intrinsics of what came out.

    An image that arrived compressed and needs no shrinking is passed on as it came, so that it is
    never compressed twice.
    """
    shrunk = shrink(image.image, config.image_max_side_px)
    height, width = shrunk.shape[:2]
    intrinsics = image.intrinsics.scaled(width, height) if image.intrinsics else None
    if image.encoded and shrunk is image.image:
        return image.encoded, intrinsics
    return encode_image(shrunk, config.jpeg_quality), intrinsics
