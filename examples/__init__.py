# SPDX-License-Identifier: Apache-2.0
"""Whole ways through the project, as programs to be read and run."""
