# SPDX-License-Identifier: Apache-2.0
"""Which images become keyframes, and why; each defect of the published extractor is a test."""

from __future__ import annotations

from dataclasses import replace
import math
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.core.keyframes.selector import KeyframeConfig, Keyframer, KeyframeSelector
from embodied_r_ros.core.types.geometry import Intrinsics, Pose
from embodied_r_ros.core.types.images import encode_image, EncodedImage
from embodied_r_ros.core.types.keyframes import KeyframeReason
import numpy as np
import pytest

from test.pictures import BLANK, brighter, look, noisy, stream, two_depths, with_thing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from embodied_r_ros.core.keyframes.selector import Evaluation
    from embodied_r_ros.core.types.images import StampedImage
    from numpy.typing import NDArray

SECOND_NS = 1_000_000_000


def evaluate_all(images: Iterable[StampedImage], **settings: Any) -> list[Evaluation]:
    selector = KeyframeSelector(KeyframeConfig(**settings))
    return [selector.evaluate(image) for image in images]


def keyframes_of(
    images: Iterable[NDArray[np.uint8]], rate_hz: float = 10.0, **settings: Any
) -> list[tuple[int, str]]:
    """Index and reason of the keyframes."""
    return [
        (evaluation.index, evaluation.reason.label)
        for evaluation in evaluate_all(stream(images, rate_hz), **settings)
        if evaluation.reason
    ]


# Defect 1: the overlap is blind to a view that widens.


def test_backing_away_makes_as_many_keyframes_as_moving_ahead() -> None:
    zooms = [2.0 * 0.94**step for step in range(30)]
    away = keyframes_of(look(zoom=zoom) for zoom in zooms)
    ahead = keyframes_of(look(zoom=zoom) for zoom in reversed(zooms))
    assert [reason for _, reason in away] == ['first'] + ['low_overlap'] * 4
    assert [reason for _, reason in ahead] == ['first'] + ['low_overlap'] * 4


def test_ascending_over_ground_makes_keyframes() -> None:
    # Seen from above, height only changes the scale.
    heights = np.linspace(1.0, 4.0, 40)
    keyframes = keyframes_of(look(zoom=2.0 / height) for height in heights)
    assert [reason for _, reason in keyframes][1:] == ['low_overlap'] * 3


# Defect 2: blind to roll, and to what happens before a still camera.


def test_rolling_by_more_than_45_degrees_makes_a_keyframe() -> None:
    keyframes = keyframes_of(look(roll_deg=4 * step) for step in range(30))
    assert keyframes == [(0, 'first'), (12, 'roll'), (24, 'roll')]


@pytest.mark.parametrize('angle_deg', [90, 180])
def test_a_view_upside_down_is_a_keyframe(angle_deg: float) -> None:
    assert keyframes_of([look(), look(roll_deg=angle_deg)]) == [(0, 'first'), (1, 'roll')]


@pytest.mark.parametrize('rate_hz', [0.5, 1.0, 10.0, 30.0])
@pytest.mark.parametrize('width', [120, 200])
def test_sudden_change_under_a_still_camera_is_a_keyframe(rate_hz: float, width: int) -> None:
    still, changed = look(), with_thing(look(), 160, width)
    count = max(4, round(2 * rate_hz))
    keyframes = keyframes_of([still] * count + [changed] * count, rate_hz)
    assert [reason for _, reason in keyframes] == ['first', 'content_change']
    assert keyframes[1][0] - count <= max(1, rate_hz)  # a second, or the next image


def test_a_change_that_stays_makes_one_keyframe() -> None:
    changed = with_thing(look(), 160, 200)
    assert len(keyframes_of([look()] * 20 + [noisy(changed, 4, seed) for seed in range(40)])) == 2


def test_restless_motion_does_not_flood() -> None:
    images = [with_thing(look(), 90 + 140 * (step % 2), 80) for step in range(100)]
    keyframes = keyframes_of(images, rate_hz=10.0)
    assert 2 <= len(keyframes) <= 7  # at most one in two seconds, and one at once


