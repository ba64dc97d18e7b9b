"""Steps for networks, for which no theorem is known: what has done well."""

NETWORK_STEPS = 200
NETWORK_STEP = 10.0  # how far a gradient at its clip moves the weights
