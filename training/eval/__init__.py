# SPDX-License-Identifier: Apache-2.0
"""Grades, statistics and reports: how good a model is."""
