"""Tests of the report; a package, so that its conftest has a name of its own."""
