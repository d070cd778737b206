"""Many runs: grids, sweeps over them in processes or on a Ray cluster, searches for settings."""
