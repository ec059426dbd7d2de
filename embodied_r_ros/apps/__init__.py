# SPDX-License-Identifier: Apache-2.0
"""Pictures of recordings for people: sheets, the Rerun viewer, the review page."""
