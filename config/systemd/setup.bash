# /etc/embodied_r/setup.bash: what the unit embodied_r.service sources before `ros2 launch`.
# The environment comes last, so that its `ros2` is found first.
. /opt/ros/jazzy/setup.bash
. /home/robot/ws/install/setup.bash
. /home/robot/ws/.venv/bin/activate
