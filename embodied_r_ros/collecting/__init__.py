# SPDX-License-Identifier: Apache-2.0
"""Plain camera bags become episodes, as the live recorder would have written them."""
