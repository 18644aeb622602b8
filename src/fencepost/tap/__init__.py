"""A proxy between clients and a cluster that decodes every request and shows the course of transactions."""
