# SPDX-License-Identifier: Apache-2.0
"""The judge of consistency: what it reads, judges that run, and a small one of our own."""
