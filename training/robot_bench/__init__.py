# SPDX-License-Identifier: Apache-2.0
"""Open questions about an arm, judged: in the style of Robot-R1 Bench."""
