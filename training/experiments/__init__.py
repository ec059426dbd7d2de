# SPDX-License-Identifier: Apache-2.0
"""Experiments: what `training.experiment` can rerun, each as a page and a JSON file."""
