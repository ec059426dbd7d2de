# SPDX-License-Identifier: Apache-2.0
"""Recordings as files: messages, reading, writing, recovery, playback."""
