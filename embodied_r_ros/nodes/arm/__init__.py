# SPDX-License-Identifier: Apache-2.0
"""The part of the nodes that only an arm needs."""
