# SPDX-License-Identifier: Apache-2.0
"""Fuzzing: how many examples, and data that was damaged on the way.

`HYPOTHESIS_PROFILE=long` tries a hundred times as many examples; `make test` tries a few.
"""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

_ALWAYS: dict[str, Any] = {
    'deadline': None,  # other work on the machine is no failure; hangs end by pytest's timeout
    'suppress_health_check': list(HealthCheck),
}
# Those that read files or decode images, of which each example takes milliseconds.
settings.register_profile('default', max_examples=60, derandomize=True, **_ALWAYS)
settings.register_profile('long', max_examples=6000, **_ALWAYS)


@st.composite
def damage(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds with some bytes changed, cut out, doubled or put in."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        what = draw(st.sampled_from(['flip', 'cut', 'double', 'insert', 'length', 'end']))
        span = draw(st.integers(1, 64))
        if what == 'flip' and data:
            data[at] ^= draw(st.integers(1, 255))
        elif what == 'cut':
            del data[at : at + span]
        elif what == 'double':
            data[at:at] = data[at : at + span]
        elif what == 'insert':
            data[at:at] = draw(st.binary(max_size=16))
        elif what == 'length':  # absurd ones, as lengths are written
            number = draw(st.sampled_from([0, 1, 2**16 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1]))
            data[at : at + 8] = number.to_bytes(8, draw(st.sampled_from(['little', 'big'])))
        else:
            del data[at:]
    return bytes(data)
