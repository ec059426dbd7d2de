# SPDX-License-Identifier: Apache-2.0
"""Asking a model over the OpenAI protocol: client, settings, fallbacks, cache."""
