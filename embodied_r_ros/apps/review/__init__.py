# SPDX-License-Identifier: Apache-2.0
"""A page in the browser on which people review recorded answers."""
