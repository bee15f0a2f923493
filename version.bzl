"""The version of Cohort, as in core/base/version.h. Before 1.0 each minor version may change the interface."""

VERSION = "0.1.0"
