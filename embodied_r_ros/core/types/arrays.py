# SPDX-License-Identifier: Apache-2.0
"""Kinds of arrays by what their numbers are; shapes are told where they are used."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]
Float32s = NDArray[np.float32]
Bools = NDArray[np.bool_]
UInt8s = NDArray[np.uint8]
Indices = NDArray[np.intp]
