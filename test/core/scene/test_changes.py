# SPDX-License-Identifier: Apache-2.0
"""What changed between two visits: what nobody looked at is not gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.core.scene.changes import ChangeKind, changes_between, SeenKeyframe
import numpy as np
import pytest

from test.core.scene.places import camera_at, delta_of, Thing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.scene.changes import VisitChanges
    from embodied_r_ros.core.types.geometry import Pose

LOOKS = [camera_at(0.0, 0.3 * n) for n in range(4)]
AWAY = [camera_at(0.0, 0.3 * n, 180.0) for n in range(4)]
BOX = Thing('red cup', (3.0, 0.5, 1.0))
PLANT = Thing('plant', (4.0, -1.0, 1.0))
Look = tuple['Pose', tuple[Thing, ...]]


def looks(poses: Sequence[Pose], *things: Thing) -> list[Look]:
    return [(pose, things) for pose in poses]


def visits(before: Sequence[Look], after: Sequence[Look]) -> VisitChanges:
    seen = [
        SeenKeyframe(*delta_of(number, pose, *things))
        for number, (pose, things) in enumerate([*before, *after])
    ]
    return changes_between(seen[: len(before)], seen[len(before) :])


def kinds(found: VisitChanges) -> dict[str, str]:
    return {change.label: change.kind.value for change in found.changes}


def test_where_nothing_changed_nothing_is_told() -> None:
    found = visits(looks(LOOKS, BOX, PLANT), looks(LOOKS[::-1], BOX, PLANT))
    assert (found.changes, found.same) == ((), 2)


def test_what_was_looked_at_and_is_not_there_is_gone() -> None:
    found = visits(looks(LOOKS, BOX, PLANT), looks(LOOKS, PLANT))
    assert kinds(found) == {'red cup': 'gone'}
    (change,) = found.changed
    assert (change.looks, change.after) == (4, None)
    assert change.before == pytest.approx(BOX.place, abs=0.05)
    assert None not in change.views


def test_what_was_not_looked_at_is_not_gone() -> None:
    found = visits(looks(LOOKS, BOX, PLANT), looks(AWAY))
    assert kinds(found) == {'red cup': 'not looked at', 'plant': 'not looked at'}
    assert found.changed == ()


def test_what_is_hidden_is_not_looked_at() -> None:
    hider = Thing('couch', (1.5, 0.5, 1.0), 2.0)
    found = visits(looks(LOOKS, BOX), looks(LOOKS, hider))
    assert kinds(found)['red cup'] == 'not looked at'


def test_what_depth_shows_something_before_is_not_looked_at() -> None:
    """The same look tells that a thing is gone only where depth looks through its place."""
    before, depth = looks(LOOKS, BOX), np.full((48, 64), 1.0, np.float32)
    seen = [SeenKeyframe(*delta_of(n, *pose_of(each))) for n, each in enumerate(before)]
    for depth_m, kind in ((1.0, ChangeKind.NOT_LOOKED_AT), (9.0, ChangeKind.GONE)):
        after = []
        for number, pose in enumerate(LOOKS, len(seen)):
            delta, view = delta_of(number, pose)
            shown = type(view)(view.pose, view.intrinsics, depth * np.float32(depth_m))
            after.append(SeenKeyframe(delta, shown))
        (change,) = changes_between(seen, after).changes
        assert change.kind is kind


def pose_of(look: Look) -> tuple[Pose, Thing]:
    pose, (thing,) = look
    return pose, thing


def test_one_look_is_too_few() -> None:
    found = visits(looks(LOOKS, BOX), looks(LOOKS[:1]))
    assert kinds(found) == {'red cup': 'not looked at'}


def test_a_thing_elsewhere_has_moved_where_its_old_place_was_looked_at() -> None:
    there = Thing('red cup', (3.5, -1.5, 1.0))
    (change,) = visits(looks(LOOKS, BOX), looks(LOOKS, there)).changes
    assert change.kind is ChangeKind.MOVED
    assert change.before == pytest.approx(BOX.place, abs=0.05)
    assert change.after == pytest.approx(there.place, abs=0.05)


def test_a_thing_like_one_that_nobody_looked_for_is_perhaps_the_same() -> None:
    """A third one like it stands where it was: the label tells too little."""
    one, third = Thing('red cup', (-3.0, 0.5, 1.0)), Thing('red cup', (3.0, 1.5, 1.0))
    new = Thing('red cup', (3.0, -1.5, 1.0))
    before = looks(AWAY, one) + looks(LOOKS, third)
    found = visits(before, looks(LOOKS, third, new))
    assert kinds(found) == {'red cup': 'perhaps the same'}
    alone = visits(looks(AWAY, one) + looks(LOOKS), looks(LOOKS, new))
    assert kinds(alone) == {'red cup': 'moved'}  # nothing else is like it


def test_what_is_new_has_appeared_only_where_somebody_had_looked() -> None:
    assert kinds(visits(looks(LOOKS, PLANT), looks(LOOKS, PLANT, BOX))) == {'red cup': 'appeared'}
    found = visits(looks(AWAY), looks(LOOKS, BOX))
    assert kinds(found) == {'red cup': 'not looked at before'}
