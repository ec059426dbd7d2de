# SPDX-License-Identifier: Apache-2.0
"""Keyframes: which images are worth looking at, and where one view lies in another."""