@pytest.mark.parametrize('strength', [0.2, 0.5])
def test_flicker_and_exposure_are_no_change(strength: float) -> None:
    factors = [1 + strength * math.sin(2.1 * step) for step in range(40)]
    assert keyframes_of(brighter(look(), 0.6 * factor) for factor in factors) == [(0, 'first')]


def test_a_light_that_is_switched_off_is_no_change() -> None:
    assert keyframes_of([look()] * 5 + [brighter(look(), 0.4)] * 5) == [(0, 'first')]


def test_overexposure_is_no_change() -> None:
    assert keyframes_of([look()] * 5 + [brighter(look(), 2.2)] * 5) == [(0, 'first')]


def test_what_came_and_went_at_once_is_no_change() -> None:
    still, changed = look(), with_thing(look(), 160, 60)
    assert keyframes_of([still] * 20 + [changed] * 3 + [still] * 20) == [(0, 'first')]


# Defect 3: homographies are not validated.


def test_unrelated_images_are_new_views() -> None:
    keyframes = evaluate_all(stream(look(seed=seed) for seed in range(6)))
    assert [keyframe.reason for keyframe in keyframes[1:]] == [KeyframeReason.NEW_VIEW] * 5
    assert [(keyframe.overlap, keyframe.inliers) for keyframe in keyframes[1:]] == [(0.0, 0)] * 5


def test_unrelated_noise_is_a_new_view() -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, 240, 320, 3), np.uint8)
    assert [reason for _, reason in keyframes_of(images)] == ['first'] + ['new_view'] * 3


# Defect 4: one plane does not explain a room.


def test_a_near_half_that_was_replaced_makes_a_keyframe() -> None:
    # While the far half stays in view, the near one leaves it altogether after 40 px.
    keyframes = keyframes_of(two_depths(shift) for shift in range(0, 60, 2))
    assert keyframes[1][1] == 'low_overlap'
    assert 16 <= keyframes[1][0] <= 26


# Defect 5: blank images flood the output.


@pytest.mark.parametrize('level', [0, 12, 128, 255])
def test_a_blank_stream_is_one_keyframe_and_counted(level: int) -> None:
    selector = KeyframeSelector()
    for image in stream([BLANK + np.uint8(level)] * 40):
        selector.evaluate(image)
    assert selector.counts['featureless'] == 1
    assert selector.counts['blank_images'] == 40


@pytest.mark.parametrize('sigma', [2, 5, 10])
def test_noise_in_the_dark_is_blank(sigma: float) -> None:
    images = [noisy(BLANK + np.uint8(15), sigma, seed) for seed in range(20)]
    assert keyframes_of(images) == [(0, 'featureless')]


def test_lights_off_and_on_again_are_one_keyframe_each() -> None:
    keyframes = keyframes_of([look()] * 5 + [BLANK] * 10 + [look()] * 10)
    assert keyframes == [(0, 'first'), (6, 'featureless'), (15, 'new_view')]


def test_single_blank_images_are_glitches() -> None:
    assert keyframes_of([look(), look(), BLANK, look(), look(), BLANK, look()]) == [(0, 'first')]


def test_faint_structure_does_not_end_a_blank_run() -> None:
    faint = BLANK.copy()
    faint[100:116, 100:116] = look()[100:116, 100:116]  # texture in some 4 % of the cells
    assert keyframes_of([look()] * 3 + [BLANK, BLANK, faint] * 5)[1:] == [(4, 'featureless')]


def test_a_stream_that_starts_blank_has_a_first_usable_image() -> None:
    keyframes = evaluate_all(stream([BLANK] * 5 + [look()] * 5))
    found = [(k.index, k.reason, k.reference_index) for k in keyframes if k.is_keyframe]
    assert found == [(0, KeyframeReason.FEATURELESS, None), (5, KeyframeReason.FIRST, 0)]


def test_overlap_is_none_only_where_an_image_is_blank() -> None:
    images = stream([look(), look(650), BLANK, BLANK, look(), look(seed=1)])
    overlaps = [evaluation.overlap for evaluation in evaluate_all(images)]
    assert [overlap is None for overlap in overlaps] == [False, False, True, True, True, False]
    assert overlaps[0] == 0.0


