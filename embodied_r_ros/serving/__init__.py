# SPDX-License-Identifier: Apache-2.0
"""Models as servers: profiles, the processes that serve them, promotion."""
