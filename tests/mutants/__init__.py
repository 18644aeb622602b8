"""Deliberately broken brokers, and the proof that each is noticed."""
