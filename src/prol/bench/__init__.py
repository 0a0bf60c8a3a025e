"""How fast learning and answering are: on this machine, for any method, backbone and precision."""
