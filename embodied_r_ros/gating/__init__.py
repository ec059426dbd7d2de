# SPDX-License-Identifier: Apache-2.0
"""The gate between a proposal and whatever acts on it: rules over numbers, closed in doubt."""
