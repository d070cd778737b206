"""Tests on an accelerator that is none; a package, so that its conftest.py is no other's."""
