"""The wrappers by name; `peerlearn.learner.WRAPPERS` finds them."""
