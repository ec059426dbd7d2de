# SPDX-License-Identifier: Apache-2.0
"""What is known of the place: the log of deltas."""
