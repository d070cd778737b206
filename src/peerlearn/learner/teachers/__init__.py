"""The teachers by name; `peerlearn.learner.TEACHERS` finds them."""
