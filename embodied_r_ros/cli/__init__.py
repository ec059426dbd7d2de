# SPDX-License-Identifier: Apache-2.0
"""The command line, one small file per verb: `add_arguments` and `main`, logic elsewhere."""
