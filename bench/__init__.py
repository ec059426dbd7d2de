# SPDX-License-Identifier: Apache-2.0
"""Speed and quality against named baselines; `python -m bench` lists and runs them."""
