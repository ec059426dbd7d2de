# SPDX-License-Identifier: Apache-2.0
"""Episodes: recorded, inspected, collected, imported, replayed."""
