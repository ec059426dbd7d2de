# SPDX-License-Identifier: Apache-2.0
from glob import glob
import os

from setuptools import find_packages, setup

package_name = 'embodied_r_ros'
nodes = (
    'keyframe_extractor',
    'semantic_perceiver',
    'spatial_reasoner',
    'proposal_gate',
    'episode_recorder',
    'bag_player',
)


def shared(folder):
    """List (share folder, files) for every folder below `folder`."""
    return [
        (os.path.join('share', package_name, root), [os.path.join(root, name) for name in names])
        for root, _, names in os.walk(folder)
        if names
    ]


setup(
    name=package_name,
    version='0.1.0',
    packages=find_packages(include=['embodied_r_ros', 'embodied_r_ros.*']),
    package_data={package_name: ['py.typed']},
    data_files=[
        ('share/ament_index/resource_index/packages', [f'resource/{package_name}']),
        (f'share/{package_name}', ['package.xml']),
        (f'share/{package_name}/launch', glob('launch/*.launch.py')),
        *shared('config'),
        *shared('models'),
        *shared('samples'),
    ],
    install_requires=['setuptools'],
    zip_safe=True,
    maintainer='embodied_r_ros maintainers',
    maintainer_email='maintainers@embodied-r-ros.example',
    description="Spatial reasoning from a robot's own camera over ROS 2.",
    license='Apache-2.0',
    extras_require={'test': ['pytest'], 'view': ['rerun-sdk']},
    entry_points={
        'console_scripts': [
            'embodied-r = embodied_r_ros.cli.main:main',
            *(f'{name} = embodied_r_ros.nodes.{name}:main' for name in nodes),
        ],
    },
)
