# SPDX-License-Identifier: Apache-2.0
"""What recordings teach: episodes and their labels, questions with solutions, messages of ours."""
