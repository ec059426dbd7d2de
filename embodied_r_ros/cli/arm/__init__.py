# SPDX-License-Identifier: Apache-2.0
"""Verbs that only an arm needs."""
