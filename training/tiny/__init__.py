# SPDX-License-Identifier: Apache-2.0
"""What serves only models of a few million parameters."""
