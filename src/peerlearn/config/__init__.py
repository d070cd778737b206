"""What a learner is built from: names of parts, values of their settings, and options."""
