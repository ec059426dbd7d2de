# SPDX-License-Identifier: Apache-2.0
"""Simulated worlds with known truth; an optional extra (requirements/sim.txt)."""

import os

# Read once, when mujoco is imported: render on the CPU unless the user chose otherwise.
os.environ.setdefault('MUJOCO_GL', 'osmesa')
