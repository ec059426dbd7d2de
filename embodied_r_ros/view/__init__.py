# SPDX-License-Identifier: Apache-2.0
"""Pictures of recordings for people: sheets and the Rerun viewer."""
