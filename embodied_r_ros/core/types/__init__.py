# SPDX-License-Identifier: Apache-2.0
"""Values that several rooms share, and their words."""
