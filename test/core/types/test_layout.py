# SPDX-License-Identifier: Apache-2.0
"""A layout survives JSON, and answers where things are."""

from __future__ import annotations

from dataclasses import replace
import json
import math

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.types.layout import ImageTruth, Layout, LayoutObject, ObjectView, Span
import pytest

S = 1_000_000_000
SPANS = (
    Span(10 * S, 12 * S, (1.0, 0.0, 0.5), (1.0, 0.0, 0.5)),
    Span(12 * S, 14 * S, (1.0, 0.0, 0.5), (1.0, 2.0, 0.5)),
    Span(20 * S, 30 * S, (1.0, 2.0, 0.5), (1.0, 2.0, 0.5)),
)
OBJECT = LayoutObject(
    0, 'red tall object', 'red', 'tall', (0.2, 0.2, 0.6), 0.5, 'floor', SPANS, 10 * S, 14 * S
)
VIEW = ObjectView(0, True, 0.75, 0.01, 0.25, -0.125, 2.5, 0.2)
LAYOUT = Layout(
    'e1',
    's1',
    (4.0, 5.0, 2.5),
    (OBJECT,),
    (
        ImageTruth(10 * S, (0.0, 0.0, 1.0), 7.0, 0.125, 0.0, (VIEW,)),
        ImageTruth(11 * S, (0.5, 0.0, 1.0), 7.5, 0.0, 0.0),
    ),
    labels=('red tall object', 'blue flat object'),
)


def test_json_gives_the_same_layout_back() -> None:
    assert Layout.from_json(LAYOUT.to_json()) == LAYOUT


def test_a_layout_from_before_there_were_labels_is_read() -> None:
    old = json.loads(LAYOUT.to_json())
    del old['labels']
    assert Layout.from_json(json.dumps(old)) == replace(LAYOUT, labels=())


def test_json_is_rounded_and_has_no_negative_zero() -> None:
    text = replace(LAYOUT, room_size=(4.00004, -0.00001, 2.5)).to_json()
    assert '[4.0,0.0,2.5]' in text


@pytest.mark.parametrize(
    'text', ['', '[]', '{}', 'null', LAYOUT.to_json().replace('"spans"', '"span"')]
)
def test_what_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(InputError, match='not readable'):
        Layout.from_json(text)


def test_another_version_is_refused() -> None:
    with pytest.raises(InputError, match='version 99: expected 1'):
        Layout.from_json(replace(LAYOUT, version=99).to_json())


@pytest.mark.parametrize(
    ('second', 'position'),
    [
        (9, None),
        (10, (1.0, 0.0, 0.5)),
        (13, (1.0, 1.0, 0.5)),
        (14, None),
        (20, (1.0, 2.0, 0.5)),
        (30, None),
    ],
)
def test_an_object_is_where_its_spans_say(
    second: int, position: tuple[float, float, float] | None
) -> None:
    assert OBJECT.position_at(second * S) == position


def test_directions_are_those_of_the_camera() -> None:
    image = ImageTruth(S, (1.0, 1.0, 1.0), math.pi / 2 + 2 * math.pi, 0.0, 0.0)
    bearing, elevation, distance = image.direction_to((0.0, 2.0, 1.0))
    assert bearing == pytest.approx(math.pi / 4)
    assert elevation == pytest.approx(0.0)
    assert distance == pytest.approx(math.sqrt(2))


def test_a_camera_that_looks_down_sees_the_horizon_above_its_axis() -> None:
    image = ImageTruth(S, (0.0, 0.0, 1.0), 0.0, 0.25, 0.0)
    assert image.direction_to((5.0, 0.0, 1.0))[1] == pytest.approx(0.25)


def test_images_are_found_by_stamp() -> None:
    assert LAYOUT.image_at(11 * S).position == (0.5, 0.0, 1.0)
    with pytest.raises(InputError, match='no image with stamp 5'):
        LAYOUT.image_at(5)
