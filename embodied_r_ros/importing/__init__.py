# SPDX-License-Identifier: Apache-2.0
"""Datasets of demonstrations become bags: LeRobot, and folders as RLBench writes them."""
