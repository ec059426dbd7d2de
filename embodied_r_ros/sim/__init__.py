# SPDX-License-Identifier: Apache-2.0
"""Simulated worlds with known truth; an optional extra (requirements/sim.txt)."""
