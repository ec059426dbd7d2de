# SPDX-License-Identifier: Apache-2.0
"""Pictures and questions for people who look at a recording."""
