# SPDX-License-Identifier: Apache-2.0
"""Episodes and their labels, questions with solutions, and the project's own messages."""
