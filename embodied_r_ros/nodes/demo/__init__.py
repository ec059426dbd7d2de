# SPDX-License-Identifier: Apache-2.0
"""The demonstration: the real nodes as processes, and a client that asks them."""
