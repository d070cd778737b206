"""The fuzzer: mutated files that must be read or refused; long.py is its long form."""