# Defects 6 and 8 (uneven fallback, overflow by index) are in test_keyframe_budget.py.
# Defects 9 and 10 (frame rates, frame counts) are in test_sources.py.


# Defect 7: the last image is a keyframe whatever it shows.


def test_identical_images_give_one_keyframe() -> None:
    assert keyframes_of([look()] * 40) == [(0, 'first')]


# Defect 9, as far as it is selection: any rate will do.


@pytest.mark.parametrize('rate_hz', [0.1, 0.5, 29.97, 1000.0])
def test_selection_does_not_depend_on_the_rate(rate_hz: float) -> None:
    images = [look(400 + 12 * step) for step in range(40)]
    assert keyframes_of(images, rate_hz) == keyframes_of(images, 10.0)


# Defect 11: stamps are thrown away.


def test_stamps_are_kept_to_the_nanosecond() -> None:
    start_ns = 1_700_000_000_005_000_001
    images = stream([look(), look(seed=1)], rate_hz=3.0, start_ns=start_ns)
    extractor = Keyframer()
    keyframes = [keyframe for image in images if (keyframe := extractor.process(image)[1])]
    assert [keyframe.stamp_ns for keyframe in keyframes] == [start_ns, start_ns + 333_333_333]


# Defect 12: three lossy compressions.


def test_a_compressed_image_is_passed_on_as_it_came() -> None:
    encoded = encode_image(look(), quality=50)
    [image] = stream([encoded.decode()])
    keyframe = Keyframer().process(replace(image, encoded=encoded))[1]
    assert keyframe
    assert keyframe.image is encoded


def test_a_raw_image_is_compressed_once() -> None:
    [image] = stream([look()])
    keyframe = Keyframer(KeyframeConfig(jpeg_quality=90)).process(image)[1]
    assert keyframe
    assert keyframe.image == encode_image(look(), quality=90)


# Defect 13: results are cached under the name of a file. Nothing is cached here.


def test_two_selectors_share_nothing() -> None:
    images = stream([look(), look(seed=1)])
    assert evaluate_all(images, max_overlap=0.5) == evaluate_all(images, max_overlap=0.5)
    assert evaluate_all(images, max_overlap=0.0)[1].reason is KeyframeReason.NEW_VIEW


# Defect 14: degenerate warps.


def test_degenerate_views_are_judged_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    line = BLANK.copy()
    line[100:104] = 255
    corner = BLANK.copy()
    corner[:60, :80] = look()[:60, :80]
    stretched = np.asarray(cv2.resize(look()[100:110], (320, 240)), np.uint8)
    shrunk = BLANK + np.uint8(90)
    shrunk[100:124, 140:172] = cv2.resize(look(), (32, 24))
    images = [look(), line, corner, stretched, shrunk, look(), line, line, shrunk, corner]
    for evaluation in evaluate_all(stream(images)):
        assert evaluation.overlap is None or 0.0 <= evaluation.overlap <= 1.0
    assert not recwarn.list


# What a live stream needs.


def test_every_image_is_compared_with_the_last_keyframe() -> None:
    evaluations = evaluate_all(stream(look(400 + 12 * step) for step in range(40)))
    reference: int | None = None
    for evaluation in evaluations:
        assert evaluation.reference_index == reference
        reference = evaluation.index if evaluation.is_keyframe else reference


def test_a_clock_that_goes_back_starts_anew() -> None:
    selector = KeyframeSelector()
    images = stream([look()] * 5, start_ns=100 * SECOND_NS) + stream([look()] * 5)
    reasons = [selector.evaluate(image).reason for image in images]
    assert [index for index, reason in enumerate(reasons) if reason] == [0, 5]
    assert reasons[5] is KeyframeReason.FIRST
    assert selector.counts['resets'] == 1


