# SPDX-License-Identifier: Apache-2.0
"""What training runs share: commands, manifests, models, rewards."""
