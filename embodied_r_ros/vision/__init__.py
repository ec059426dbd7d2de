# SPDX-License-Identifier: Apache-2.0
"""What images show, by geometry: shared views, motion of the camera, coloured objects."""
