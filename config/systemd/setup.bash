# /etc/embodied_r/setup.bash: what the unit embodied_r.service sources before `ros2 launch`.
. /opt/ros/jazzy/setup.bash
. /home/robot/ws/.venv/bin/activate
. /home/robot/ws/install/setup.bash
