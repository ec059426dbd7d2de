# SPDX-License-Identifier: Apache-2.0
"""Shared by all: settings, errors, resources, untrusted text, child processes, prefetch."""
