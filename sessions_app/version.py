"""The version of this code, as workers report it."""

VERSION = "0.1.0"