def test_jitter_of_stamps_is_no_reset() -> None:
    first, second, third = stream([look()] * 3, rate_hz=30.0)
    selector = KeyframeSelector()
    assert [selector.evaluate(i).is_keyframe for i in (first, third, second)] == [True] + [
        False
    ] * 2


def test_intervals_are_kept() -> None:
    images = [look(seed=index % 2) for index in range(20)]
    assert [i for i, _ in keyframes_of(images, 10.0, min_interval_s=0.45)] == [0, 5, 10, 15]
    kept = keyframes_of([look()] * 20, 10.0, max_interval_s=0.7)
    assert kept == [(0, 'first'), (7, 'max_interval'), (14, 'max_interval')]


def test_first_image_with_something_to_see_stays_the_first_when_held_back() -> None:
    images = [BLANK] * 2 + [look()] * 10
    assert keyframes_of(images, 10.0, min_interval_s=0.5) == [(0, 'featureless'), (5, 'first')]


def test_settings_decide() -> None:
    images = [look(400 + 12 * step) for step in range(30)]
    assert len(keyframes_of(images, max_overlap=0.8)) > len(keyframes_of(images, max_overlap=0.3))
    rolled = [look(), look(roll_deg=30)]
    assert keyframes_of(rolled, max_roll_rad=math.radians(20))[1] == (1, 'roll')
    with pytest.raises(ConfigError, match=r'max_overlap is 1.5: expected 0 to 1'):
        KeyframeConfig(max_overlap=1.5)


def test_memory_does_not_grow_with_the_stream() -> None:
    selector = KeyframeSelector()
    images = stream([look(640 + step % 3) for step in range(200)], rate_hz=30.0)
    for image in images:
        selector.evaluate(image)
    assert len(selector._scene._past) <= 8


# What a keyframe is made of.


def test_keyframes_count_from_one_in_each_episode() -> None:
    extractor = Keyframer(camera='front')
    images = stream([look(), look(), look(seed=1)])
    made = [extractor.process(image, dropped_images=2)[1] for image in images]
    extractor.reset('episode 2')
    made += [extractor.process(image)[1] for image in images]
    assert [(k.id, k.reference_id, k.episode_id, k.dropped_images) for k in made if k] == [
        (1, 1, '', 2),
        (2, 1, '', 4),
        (1, 1, 'episode 2', 0),
        (2, 1, 'episode 2', 0),
    ]
    assert {keyframe.camera for keyframe in made if keyframe} == {'front'}


def test_a_keyframe_carries_what_is_known_of_its_camera() -> None:
    [image] = stream([look()])
    pose = Pose((1.0, 2.0, 3.0), (0.0, 0.0, 0.0, 1.0), 'odom')
    camera = Intrinsics(320, 240, 300.0, 300.0, 159.5, 119.5)
    known = replace(image, frame_id='eye', pose=pose, intrinsics=camera)
    keyframe = Keyframer(KeyframeConfig(image_max_side_px=160)).process(known)[1]
    assert keyframe
    assert keyframe.image.decode().shape == (120, 160, 3)
    assert keyframe.intrinsics == Intrinsics(160, 120, 150.0, 150.0, 79.5, 59.5)
    assert (keyframe.frame_id, keyframe.pose) == ('eye', pose)
    assert isinstance(keyframe.image, EncodedImage)


def test_a_keyframe_tells_how_long_the_way_to_it_was() -> None:
    extractor = Keyframer(KeyframeConfig(follow_motion=False))
    there_and_back = [0.0, 0.25, 0.5, 0.25, 0.0]
    standing = [0.01 * (-1) ** number for number in range(20)]  # metres of a pose's noise
    images = stream([look()] * 25)
    shown = [
        replace(image, pose=Pose((x, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0), 'odom'))
        for image, x in zip(images, [*there_and_back, *standing], strict=True)
    ]
    first, last = extractor.stream(shown, with_last=True)
    assert first.way_m is None
    assert last.way_m == pytest.approx(1.0, abs=0.05)
    *_, last = Keyframer(extractor.selector.config).stream(
        [*shown[:4], replace(shown[4], pose=None), *shown[5:]], with_last=True
    )
    assert last.way_m is None
