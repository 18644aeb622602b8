"""Whole worlds of broker, clients and faults in virtual time."""
