"""A view of the wire: a proxy that keeps clients behind it, decodes every call and draws what a transaction did."""
