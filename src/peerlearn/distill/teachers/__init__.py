"""The teachers: the other peers, the student itself, an untrained network, EMA copies."""
