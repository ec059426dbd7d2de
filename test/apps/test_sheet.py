# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from embodied_r_ros.apps.sheet import Line, text_block
import numpy as np
import pytest


@pytest.mark.parametrize(('text', 'as_drawn'), [('so on …', 'so on ...'), ('Café', 'Cafe')])
def test_text_is_drawn_in_characters_that_the_font_has(text: str, as_drawn: str) -> None:
    drawn = text_block([Line(text)], 200)
    assert np.array_equal(drawn, text_block([Line(as_drawn)], 200))
